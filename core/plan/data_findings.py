"""What the rows mean for the run: how many, how long, how they are laid, and who loads them."""

from __future__ import annotations

from collections.abc import Iterator

from trainwiz.core.config.values import WRITE_TEXT
from trainwiz.core.data.lengths import joins_texts
from trainwiz.core.errors import Finding, Remedy, Severity, after
from trainwiz.core.estimate.host import LOW_MEMORY_BYTES
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.plan.chat_findings import NOTABLE_CUT, chat_findings, length_that_holds
from trainwiz.core.plan.result import Plan, WayOut
from trainwiz.core.plan.rows import lengths_of
from trainwiz.core.plan.sizes import LENGTH, TARGET
from trainwiz.core.plan.words import counted, percent

MOSTLY_CUT = 0.5
"""Of the rows: more than so many cut is hardly meant, and a longer input is offered."""


def data_findings(plan: Plan) -> Iterator[Finding]:
    for judge in (chat_findings, _labels, _rows, _unused, _cut, _packed, _workers):
        yield from judge(plan)


def _rows(plan: Plan) -> Iterator[Finding]:
    data, batch = plan.data, plan.batch
    if data is None or data.rows >= batch.effective_samples or plan.config.mode.kind != "train":
        return
    message = tr(
        "One step uses {effective_samples} sequences but the dataset has only {rows}: every step sees rows more "
        "than once.",
        **counted(effective_samples=batch.effective_samples, rows=data.rows),
    )
    fewer = max(1, data.rows // 10)
    words = trn(
        "{count} sequence per step: ten steps per epoch",
        "{count} sequences per step: ten steps per epoch",
        fewer,
        **counted(count=fewer),
    )
    changes = {"batch.target_tokens": None, "batch.target_samples": fewer, "batch.gradient_accumulation_steps": None}
    yield plan.warning("batch_larger_than_data", "batch", message, (words, changes))


def _labels(plan: Plan) -> Iterator[Finding]:
    """The classes that were found, with their counts, and what is wrong with them."""
    if plan.data is None or plan.data.labels is None:
        return
    # With pyarrow, which has read the data by now.
    from trainwiz.core.data.labels import label_problems, shown_counts

    labels = plan.data.labels
    words = mark("{n} classes; training rows per class: {counts}.")
    if plan.config.task == "token-classification":
        words = mark("{n} tags; training words per tag: {counts}.")
    message = tr(words, n=len(labels.names), counts=shown_counts(labels))
    yield plan.note("classes_found", "data.sources.0.target_column", message)
    for code, severity, where, problem, ways in label_problems(labels, plan.config):
        yield plan.finding(code, severity, where, problem, *ways)


def _unused(plan: Plan) -> Iterator[Finding]:
    """A part of the prompt that the model would never see."""
    if plan.data is None or plan.config.task not in WRITE_TEXT:
        return
    # With pyarrow, which has read the data by now.
    from trainwiz.core.data.columns import CONVERT, PARTS_OF_A_CHAT, unused_prompt_columns

    source = plan.config.data.sources[0]
    names = [str(name) if name is not None else None for name in (source.text_column, source.target_column)]
    used = source.chat_columns.values()
    unused = [name for name in unused_prompt_columns(plan.data.columns, *names) if name not in used]
    if unused:
        message = trn(
            "The column {columns} belongs to the prompt but is not used: the model never sees it.",
            "The columns {columns} belong to the prompt but are not used: the model never sees them.",
            len(unused),
            columns=", ".join(map(repr, unused)),
        )
        join: WayOut = Remedy(tr("join them into the prompt first: {place}", place=CONVERT))
        if plan.config.task == "causal-lm" and unused[0].lower() in PARTS_OF_A_CHAT["context"]:
            used_too = {"data.sources.0.layout": "chat", "data.sources.0.chat_columns": {"context": unused[0]}}
            join = tr("add {column} to the prompt", column=repr(unused[0])), used_too
        yield plan.warning("unused_prompt_column", "data.sources.0.text_column", message, join)


def _cut(plan: Plan) -> Iterator[Finding]:
    """Rows and targets that are longer than what the model is given of them."""
    data, length, target = plan.data, plan.config.batch.sequence_length, plan.config.batch.target_length
    lengths = lengths_of(data.lengths) if data is not None else None
    if data is not None and data.left_out:
        message = tr(
            "{longer} of the rows exceed {length} tokens and are skipped.",
            longer=percent(data.left_out),
            **counted(length=length),
        )
        severity: Severity = "error" if data.left_out == 1 else "note" if data.left_out <= NOTABLE_CUT else "warning"
        yield plan.finding(
            "rows_left_out", severity, "data.too_long", message, (tr("truncate them"), {"data.too_long": "cut"})
        )
    if data is None or lengths is None or plan.config.data.concatenate or data.chats is not None:
        return
    longer = lengths.share_above(length)
    if longer > NOTABLE_CUT:
        message = tr(
            "{longer} of the rows exceed {length} tokens and will be truncated.",
            longer=percent(longer),
            **counted(length=length),
        )
        wanted = length_that_holds(lengths.share_above, plan)
        share = percent(lengths.share_above(wanted))
        words = tr("up to {length} tokens: {longer} of the rows are truncated", longer=share, **counted(length=wanted))
        offered = [(words, {LENGTH: wanted})] if longer > MOSTLY_CUT and wanted > length else []
        yield plan.finding("rows_cut", "note" if longer <= MOSTLY_CUT else "warning", LENGTH, message, *offered)
    targets = lengths_of(data.target_lengths)
    if targets is None or target is None or plan.config.task != "seq2seq" or targets.share_above(target) <= NOTABLE_CUT:
        return
    message = tr(
        "{longer} of the targets exceed {length} tokens and will be truncated.",
        longer=percent(targets.share_above(target)),
        **counted(length=target),
    )
    yield plan.note("targets_cut", TARGET, message)


def _packed(plan: Plan) -> Iterator[Finding]:
    if not plan.config.data.packing or joins_texts(plan.config):
        return
    message = tr("Rows are packed end to end, without padding.")
    if plan.config.engine.attention != "flash_attention_2":
        message += after(
            tr(
                "sdpa computes each token with all tokens of its micro-batch and masks the other rows; "
                "flash_attention_2 does not."
            )
        )
    yield plan.note("packed", "data.packing", message)


def _workers(plan: Plan) -> Iterator[Finding]:
    key, workers, cores = "data.workers", plan.config.data.workers or 0, plan.machine.cpu_cores
    total, solved = workers * plan.devices.processes, (tr("let the plan choose"), {key: None})
    if total > cores:
        message = trn(
            "{total} data loader workers share {n} core: more workers than cores only cost RAM.",
            "{total} data loader workers share {n} cores: more workers than cores only cost RAM.",
            cores,
            total=total,
        )
        yield plan.warning("workers", key, message, solved)
    by_hand = plan.chosen_by_hand(key) and workers == 0
    if plan.devices.device == "cuda" and by_hand and plan.machine.ram_total_bytes >= LOW_MEMORY_BYTES:
        message = tr("No data loader workers: the GPU waits while rows are read and masked.")
        yield plan.warning("no_workers", key, message, solved)
