"""What is learnt of chats, and what is doubtful in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from trainwiz.core.data.lengths import trains_on_chats
from trainwiz.core.errors import Finding, Severity
from trainwiz.core.language import mark, tr
from trainwiz.core.plan.result import Plan, WayOut
from trainwiz.core.plan.sizes import LENGTH, ROUND_LENGTHS
from trainwiz.core.plan.words import counted, percent

if TYPE_CHECKING:
    from trainwiz.core.tracing.chats import ChatLook

TEMPLATE, TRAIN_ON = "model.chat_template", "training.train_on"
SOURCE = "data.sources.0"
NOTABLE_CUT = 0.02


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
