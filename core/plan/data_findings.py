"""What the rows mean for the run, what is learnt of chats and doubtful in them, whether they can be packed, and whether it ends in a lifetime."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainwiz.core.catalog.model_config import TRIED
from trainwiz.core.config.values import WRITE_TEXT
from trainwiz.core.data.lengths import joins_texts, trains_on_chats
from trainwiz.core.errors import Finding, Remedy, Severity, after
from trainwiz.core.estimate.host import LOW_MEMORY_BYTES, WORKER_BYTES
from trainwiz.core.estimate.time import step_time
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.plan.engine import COMPILE
from trainwiz.core.plan.loading import MOST_WORKERS, budget_bytes
from trainwiz.core.plan.refusals import ATTENTION, can_compile
from trainwiz.core.plan.resolve import LENGTH, TARGET, changed, remedy_of, smaller_than
from trainwiz.core.plan.result import Plan, WayOut
from trainwiz.core.plan.rows import SHARED, lengths_of
from trainwiz.core.plan.words import counted, duration_range, gib, percent

if TYPE_CHECKING:
    from trainwiz.core.tracing.chats import ChatLook

# What is learnt of chats, and what is doubtful in them.

TEMPLATE, TRAIN_ON = "model.chat_template", "training.train_on"
SOURCE = "data.sources.0"
NOTABLE_CUT = 0.02
ROUND_LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)


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
    if plan.data is None or not trains_on_chats(plan.config):
        return
    look: ChatLook | None = plan.data.chats
    if look is None:
        return
    if look.problem:
        message = tr(
            "Could not check which tokens of the chats are trained on: {problem}.", problem=look.problem.rstrip(".")
        )
        yield plan.note("chats_not_seen", TEMPLATE, message)
        return
    yield plan.note("what_is_learnt", TRAIN_ON, learnt_words(plan, look))
    for doubt in look.doubts:
        if doubt.code not in DOUBTS:
            continue
        severity, where, text = DOUBTS[doubt.code]
        message = tr(text, count=f"{doubt.rows:,}", rows=f"{look.rows:,}", place=doubt.place, detail=doubt.detail)
        ways = [(tr(words), changes) for words, changes in WAYS.get(doubt.code, ())]
        # Some that are left out are a loss, all of them an end.
        some = severity == "error" and doubt.rows < look.rows
        yield plan.finding(doubt.code, "warning" if some else severity, where, message, *ways)
    yield from _answers_cut(plan, look)


def length_that_holds(share_above: Callable[[int], float], plan: Plan) -> int:
    """The shortest round length that cuts hardly a row, or the longest that the model knows."""
    enough = next((most for most in ROUND_LENGTHS if share_above(most) <= NOTABLE_CUT), ROUND_LENGTHS[-1])
    return min(enough, plan.most_positions or enough)


def learnt_words(plan: Plan, look: ChatLook) -> str:
    """What is learnt of the chats, and in which template."""
    tokens, learnt = (sum(map(sum, part)) for part in (look.lengths, look.learnt))
    said = {
        "answers": mark("Trained on: the answers, {share} of the tokens of {rows} chats."),
        "last_answer": mark("Trained on: the last answer of each chat, {share} of the tokens of {rows} chats."),
        "everything": mark(
            "Trained on: every token of the chats, questions included ({share} of the tokens of {rows} chats)."
        ),
    }[plan.config.training.train_on]
    named = plan.config.model.chat_template
    if named == "chatml":
        template = tr("They are formatted as ChatML; this template is saved with the model.")
    elif named not in (None, "own"):
        template = tr("They are formatted with the template in {path}, which is saved with the model.", path=named)
    else:
        template = tr("They are formatted with the model's own template.")
    if look.marks == "training":
        template += " " + tr(
            "TRL's training version of this template ({family}) marks the answers; the model's own template is saved.",
            family=look.family,
        )
    elif look.marks == "prefixes" and plan.config.training.train_on != "everything":
        template += " " + tr("It does not mark answers: an answer is what it adds to the preceding turns.")
    return tr(said, share=percent(learnt / max(tokens, 1)), rows=f"{look.rows:,}") + " " + template


def _answers_cut(plan: Plan, look: ChatLook) -> Iterator[Finding]:
    """Answers that lie beyond the longest input."""
    length = plan.config.batch.sequence_length
    ends = [end for part in look.ends for end in part]
    cut = sum(end > length for end in ends) / max(len(ends), 1)
    longer = sum(size > length for part in look.lengths for size in part) / max(len(ends), 1)
    if not longer or plan.config.data.too_long == "drop":
        return
    wanted = length_that_holds(lambda most: sum(end > most for end in ends) / len(ends), plan)
    longer_ones: list[WayOut] = []
    if wanted > length:
        longer_ones.append((tr("up to {length} tokens", **counted(length=wanted)), {LENGTH: wanted}))
    if cut:
        message = tr(
            "{cut} of the chats exceed {length} tokens: an answer is truncated, so its end is not trained on.",
            cut=percent(cut),
            **counted(length=length),
        )
        drop = tr("skip them"), {"data.too_long": "drop"}
        yield plan.finding(
            "answers_cut", "note" if cut <= NOTABLE_CUT else "warning", LENGTH, message, *longer_ones, drop
        )


# Whether a run may lay its rows end to end (data.packing), and what it says then.

KEY = "data.packing"


def packing_findings(plan: Plan) -> Iterator[Finding]:
    off = tr("pad the rows"), {KEY: False}
    if not plan.config.data.packing or joins_texts(plan.config):
        return
    problems = [
        plan.error("packing_not_possible", KEY, message, off, *ways) for due, message, *ways in _problems(plan) if due
    ]
    if problems:
        yield from problems
        return
    apart = (
        tr("FlashAttention computes each row separately.")
        if plan.config.engine.attention == "flash_attention_2"
        else tr(
            "sdpa computes each token with all tokens of its micro-batch and masks the other rows; "
            "flash_attention_2 does not."
        )
    )
    message = tr("Rows are packed end to end, without padding. {apart}", apart=apart)
    yield plan.note("packed", KEY, message)


def _problems(plan: Plan) -> Iterator[tuple[Any, ...]]:
    """Whether something is in the way, a sentence, and ways out."""
    engine, kind, causal = plan.config.engine, plan.model_type, plan.config.task == "causal-lm"
    # Masks of models that look both ways do not follow positions (create_bidirectional_mask, transformers 5.23).
    yield not causal, tr("Only causal models can pack rows end to end: others would see each other's rows.")
    untried = causal and kind is not None and kind not in TRIED
    yield untried, tr("Packed rows were not tested with models of type {kind}.", kind=kind)
    message = tr(
        "Eager attention stores the scores of every token with all tokens of its micro-batch: packed rows need "
        "sdpa or flash_attention_2."
    )
    yield engine.attention == "eager", message, (tr("sdpa attention"), {ATTENTION: "sdpa"})
    message = tr("With packed rows, torch.compile would recompile at every step.")
    yield engine.compile, message, (tr("without torch.compile"), {COMPILE: False})
    # They hold a part of the weights.
    message = tr("Packed rows were not tested with {strategy}.", strategy=engine.strategy)
    yield engine.strategy in SHARED, message


# What the rows mean for the run: how many, how long, and who loads them.

MOSTLY_CUT = 0.5
"""Of the rows: more than so many cut is hardly meant, and a longer input is offered."""


def data_findings(plan: Plan) -> Iterator[Finding]:
    for judge in (chat_findings, _labels, _rows, _unused, _cut, _grouped, packing_findings, _workers):
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


def _grouped(plan: Plan) -> Iterator[Finding]:
    """What data.group_by_length saves, where the lengths are known."""
    batch, config = plan.batch, plan.config
    known = batch.padded_tokens is not None and batch.padding_waste is not None and batch.drawn_tokens is not None
    if config.data.group_by_length and known and not (joins_texts(config) or config.data.packing):
        message = tr(
            "Rows are grouped by length: {grouped} tokens are computed per step, {waste} of them padding; without "
            "grouping, {plain} and {plain_waste}.",
            **counted(grouped=batch.padded_tokens or 0, plain=batch.drawn_tokens or 0),
            waste=percent(batch.padding_waste or 0.0),
            plain_waste=percent(batch.drawn_waste or 0.0),
        )
        yield plan.note("grouped_by_length", "data.group_by_length", message)


def _workers(plan: Plan) -> Iterator[Finding]:
    key, workers, memory = "data.workers", plan.config.data.workers or 0, plan.memory
    cores, processes = plan.machine.cpu_cores, plan.devices.processes
    total, spare = workers * processes, cores // processes - 1

    def instead(count: int) -> tuple[str, Mapping[str, Any]]:
        return trn("{n} worker", "{n} workers", count), {key: count}

    if total > cores:
        message = trn(
            "{total} data loader workers share {n} core: more workers than cores only cost RAM.",
            "{total} data loader workers share {n} cores: more workers than cores only cost RAM.",
            cores,
            total=total,
        )
        yield plan.warning("workers", key, message, instead(max(0, spare)))
    budget, likely = budget_bytes(plan.machine), memory.host_ram_high_bytes or memory.host_ram_bytes
    fitting = MOST_WORKERS if budget is None else max(0, budget - likely) // (processes * WORKER_BYTES)
    more = min(max(1, min(4, spare)), fitting)
    if plan.devices.device == "cuda" and workers == 0 and plan.machine.ram_total_bytes >= LOW_MEMORY_BYTES and more:
        message = tr("No data loader workers: the GPU waits while rows are read and masked.")
        yield plan.warning("no_workers", key, message, instead(more))


# Whether the run ends in a lifetime, and whether the card would be busy.

YEAR_S = 365.25 * 86400
MONTH_S = 30 * 86400.0
WANTED_S = 14 * 86400.0
"""What a remedy aims at: two weeks."""
MOSTLY = 0.5
"""Of a step: what takes more is what it waits for."""
STEPS = "training.max_steps"


def long_findings(plan: Plan) -> Iterator[Finding]:
    time = plan.time
    if time.total_s is None or time.steps is None or time.total_s < MONTH_S:
        return
    years = time.total_s >= YEAR_S
    sentences = (
        mark("The plan takes months: {steps} steps × {each} is {span}."),
        mark("The plan takes years: {steps} steps × {each} is {span}."),
    )
    each = duration_range(time.step_low_s or 0.0, time.step_high_s or 0.0)
    message = tr(sentences[years], **counted(steps=time.steps), each=each, span=_span(plan))
    yield plan.warning("takes_years" if years else "takes_months", STEPS, message, *_shorter(plan))


def _shorter(plan: Plan) -> Iterator[Remedy]:
    """Fewer steps, and a smaller model of the same family with its own time for the same steps."""
    time, work = plan.time, plan.work
    fewer = _round_down(WANTED_S / time.step_s) if time.step_s else 0
    if fewer >= 100:
        changes: dict[str, Any] = {STEPS: fewer}
        if plan.config.training.warmup >= fewer:
            changes["training.warmup"] = max(1, fewer // 20)
        span = _span(changed(plan, changes))
        if span:
            yield plan.remedy(tr("{fewer} steps: {span}", **counted(fewer=fewer), span=span), changes)
    if work is None or plan.rate is None or time.steps is None or time.total_s is None:
        return
    ranked = []
    for spec, architecture in smaller_than(work):
        is_half = architecture.parameters < work.architecture.parameters / 2
        if is_half and spec.architecture.get("model_type") == work.architecture.model_type:
            likely_s = step_time(replace(work, architecture=architecture), plan.rate).step.times(time.steps).likely
            # The largest that takes at most a hundredth of the time, else the quickest.
            ranked.append((architecture.parameters if likely_s < time.total_s / 100 else -likely_s, spec))
    if ranked:
        _, spec = max(ranked, key=lambda model: model[0])
        name = spec.name
        span = _span(changed(plan, {"model.name": name}, spec))
        if span:
            yield plan.remedy(tr("{name}: {span} for the same steps", name=name, span=span), {"model.name": name})


def _span(then: Plan | None) -> str:
    """The time of a run as its plan has it, with all that a run does beside steps; empty where it is not known."""
    low, high = (then.time.total_low_s, then.time.total_high_s) if then is not None else (None, None)
    return "" if low is None or high is None else duration_range(low, high)


def _round_down(value: float) -> int:
    """To one significant figure: 1,900 -> 1,000, 2,400 -> 2,000."""
    whole = int(value)
    unit: int = 10 ** (len(str(whole)) - 1)
    return whole // unit * unit


def idle_findings(plan: Plan) -> Iterator[Finding]:
    if plan.time.verdict != "idle" or plan.config.mode.kind != "train":
        return
    message, remedies = _waits_for_network(plan), []
    if not message:
        message = tr(
            "The GPU would mostly be idle: this reaches about {share} of its peak. The micro-batch or the model is "
            "too small for it.",
            share=percent(plan.time.fraction_of_peak or 0),
        )
        remedies = [remedy_of(fix, plan) for fix in plan.headroom]
        if not plan.config.engine.compile and can_compile(plan):
            message += after(tr("torch.compile (engine.compile) launches fewer kernels."))
    yield plan.note("idle", "time", message, *remedies)


def _waits_for_network(plan: Plan) -> str:
    """The traffic between machines where it takes most of a slow step, which a larger micro-batch does not change; else ""."""
    time = plan.time
    if time.network_bytes is None or time.network_high_s is None or not time.step_high_s:
        return ""
    if time.network_high_s < MOSTLY * time.step_high_s:
        return ""
    message = tr(
        "The GPU would mostly wait for the network: each step sends {size} out of each machine, which may take "
        "{share} of the step time at {speed} Gbit/s.",
        size=gib(time.network_bytes),
        share=percent(time.network_high_s / time.step_high_s),
        speed=f"{time.network_gbit_s:g}",
    )
    if time.network_assumed:
        message += after(tr("This speed is assumed; set the actual one: planning.network_gbit_s."))
    return message
