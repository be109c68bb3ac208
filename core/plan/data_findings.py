"""What the rows mean for the run: how many, how long, and who loads them."""

from __future__ import annotations

from trainwiz.core.data.joining import joins_texts
from trainwiz.core.estimate.host import LOW_MEMORY_BYTES
from trainwiz.core.estimate.worker_size import WORKER_BYTES
from trainwiz.core.findings import Finding, Remedy
from trainwiz.core.language import tr, trn
from trainwiz.core.plan.facts import Facts
from trainwiz.core.plan.lengths import Lengths, lengths_of
from trainwiz.core.plan.packing import packing_findings
from trainwiz.core.plan.words import gib, percent
from trainwiz.core.plan.workers import MOST_WORKERS, budget_bytes

NOTABLE_CUT = 0.02
MOSTLY_CUT = 0.5
"""Of the rows: more than so many cut is hardly meant, and a longer input is offered."""
ROUND_LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
WORKERS_SHARE = 0.25
"""Of host RAM: loader workers that take more are worth a word."""


def data_findings(facts: Facts) -> list[Finding]:
    return [*_rows(facts), *_unused(facts), *_cut(facts), *_grouped(facts), *packing_findings(facts), *_workers(facts)]


def _rows(facts: Facts) -> list[Finding]:
    data, batch = facts.data, facts.batch
    if data is None or data.rows >= batch.effective_samples or facts.config.mode.kind != "train":
        return []
    message = tr(
        "One step takes {effective_samples} sequences and the data has {rows}: every step sees each "
        "row more than once.",
        effective_samples=f"{batch.effective_samples:,}",
        rows=f"{data.rows:,}",
    )
    changes = {
        "batch.target_tokens": None,
        "batch.target_samples": max(1, data.rows // 10),
        "batch.gradient_accumulation_steps": None,
    }
    fewer = max(1, data.rows // 10)
    words = trn(
        "{count} sequence a step: ten steps for each pass",
        "{count} sequences a step: ten steps for each pass",
        fewer,
        count=f"{fewer:,}",
    )
    remedy = facts.remedy(words, changes)
    return [Finding("batch_larger_than_data", "warning", "batch", message, (remedy,))]


def _unused(facts: Facts) -> list[Finding]:
    """A part of the prompt that the model would never see."""
    if facts.data is None or facts.config.task == "masked-lm":
        return []
    # With pyarrow, which has read the data by now.
    from trainwiz.core.data.columns import CONVERT, unused_prompt_columns

    source = facts.config.data.sources[0]
    names = [str(one) if one is not None else None for one in (source.text_column, source.target_column)]
    unused = unused_prompt_columns(facts.data.columns, *names)
    if not unused:
        return []
    message = trn(
        "The column {columns} belongs to the prompt and is not used: the model never sees it.",
        "The columns {columns} belong to the prompt and are not used: the model never sees them.",
        len(unused),
        columns=", ".join(map(repr, unused)),
    )
    remedy = Remedy(tr("join them into the prompt first: {place}", place=CONVERT))
    return [Finding("unused_prompt_column", "warning", "data.sources.0.text_column", message, (remedy,))]


def _cut(facts: Facts) -> list[Finding]:
    data, length = facts.data, facts.config.batch.sequence_length
    lengths = lengths_of(data.lengths) if data is not None else None
    if lengths is None or facts.config.data.concatenate:
        return []
    longer = lengths.share_above(length)
    if longer <= NOTABLE_CUT:
        return _targets_cut(facts)
    message = tr(
        "{longer} of the rows exceed {length} tokens and will be truncated.",
        longer=percent(longer),
        length=f"{length:,}",
    )
    if longer <= MOSTLY_CUT:
        return [Finding("rows_cut", "note", "batch.sequence_length", message), *_targets_cut(facts)]
    remedies = tuple(
        facts.remedy(
            tr("up to {length} tokens: {longer} of the rows are cut", length=f"{most:,}", longer=percent(share)),
            {"batch.sequence_length": most},
        )
        for most, share in _longer_input(facts, lengths)
    )
    return [Finding("rows_cut", "warning", "batch.sequence_length", message, remedies), *_targets_cut(facts)]


def _longer_input(facts: Facts, lengths: Lengths) -> list[tuple[int, float]]:
    """The shortest round length that cuts hardly a row, or the longest that the model knows; none where it is no longer."""
    work = facts.work
    most = None if work is None or work.architecture.rotary else work.architecture.max_positions
    enough = next((one for one in ROUND_LENGTHS if lengths.share_above(one) <= NOTABLE_CUT), ROUND_LENGTHS[-1])
    wanted = enough if most is None else min(enough, most)
    return [(wanted, lengths.share_above(wanted))] if wanted > facts.config.batch.sequence_length else []


def _targets_cut(facts: Facts) -> list[Finding]:
    data, length = facts.data, facts.config.batch.target_length
    lengths = lengths_of(data.target_lengths) if data is not None else None
    if lengths is None or length is None or facts.config.task != "seq2seq":
        return []
    longer = lengths.share_above(length)
    if longer <= NOTABLE_CUT:
        return []
    message = tr(
        "{longer} of the targets exceed {length} tokens and will be truncated.",
        longer=percent(longer),
        length=f"{length:,}",
    )
    return [Finding("targets_cut", "note", "batch.target_length", message)]


def _grouped(facts: Facts) -> list[Finding]:
    """What data.group_by_length saves, where the lengths are known."""
    key, batch, config = "data.group_by_length", facts.batch, facts.config
    if not config.data.group_by_length:
        return []
    off = facts.remedy(tr("leave it off"), {key: False})
    if joins_texts(config):
        message = tr("Texts are joined into sequences of one length: {key} changes nothing.", key=key)
        return [Finding("nothing_to_group", "note", key, message, (off,))]
    if config.data.packing:
        message = tr("Rows lie end to end without padding: {key} changes only which rows share a step.", key=key)
        return [Finding("nothing_to_group", "note", key, message, (off,))]
    if batch.padded_tokens is None or batch.padding_waste is None or batch.drawn_tokens is None:
        return []
    if batch.micro_batch == 1:
        message = tr("A micro-batch of one row has no padding: {key} changes nothing.", key=key)
        return [Finding("nothing_to_group", "note", key, message, (off,))]
    message = tr(
        "Rows of like length go together: {grouped} tokens are computed a step, {waste} of them padding; without, {plain} "
        "and {plain_waste}.",
        grouped=f"{batch.padded_tokens:,}",
        waste=percent(batch.padding_waste),
        plain=f"{batch.drawn_tokens:,}",
        plain_waste=percent(batch.drawn_waste or 0.0),
    )
    return [Finding("grouped_by_length", "note", key, message)]


def _workers(facts: Facts) -> list[Finding]:
    workers, cores = facts.config.data.workers or 0, facts.machine.cpu_cores
    total = workers * facts.devices.processes
    findings = []
    if total > cores:
        message = trn(
            "{total} loader workers share {n} core: more than cores only costs RAM.",
            "{total} loader workers share {n} cores: more than cores only costs RAM.",
            cores,
            total=total,
        )
        fewer = max(0, cores // facts.devices.processes - 1)
        remedy = facts.remedy(_workers_word(fewer), {"data.workers": fewer})
        findings.append(Finding("workers", "warning", "data.workers", message, (remedy,)))
    used = facts.memory.host_ram_parts.get("workers", 0)
    capacity = facts.memory.host_ram_capacity_bytes
    if capacity and used > WORKERS_SHARE * capacity:
        message = tr(
            "{total} loader workers use {used} of {capacity} RAM.", total=total, used=gib(used), capacity=gib(capacity)
        )
        fewer = max(0, min(int(workers * WORKERS_SHARE * capacity / used), cores // facts.devices.processes - 1))
        remedy = facts.remedy(_workers_word(fewer), {"data.workers": fewer})
        findings.append(Finding("workers_ram", "warning", "data.workers", message, (remedy,)))
    roomy = facts.machine.ram_total_bytes >= LOW_MEMORY_BYTES
    fewer = min(max(1, min(4, cores // facts.devices.processes - 1)), _workers_that_fit(facts))
    if facts.devices.device == "cuda" and workers == 0 and roomy and fewer:
        message = tr("No loader workers: the GPU waits while rows are read and masked.")
        remedy = facts.remedy(_workers_word(fewer), {"data.workers": fewer})
        findings.append(Finding("no_workers", "warning", "data.workers", message, (remedy,)))
    return findings


def _workers_that_fit(facts: Facts) -> int:
    """Workers more for each process that the RAM which stays free would hold."""
    budget = budget_bytes(facts.machine)
    if budget is None:
        return MOST_WORKERS
    left = max(0, budget - (facts.memory.host_ram_high_bytes or facts.memory.host_ram_bytes))
    return left // (facts.devices.processes * WORKER_BYTES)


def _workers_word(count: int) -> str:
    return trn("{n} worker", "{n} workers", count)
