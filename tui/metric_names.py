"""Names of metrics: which belong together, and in which order they are offered."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

FIRST_METRICS = (
    "loss",
    "eval_bleu",
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
    if found := _TRAIN.search(name):
        candidates = [name[: found.start()] + word + name[found.end() :] for word in HELD_OUT_WORDS]
    else:
        candidates = [f"{word}{mark}{name}" for word in HELD_OUT_WORDS for mark in "_/"]
        # A prefix such as the name of a run stays in front.
        head, slash, tail = name.rpartition("/")
        candidates += [f"{head}{slash}{word}_{tail}" for word in HELD_OUT_WORDS if slash]
    return next((candidate for candidate in candidates if candidate in names), None)


def held_out_word(name: str) -> str:
    """The word of a held-out metric for a legend: "eval" of "eval_loss"."""
    found = _HELD_OUT.search(name)
    return found.group().lower() if found else "eval"


def first_choice(names: Collection[str]) -> str | None:
    """What is plotted when nothing was chosen: a loss of the training where there is one."""
    if FIRST_METRICS[0] in names:
        return FIRST_METRICS[0]
    losses = [name for name in names if "loss" in name.lower()]
    trained = [name for name in losses if not _HELD_OUT.search(name)]
    known = [name for name in FIRST_METRICS if name in names]
    others = [name for name in names if not _HELD_OUT.search(name)]
    return next(iter([*trained, *losses, *known, *others, *names]), None)


def ordered_names(names: Iterable[str]) -> list[str]:
    """The telling ones first, then the others as they came; a held-out metric goes with its metric of the training."""
    known = list(names)
    pool = set(known)
    paired = {pair for name in known if (pair := held_out_name(name, pool)) is not None}
    first = [name for name in FIRST_METRICS if name in pool]
    return first + [name for name in known if name not in first and name not in paired]
