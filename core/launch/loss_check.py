"""Whether two arms of a comparison train alike: the losses of the same rows from the same weights."""

from __future__ import annotations

import math
from collections.abc import Mapping

from trainwiz.core.estimate.workload import Workload
from trainwiz.core.json_text import parse_json
from trainwiz.core.language import tr

FIRST_STEPS = 4
"""Steps whose weights are still nearly those of the start: the rounding of a kernel has not been amplified."""
SAME_FORMAT, OTHER_FORMAT, WITH_DROPOUT = 0.005, 0.03, 0.05
"""Relative difference that rounding explains, of the mean loss over the first steps: of two kernels in fp32, of kernels in half precision
or another format than the plan's, and of models whose dropout two kernels draw in another order."""


def differs(
    base: Mapping[int, float], other: Mapping[int, float], *, same_format: bool, work: Workload | None
) -> tuple[float | None, str]:
    """(relative difference of the mean loss over the first common steps, why that is too much or "").

    `base`, `other`: step -> loss. `same_format`: both compute in fp32.
    """
    steps = sorted(base.keys() & other.keys())[:FIRST_STEPS]
    if not steps:
        return None, ""
    if not all(math.isfinite(other[step]) for step in other):
        return None, tr("its loss is no number")
    first, second = (sum(losses[step] for step in steps) / len(steps) for losses in (base, other))
    if not math.isfinite(first) or first == 0:
        return None, ""
    difference = abs(second - first) / abs(first)
    allowed = SAME_FORMAT if same_format else OTHER_FORMAT
    allowed = max(allowed, WITH_DROPOUT) if work is not None and has_dropout(work) else allowed
    if difference > allowed:
        words = tr("its loss is {other} where the plan's own is {own}", other=f"{second:.4f}", own=f"{first:.4f}")
        return difference, words
    return difference, ""


def has_dropout(work: Workload) -> bool:
    """Whether any rate of the model's config is above 0."""
    if work.lora_dropout or not work.model_config:
        return True
    config = parse_json(work.model_config)
    rates = [
        value for key, value in config.items() if key.endswith(("dropout", "dropout_prob", "dropout_rate", "pdrop"))
    ]
    return any(isinstance(rate, float) and rate > 0 for rate in rates)
