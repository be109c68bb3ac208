"""What the rows mean for the run: how many, how long, what of them is learnt, and who loads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from trainwiz.core.config.values import WRITE_TEXT
from trainwiz.core.data.lengths import trains_on_chats
from trainwiz.core.errors import Finding, Remedy, Severity, after
from trainwiz.core.estimate.host import LOW_MEMORY_BYTES
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.plan.result import Plan, WayOut
from trainwiz.core.plan.rows import lengths_of
from trainwiz.core.plan.sizes import ACCUMULATION, LENGTH, ROUND_LENGTHS, TARGET, TARGETS
from trainwiz.core.plan.words import counted, percent

if TYPE_CHECKING:
    from trainwiz.core.tracing.chats import ChatLook

NOTABLE_CUT = 0.02
MOSTLY_CUT = 0.5
"""Of the rows: more than so many cut is hardly meant, and a longer input is offered."""


def _rows(plan: Plan) -> Iterator[Finding]:
    data, batch = plan.data, plan.batch
    if data is None or data.rows >= batch.effective_samples or plan.config.mode.kind != "train":
        return
    message = tr(
        "One step uses {samples} sequences but the dataset has only {rows}: every step sees rows more than once.",
        **counted(samples=batch.effective_samples, rows=data.rows),
    )
    fewer = max(1, data.rows // 10)
    words = trn("{n} sequence per step: ten steps per epoch", "{n} sequences per step: ten steps per epoch", fewer)
    changes = {TARGETS[1]: None, TARGETS[0]: fewer, ACCUMULATION: None}
    yield plan.finding("batch_larger_than_data", "warning", "batch", message, (words, changes))


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
    yield plan.finding("classes_found", "note", "data.sources.0.target_column", message)
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
        message = tr(
            "Not used, although part of the prompt: {columns}. The model never sees it.",
            columns=", ".join(map(repr, unused)),
        )
        join: WayOut = Remedy(tr("join them into the prompt first: {place}", place=CONVERT))
        if plan.config.task == "causal-lm" and unused[0].lower() in PARTS_OF_A_CHAT["context"]:
            used_too = {"data.sources.0.layout": "chat", "data.sources.0.chat_columns": {"context": unused[0]}}
            join = tr("add {column} to the prompt", column=repr(unused[0])), used_too
        yield plan.finding("unused_prompt_column", "warning", "data.sources.0.text_column", message, join)


def _cut(plan: Plan) -> Iterator[Finding]:
    """Rows and targets that are longer than what the model is given of them, and rows that are left out for it."""
    data, length, target = plan.data, plan.config.batch.sequence_length, plan.config.batch.target_length
    if data is None:
        return
    if data.left_out:
        numbers = {"longer": percent(data.left_out), **counted(length=length)}
        message = tr("{longer} of the rows exceed {length} tokens and are skipped.", **numbers)
        severity: Severity = "error" if data.left_out == 1 else _severity(data.left_out, NOTABLE_CUT)
        truncate = tr("truncate them"), {"data.too_long": "cut"}
        yield plan.finding("rows_left_out", severity, "data.too_long", message, truncate)
    rows, targets = lengths_of(data.lengths), lengths_of(data.target_lengths)
    if rows is None or plan.config.data.concatenate or data.chats is not None:
        return
    longer = rows.share_above(length)
    if longer > NOTABLE_CUT:
        numbers = {"longer": percent(longer), **counted(length=length)}
        message = tr("{longer} of the rows exceed {length} tokens and will be truncated.", **numbers)
        offered = _longer_input(plan, rows.share_above) if longer > MOSTLY_CUT else []
        yield plan.finding("rows_cut", _severity(longer, MOSTLY_CUT), LENGTH, message, *offered)
    if targets is not None and target is not None and plan.config.task == "seq2seq":
        longer = targets.share_above(target)
        numbers = {"longer": percent(longer), **counted(length=target)}
        message = tr("{longer} of the targets exceed {length} tokens and will be truncated.", **numbers)
        if longer > NOTABLE_CUT:
            yield plan.finding("targets_cut", "note", TARGET, message)


def _severity(share: float, notable: float) -> Severity:
    return "note" if share <= notable else "warning"


def _longer_input(plan: Plan, share_above: Callable[[int], float]) -> list[WayOut]:
    """The shortest round length that cuts hardly a row, or the longest that the model knows; none where that is the own."""
    enough = next((most for most in ROUND_LENGTHS if share_above(most) <= NOTABLE_CUT), ROUND_LENGTHS[-1])
    wanted = min(enough, plan.most_positions or enough)
    words = tr(
        "up to {length} tokens: {longer} are truncated", longer=percent(share_above(wanted)), length=f"{wanted:,}"
    )
    return [(words, {LENGTH: wanted})] if wanted > plan.config.batch.sequence_length else []


def _workers(plan: Plan) -> Iterator[Finding]:
    key, workers, cores = "data.workers", plan.config.data.workers or 0, plan.machine.cpu_cores
    total, on_gpu, message = workers * plan.devices.processes, plan.devices.device == "cuda", ""
    if total > cores:
        message = tr("{total} data loader workers for {cores} CPU cores: more only cost RAM.", total=total, cores=cores)
    elif not workers and on_gpu and plan.chosen_by_hand(key) and plan.machine.ram_total_bytes >= LOW_MEMORY_BYTES:
        message = tr("No data loader workers: the GPU waits while rows are read and masked.")
    if message:
        yield plan.finding("workers", "warning", key, message, (tr("let the plan choose"), {key: None}))


# What is learnt of chats, and what is doubtful in them.

TEMPLATE, TRAIN_ON = "model.chat_template", "training.train_on"
SOURCE = "data.sources.0"

Row = tuple[Severity, str, str]
"""Severity, key, sentence."""
DOUBTS: dict[str, Row] = {
    "template_refuses": (
        "error", TEMPLATE, mark("{count} of {rows} chats do not fit the template and are skipped. {place}: {detail}."),
    ),
    "template_changes": (
        "error", TRAIN_ON,
        mark("In {count} of {rows} chats the answers cannot be found; these chats are skipped. {place}: {detail}."),
    ),
    "no_label": ("warning", TRAIN_ON, mark("{count} of {rows} chats have no tokens to train on (first: {place}).")),
    "end_not_learnt": (
        "warning", TEMPLATE,
        mark(
            "In {count} of {rows} chats the token that ends an answer is not trained on (first: {place}): the model "
            "would not learn where to stop."
        ),
    ),
    "bos_twice": (
        "warning", TEMPLATE, mark("{count} of {rows} chats begin with the BOS token twice (first: {place})."),
    ),
    "roles_repeat": (
        "note", SOURCE, mark("In {count} of {rows} chats the same role has two turns in a row (first: {place})."),
    ),
    "system_dropped": (
        "warning", TEMPLATE, mark("The template drops the system turn of {count} of {rows} chats (first: {place})."),
    ),
    "thoughts_dropped": (
        "warning", TEMPLATE,
        mark("The template drops reasoning in {count} of {rows} chats (first: {place}): it is not trained on."),
    ),
    "marks_in_text": (
        "warning", SOURCE,
        mark(
            "{count} of {rows} chats contain special tokens in their text (first: {place}): the model reads them as "
            "real ones."
        ),
    ),
    "duplicates": (
        "note", SOURCE,
        mark("{count} chats are duplicates (first: {place}); the same chat may be both trained on and held out."),
    ),
    "held_out_is_trained": (
        "warning", "data.validation_sources",
        mark("{count} held-out chats are also trained on (first: {place}): their loss is meaningless."),
    ),
}  # fmt: skip
"""Code of a doubt (core/training/look.py) -> what is said of it."""
CHATML = mark("format them as ChatML"), {TEMPLATE: "chatml"}
WAYS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "template_refuses": (CHATML,),
    "end_not_learnt": (CHATML,),
    "template_changes": (
        (mark("train on the last answer of each chat"), {TRAIN_ON: "last_answer"}),
        (mark("train on every token"), {TRAIN_ON: "everything"}),
    ),
}


def chat_findings(plan: Plan) -> Iterator[Finding]:
    look = plan.data.chats if plan.data is not None and trains_on_chats(plan.config) else None
    if look is None:
        return
    if look.problem:
        problem = look.problem.rstrip(".")
        message = tr("Could not check which tokens of the chats are trained on: {problem}.", problem=problem)
        yield plan.finding("chats_not_seen", "note", TEMPLATE, message)
        return
    yield plan.finding("what_is_learnt", "note", TRAIN_ON, learnt_words(plan, look))
    for doubt in look.doubts:
        severity, where, text = DOUBTS[doubt.code]
        message = tr(text, count=f"{doubt.rows:,}", rows=f"{look.rows:,}", place=doubt.place, detail=doubt.detail)
        ways = [(tr(words), changes) for words, changes in WAYS.get(doubt.code, ())]
        # Some that are left out are a loss, all of them an end.
        some = severity == "error" and doubt.rows < look.rows
        yield plan.finding(doubt.code, "warning" if some else severity, where, message, *ways)
    length, ends = plan.config.batch.sequence_length, [end for part in look.ends for end in part]

    def cut(most: int) -> float:
        return float(sum(end > most for end in ends) / max(len(ends), 1))

    if cut(length) and plan.config.data.too_long != "drop":
        message = tr(
            "{cut} of the chats exceed {length} tokens: an answer is truncated, so its end is not trained on.",
            cut=percent(cut(length)),
            **counted(length=length),
        )
        drop = tr("skip them"), {"data.too_long": "drop"}
        severity = _severity(cut(length), NOTABLE_CUT)
        yield plan.finding("answers_cut", severity, LENGTH, message, *_longer_input(plan, cut), drop)


def learnt_words(plan: Plan, look: ChatLook) -> str:
    """What is learnt of the chats, and in which template."""
    tokens, learnt = (sum(map(sum, part)) for part in (look.lengths, look.learnt))
    said = {
        "answers": mark("Trained on: the answers, {share} of the tokens of {rows} chats."),
        "last_answer": mark("Trained on: the last answer of each chat, {share} of the tokens of {rows} chats."),
        "everything": mark("Trained on: every token of the chats, questions included ({share} of {rows} chats)."),
    }[plan.config.training.train_on]
    named = plan.config.model.chat_template
    template = tr("They are formatted with the model's own template.")
    if named not in (None, "own"):
        template = tr("They are formatted with the template {name}, which is saved with the model.", name=named)
    return tr(said, share=percent(learnt / max(tokens, 1)), rows=f"{look.rows:,}") + after(template)


DATA_FINDINGS = (chat_findings, _labels, _rows, _unused, _cut, _workers)
