"""What a stop costs, in sentences, for the dialog, `runs stop` and `runs show`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainwiz.core.language import mark, tr, trn
from trainwiz.core.plain import plain_text
from trainwiz.tui.figures import duration
from trainwiz.tui.wrapping import sentence_gap

if TYPE_CHECKING:
    from trainwiz.core.run.phase import Phase
    from trainwiz.core.run.state import RunState
    from trainwiz.core.run.stop_cost import StopCost

SHORT_S = 1.0
WORTH_TELLING_S = 10.0
"""Work that is lost, or a save, for less than this is not spoken of."""
LONG_WAIT_S = 120.0
"""A wait for a checkpoint above this is told before somebody waits."""

NOT_BEGUN = mark("The training has not begun: there is nothing to save, and it ends within seconds.")
WAITS_TO_START = mark("It waits before it starts again after a failure: it does not, and ends at once.")
PHASE_SENTENCES: Mapping[Phase, str] = {
    "preparing": NOT_BEGUN,
    "tokenising": NOT_BEGUN,
    "loading": NOT_BEGUN,
    "evaluating": mark("The evaluation under way is left without a result."),
    "generating": mark("The evaluation under way is left without a result."),
    "saving": mark("It is saving right now: that save is finished."),
    "paused": mark("A save waits for room on the disk: without room it ends without a new checkpoint."),
    "finishing": mark("It is writing the final model: that is finished, and the run with it."),
}
"""What a stop means where the training is not just between two micro-batches."""
ENDS_THE_WAIT = frozenset({"preparing", "tokenising", "loading", "paused", "finishing"})
"""Where how long a step takes says nothing about the stop."""


def with_checkpoint_words(cost: StopCost | None, *, stopping: bool = False) -> str:
    """What a stop with a checkpoint does and what it costs."""
    if stopping:
        sentences = [tr("It is asked already: it saves a checkpoint and ends.")]
    else:
        sentences = [tr("With a checkpoint: it saves one and ends; `trainwiz runs resume` goes on from there.")]
    return sentence_gap().join([*sentences, *(wait_sentences(cost) if cost else ())])


def wait_sentences(cost: StopCost) -> list[str]:
    """How long a stop with a checkpoint may take, and why; empty where nothing is known."""
    if cost.waits_to_start:
        return [tr(WAITS_TO_START)]
    said = PHASE_SENTENCES.get(cost.phase) if cost.phase else None
    if said is not None and cost.phase in ENDS_THE_WAIT:
        return [tr(said)]
    sentences = [tr(said)] if said else []
    if cost.wait_s is None:
        return sentences
    wait = duration(max(cost.wait_s, SHORT_S))
    if cost.work == "step" and cost.wait_s >= WORTH_TELLING_S:
        sentences.append(tr("The step under way may take {time}; it is finished before the save.", time=wait))
    else:
        sentences.append(tr("It begins to save within {time}.", time=wait))
    if cost.again_s and cost.again_s > max(cost.wait_s, WORTH_TELLING_S):
        again = duration(cost.again_s)
        sentences.append(tr("The step under way is dropped: up to {time} of work are computed again.", time=again))
    if cost.save_s and cost.save_s >= WORTH_TELLING_S:
        sentences.append(tr("The save takes about {time}.", time=duration(cost.save_s)))
    if cost.patience_s is not None:
        sentences.append(
            tr("What has not ended after {time} is ended by force, saved or not.", time=duration(cost.patience_s))
        )
    return sentences


def is_long(cost: StopCost) -> bool:
    """Whether the wait for the checkpoint is worth a word before it begins."""
    return (cost.wait_s or 0.0) + (cost.save_s or 0.0) >= LONG_WAIT_S


def verified_text(state: RunState) -> str:
    """What the keeper found gone after a stop, as one sentence; empty where it did not look."""
    verified = (state.stop or {}).get("verified")
    text = verified.get("text") if isinstance(verified, dict) else None
    return plain_text(text) if isinstance(text, str) else ""


def now_words(cost: StopCost | None) -> str:
    """What a stop at once loses."""
    if cost is None:
        return tr("Now: it ends at once, without a checkpoint. The complete ones stay, the steps since are lost.")
    if cost.lost_steps is None:
        return tr("Now: it ends at once. No step was logged yet.")
    since = (
        tr("since {checkpoint}", checkpoint=cost.checkpoint)
        if cost.checkpoint
        else tr("all so far: there is no checkpoint yet")
    )
    if not cost.lost_steps:
        return tr("Now: it ends at once and loses nothing ({since}).", since=since)
    return tr("Now: it ends at once and loses {what} ({since}).", what=_lost_words(cost, cost.lost_steps), since=since)


def _lost_words(cost: StopCost, steps: int) -> str:
    lost = trn("{n} step", "{n} steps", steps, n=f"{steps:,}")
    if cost.lost_s is None:
        return lost
    return tr("{steps}, about {time} of work", steps=lost, time=duration(cost.lost_s))
