"""What the rows mean for the run, whether they can be packed, and whether it ends in a lifetime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.catalog.models import load_models
from trainwiz.core.data.lengths import joins_texts
from trainwiz.core.errors import Finding, Remedy, after
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.host import LOW_MEMORY_BYTES, WORKER_BYTES
from trainwiz.core.estimate.time import step_time
from trainwiz.core.language import tr, trn
from trainwiz.core.plan.draft import Facts
from trainwiz.core.plan.hardware_findings import can_compile
from trainwiz.core.plan.loading import MOST_WORKERS, budget_bytes
from trainwiz.core.plan.remedied import changed
from trainwiz.core.plan.rows import Lengths, lengths_of
from trainwiz.core.plan.words import duration_range, gib, percent

# Whether a run may lay its rows end to end (data.packing), and what it says then.

KEY = "data.packing"
_TRIED = """
    apertus arcee cohere ernie4_5 exaone4 gemma gemma3_text glm glm4 gpt2 gpt_bigcode gpt_neox granite helium
    llama ministral mistral olmo olmo2 olmo3 persimmon phi phi3 qwen2 qwen3 seed_oss smollm3 starcoder2
"""
TRIED = frozenset(_TRIED.split())
"""Types of models whose packed rows gave the logits and gradients of the same rows apart, with eager attention, sdpa and
by the ends of rows (transformers 5.23, a test goes through them). Others make their masks without positions (opt,
biogpt), carry a state from row to row (mamba), or round a row by what its neighbours choose (mixtures of experts)."""
SHARED = ("zero3", "fsdp")
"""Engines that hold a part of the weights: rows end to end were not tried with them."""


def packing_findings(facts: Facts) -> list[Finding]:
    config = facts.config
    if not config.data.packing:
        return []
    off = facts.remedy(tr("pad the rows"), {KEY: False})
    if joins_texts(config):
        message = tr("Texts are joined into sequences of one length, without padding: {key} changes nothing.", key=KEY)
        return [Finding("nothing_to_pack", "note", KEY, message, (off,))]
    problems = list(_problems(facts))
    if problems:
        remedies = [facts.remedy(words, changes) for _, words, changes in problems if changes and len(problems) == 1]
        message = " ".join(message for message, *_ in problems)
        return [Finding("packing_not_possible", "error", KEY, message, (off, *remedies))]
    return [Finding("packed", "note", KEY, _said(facts))]


def _problems(facts: Facts) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(sentence, words of a remedy, its changes, which may be none) for each thing in the way."""
    config, kind = facts.config, facts.model_type
    if config.task != "causal-lm":
        # Masks of models that look both ways do not follow positions (create_bidirectional_mask, transformers 5.23).
        message = tr("Rows can lie end to end in causal models alone: others would see each other's rows.")
        yield message, "", {}
    elif kind is not None and kind not in TRIED:
        yield tr("Models of type {kind} were not tried with rows end to end.", kind=kind), "", {}
    if config.engine.attention == "eager":
        message = tr(
            "Eager attention keeps the scores of every token with all tokens of its micro-batch: rows end to end take "
            "sdpa or flash_attention_2."
        )
        yield message, tr("attention by sdpa"), {"engine.attention": "sdpa"}
    if config.engine.compile:
        message = tr("torch.compile would compile anew for each step of rows end to end.")
        yield message, tr("without torch.compile"), {"engine.compile": False}
    if config.engine.strategy in SHARED:
        yield tr("With {strategy} rows end to end were not tried.", strategy=config.engine.strategy), "", {}


def _said(facts: Facts) -> str:
    batch = facts.batch
    apart = (
        tr("FlashAttention computes each row alone.")
        if facts.config.engine.attention == "flash_attention_2"
        else tr(
            "sdpa computes each token with all tokens of its micro-batch and hides the other rows; flash_attention_2 does not."
        )
    )
    if batch.padded_tokens is None or batch.drawn_tokens is None or batch.drawn_waste is None:
        return tr("Rows lie end to end, without padding. {apart}", apart=apart)
    return tr(
        "Rows lie end to end: {packed} tokens are computed a step; padded in the drawn order {drawn}, {waste} of them "
        "padding. {apart}",
        packed=f"{batch.padded_tokens:,}",
        drawn=f"{batch.drawn_tokens:,}",
        waste=percent(batch.drawn_waste),
        apart=apart,
    )


# What the rows mean for the run: how many, how long, and who loads them.

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


# Whether the run ends in a lifetime, and whether the card would be busy.

YEAR_S = 365.25 * 86400
MONTH_S = 30 * 86400.0
WANTED_S = 14 * 86400.0
"""What a remedy aims at: two weeks."""
MOSTLY = 0.5
"""Of a step: what takes more is what it waits for."""


def time_findings(facts: Facts) -> list[Finding]:
    return [*_long(facts), *_idle(facts)]


def _long(facts: Facts) -> list[Finding]:
    time = facts.time
    if time.total_low_s is None or time.total_high_s is None or time.total_s is None or time.steps is None:
        return []
    if time.total_s < MONTH_S:
        return []
    span = duration_range(time.total_low_s, time.total_high_s)
    each = duration_range(time.step_low_s or 0.0, time.step_high_s or 0.0)
    steps = f"{time.steps:,}"
    if time.total_s >= YEAR_S:
        code = "takes_years"
        message = tr("The plan takes years: {steps} steps × {each} are {span}.", steps=steps, each=each, span=span)
    else:
        code = "takes_months"
        message = tr("The plan takes months: {steps} steps × {each} are {span}.", steps=steps, each=each, span=span)
    return [Finding(code, "warning", "training.max_steps", message, _shorter(facts))]


def _shorter(facts: Facts) -> tuple[Remedy, ...]:
    time, remedies = facts.time, []
    if time.step_s and time.step_low_s and time.step_high_s:
        fewer = _round_down(WANTED_S / time.step_s)
        if fewer >= 100:
            changes = {"training.max_steps": fewer}
            if facts.config.training.warmup >= fewer:
                changes["training.warmup"] = max(1, fewer // 20)
            span = _span(changed(facts, changes))
            if span:
                remedies.append(facts.remedy(tr("{fewer} steps: {span}", fewer=f"{fewer:,}", span=span), changes))
    sibling = _sibling(facts)
    if sibling is not None:
        remedies.append(sibling)
    return tuple(remedies)


def _sibling(facts: Facts) -> Remedy | None:
    """A smaller model of the same family, with its own time for the same steps."""
    work, steps, total_s = facts.work, facts.time.steps, facts.time.total_s
    if work is None or facts.rate is None or steps is None or total_s is None:
        return None
    best: tuple[float, str, ModelSpec] | None = None
    for name, spec in load_models().items():
        if spec.architecture.get("model_type") != work.architecture.model_type:
            continue
        architecture, _ = read_architecture(spec.architecture)
        if architecture is None or architecture.parameters >= work.architecture.parameters / 2:
            continue
        time = step_time(replace(work, architecture=architecture), facts.rate).step.times(steps)
        # The largest that takes at most a hundredth of the time, else the quickest.
        rank = architecture.parameters if time.likely < total_s / 100 else -time.likely
        if name.endswith("tiny"):
            continue
        if best is None or rank > best[0]:
            best = (rank, name, spec)
    if best is None:
        return None
    _, name, spec = best
    changes = {"model.name": name}
    span = _span(changed(facts, changes, spec))
    return facts.remedy(tr("{name}: {span} for the same steps", name=name, span=span), changes) if span else None


def _span(then: Facts | None) -> str:
    """The time of a run as its plan has it, with all that a run does beside steps; empty where it is not known."""
    if then is None or then.time.total_low_s is None or then.time.total_high_s is None:
        return ""
    return duration_range(then.time.total_low_s, then.time.total_high_s)


def _round_down(value: float) -> int:
    """To one significant figure: 1,900 -> 1,000, 2,400 -> 2,000."""
    whole = int(value)
    if whole < 1:
        return 0
    unit: int = 10 ** (len(str(whole)) - 1)
    return whole // unit * unit


def _idle(facts: Facts) -> list[Finding]:
    if facts.time.verdict != "idle" or facts.config.mode.kind != "train":
        return []
    network = _waits_for_network(facts)
    if network:
        return [Finding("idle", "note", "time", network)]
    message = tr(
        "The GPU would mostly wait: this reaches about {share} of its peak. The "
        "micro-batch is small for it, or the model is.",
        share=percent(facts.time.fraction_of_peak or 0),
    )
    remedies = tuple(fix.remedy(facts) for fix in facts.room)
    if not facts.config.engine.compile and can_compile(facts):
        message += after(tr("torch.compile (engine.compile) launches fewer kernels."))
    return [Finding("idle", "note", "time", message, remedies)]


def _waits_for_network(facts: Facts) -> str:
    """What several machines send, where that takes most of a slow step: a larger micro-batch is no cure of it; else ""."""
    time = facts.time
    if time.network_bytes is None or time.network_high_s is None or not time.step_high_s:
        return ""
    if time.network_high_s < MOSTLY * time.step_high_s:
        return ""
    message = tr(
        "The GPU would mostly wait for the network: a step sends {size} out of each machine, and that may be "
        "{share} of its time at {speed} Gbit/s.",
        size=gib(time.network_bytes),
        share=percent(time.network_high_s / time.step_high_s),
        speed=f"{time.network_gbit_s:g}",
    )
    if time.network_assumed:
        message += after(tr("That speed is assumed; say what it is: planning.network_gbit_s."))
    return message
