"""Words about runs: their states, their metrics, and what a stop costs."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import number, object_in, objects_in, plain_text, text_in
from trainwiz.tui.output import fitted, paint, say
from trainwiz.tui.text import count, duration, sentence_gap

if TYPE_CHECKING:
    from trainwiz.core.launch.actions import StopCost
    from trainwiz.core.run.attempts import Phase
    from trainwiz.core.run.state import RunState


# States: a mark, a colour of the command's output, and one of the screens.


class StatusLook(NamedTuple):
    sign: str
    paint: str
    style: str


STATUS_LOOKS: dict[str, StatusLook] = {
    "prepared": StatusLook("○", "quiet", "$muted"),
    "starting": StatusLook("◌", "note", "$accent"),
    "running": StatusLook("●", "note", "$accent"),
    "quiet": StatusLook("◌", "quiet", "$warning"),
    "stopping": StatusLook("●", "warning", "$warning"),
    "finished": StatusLook("✓", "good", "$success"),
    "failed": StatusLook("✗", "error", "$error"),
    "stopped": StatusLook("■", "warning", "$warning"),
    "lost": StatusLook("?", "error", "$error"),
}
NO_LOOK = StatusLook("●", "note", "$muted")


def look_of(status: str) -> StatusLook:
    """A state may be anything that a file holds."""
    return STATUS_LOOKS.get(status, NO_LOOK)


def painted_status(status: str, words: str) -> str:
    look = look_of(status)
    return paint(f"{look.sign} {words}", look.paint)


def say_runs(rows: Sequence[Sequence[str]], statuses: Sequence[str], dropped: Sequence[int] = ()) -> None:
    """A heading and a line for each run: name, status, step and loss come first. `dropped` as of `fitted`."""
    looks = [None, *map(look_of, statuses)]
    signed = [
        [row[0], f"{look.sign if look else ' '} {row[1]}", *row[2:]] for look, row in zip(looks, rows, strict=True)
    ]
    for look, (name, status, *rest) in zip(looks, fitted(signed, (2, 3), dropped), strict=True):
        say("  ".join([name, paint(status, look.paint) if look else status, *rest]).rstrip())


def steps_of(step: int | None, max_steps: int | None) -> str:
    if step is None:
        return "-"
    return tr("{amount} of {whole}", amount=count(step), whole=count(max_steps)) if max_steps else count(step)


# Names of metrics: which belong together, and in which order they are offered.

FIRST_METRICS = (
    "loss",
    "eval_bleu",
    "eval_f1",
    "eval_perplexity",
    "learning_rate",
    "grad_norm",
    "real_tokens_per_s",
    "tokens_per_s",
    "step_s",
)

HELD_OUT_WORDS = ("eval", "val", "valid", "validation", "test", "dev")
_TRAIN = re.compile(r"(?<![a-z])(train(?:ing)?)(?![a-z])", re.IGNORECASE)
_HELD_OUT = re.compile(rf"(?<![a-z])({'|'.join(HELD_OUT_WORDS)})(?![a-z])", re.IGNORECASE)


def held_out_name(name: str, names: Collection[str]) -> str | None:
    """The metric of held-out rows that is measured as `name` is on training rows; None where there is none.

    "loss" has "eval_loss", "train/acc" has "val/acc", "train_loss_epoch" has "validation_loss_epoch".
    """
    if _HELD_OUT.search(name):
        return None
    head, slash, tail = name.rpartition("/")
    for word in HELD_OUT_WORDS:
        trained = _TRAIN.sub(word, name, count=1)
        # A prefix such as the name of a run stays in front.
        forms = (f"{word}_{name}", f"{word}/{name}", f"{head}{slash}{word}_{tail}") if trained == name else (trained,)
        if found := next((form for form in forms if form in names), None):
            return found
    return None


def held_out_word(name: str) -> str:
    """The word of a held-out metric for a legend: "eval" of "eval_loss"."""
    found = _HELD_OUT.search(name)
    return found.group().lower() if found else "eval"


def ordered_names(names: Iterable[str]) -> list[str]:
    """The telling ones first, then the others as they came; a held-out metric goes with its metric of the training."""
    pool = dict.fromkeys(names)
    paired = {held_out_name(name, pool) for name in pool}

    def rank(name: str) -> float:
        if name in FIRST_METRICS:
            return FIRST_METRICS.index(name)
        # Without "loss" itself another one is first, best of the training.
        stands_in = "loss" in name.lower() and FIRST_METRICS[0] not in pool
        return bool(_HELD_OUT.search(name)) / 2 if stands_in else len(FIRST_METRICS)

    return sorted((name for name in pool if name in FIRST_METRICS or name not in paired), key=rank)


def first_choice(names: Collection[str]) -> str | None:
    """What is plotted when nothing was chosen: a loss of the training where there is one."""
    return next(iter(ordered_names(names)), None)


# How measurements on held-out rows read: the same words in the headless run, `runs show` and the monitor.

EVALUATION_WORDS: tuple[tuple[str, str], ...] = (
    ("eval_loss", mark("loss {value}")),
    ("eval_perplexity", mark("perplexity {value}")),
    ("eval_accuracy", mark("accuracy {value}")),
    ("eval_f1", "F1 {value}"),
    ("eval_bleu", mark("BLEU {value}")),
)
"""Name in metrics.jsonl -> words, in the order of showing."""


def evaluation_parts(values: Mapping[str, Any]) -> list[str]:
    known = [(name, words, number(values.get(name))) for name, words in EVALUATION_WORDS]
    return [tr(words, value=measured(name, value)) for name, words, value in known if value is not None]


def measured(name: str, value: float) -> str:
    if not math.isfinite(value):
        return tr("NaN")
    if name == "eval_accuracy":
        return f"{value * 100:.1f}%"
    if name in ("eval_f1", "eval_precision", "eval_recall"):
        return f"{value:.3f}"
    if name == "eval_perplexity":
        return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
    return f"{value:.1f}" if name == "eval_bleu" else f"{value:.3g}" if abs(value) < 0.1 else f"{value:.2f}"


def engine_problems(engine: Mapping[str, Any]) -> list[str]:
    """What runs otherwise than planned, one sentence each, from the engine record of a run's state."""
    problems = [text for item in objects_in(engine.get("findings")) if (text := text_in(item.get("message")))]
    planned, actual = engine.get("planned"), engine.get("actual")
    if not problems and planned and actual and planned != actual:
        problems = [tr("The engine is {actual}, but {planned} was planned.", actual=actual, planned=planned)]
    return problems


# What a stop costs, in sentences, for the dialog, `runs stop` and `runs show`.

LONG_WAIT_S = 120.0
"""A wait for a checkpoint above this is told before somebody waits."""

NOT_BEGUN = mark("Training has not started: there is nothing to save, and it ends within seconds.")
WAITS_TO_START = mark("It is waiting to restart after a failure. It will not restart and stops immediately.")
PHASE_SENTENCES: Mapping[Phase, str] = {
    "preparing": NOT_BEGUN,
    "tokenising": NOT_BEGUN,
    "loading": NOT_BEGUN,
    "paused": mark("A save is waiting for disk space: without space, it ends without a new checkpoint."),
    "finishing": mark("The final model is being written. It will be completed, and the run finishes with it."),
}
"""What a stop means where how long a step takes says nothing about it."""


def with_checkpoint_words(cost: StopCost | None, *, stopping: bool = False) -> str:
    if stopping:
        said = tr("Stop already requested: it saves a checkpoint and ends.")
    else:
        said = tr("With a checkpoint: it saves one and ends; `trainwiz runs resume` continues from there.")
    return sentence_gap().join(filter(None, [said, wait_words(cost) if cost else ""]))


def wait_words(cost: StopCost) -> str:
    """How long the checkpoint may take at most, or why that is not the question; "" where nothing is known."""
    if cost.waits_to_start:
        return tr(WAITS_TO_START)
    if cost.phase is not None and cost.phase in PHASE_SENTENCES:
        return tr(PHASE_SENTENCES[cost.phase])
    if cost.wait_s is None:
        return ""
    longest_s = cost.wait_s + (cost.save_s or 0.0)
    return tr("Finishing the step and saving may take {time}.", time=duration(max(longest_s, 1.0)))


def is_long(cost: StopCost) -> bool:
    """Whether the wait for the checkpoint is worth a word before it begins."""
    return (cost.wait_s or 0.0) + (cost.save_s or 0.0) >= LONG_WAIT_S


def verified_text(state: RunState) -> str:
    return plain_text(text_in(object_in((state.stop or {}).get("verified")).get("text")) or "")


def now_words(cost: StopCost | None) -> str:
    if cost is None:
        return tr(
            "Now: it stops immediately, without a checkpoint. Complete checkpoints are kept; the steps since are lost."
        )
    if cost.lost_steps is None:
        return tr("Now: it stops immediately. No step has been logged yet.")
    kept = cost.checkpoint
    since = tr("since {checkpoint}", checkpoint=kept) if kept else tr("everything so far: no checkpoint yet")
    lost = trn("{n} step", "{n} steps", cost.lost_steps, n=count(cost.lost_steps))
    if cost.lost_s:
        lost = tr("{steps}, about {time} of work", steps=lost, time=duration(cost.lost_s))
    return tr("Now: it stops immediately and loses {what} ({since}).", what=lost, since=since)
