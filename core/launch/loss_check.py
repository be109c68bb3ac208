"""Whether two arms of a comparison train alike: losses and gradients of the same rows from the same weights.

The loss of random weights says little of how it is computed: esm2-8m without its attention mask has another one by 3e-5,
and a gradient whose norm is another by 9 %.
"""

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
SAME_GRADIENT, OTHER_GRADIENT, DROPPED_GRADIENT = 0.005, 0.05, 0.2
"""The same of the gradient's norm: assumptions, on the wide side (esm2-tiny: 1e-6 between kernels in fp32, 0.2 % in bf16)."""


def differs(
    base: Mapping[int, float], other: Mapping[int, float], *, same_format: bool, work: Workload | None
) -> tuple[float | None, str]:
    """(relative difference of the mean loss over the first common steps, why that is too much or "").

    `base`, `other`: step -> loss. `same_format`: both compute in fp32.
    """
    if not all(math.isfinite(other[step]) for step in other):
        return None, tr("its loss is no number")
    first, second, difference = _means(base, other)
    allowed = SAME_FORMAT if same_format else OTHER_FORMAT
    allowed = max(allowed, WITH_DROPOUT) if work is not None and has_dropout(work) else allowed
    if difference is not None and difference > allowed:
        words = tr("its loss is {other} where the plan's own is {own}", other=f"{second:.4f}", own=f"{first:.4f}")
        return difference, words
    return difference, ""


def learns_otherwise(
    base: Mapping[int, float], other: Mapping[int, float], *, same_format: bool, work: Workload | None
) -> str:
    """Why the norms of the gradients (step -> norm, as far as they are known) differ by too much; "" where they do not."""
    first, second, difference = _means(base, other)
    allowed = SAME_GRADIENT if same_format else OTHER_GRADIENT
    allowed = max(allowed, DROPPED_GRADIENT) if work is not None and has_dropout(work) else allowed
    if difference is None or difference <= allowed:
        return ""
    return tr(
        "its gradient has the norm {other} where the plan's own has {own}", other=f"{second:.4g}", own=f"{first:.4g}"
    )


def _means(base: Mapping[int, float], other: Mapping[int, float]) -> tuple[float, float, float | None]:
    """Both means over the first common steps and their relative difference; None where there is nothing to compare with."""
    steps = sorted(base.keys() & other.keys())[:FIRST_STEPS]
    first, second = (sum(values[step] for step in steps) / max(1, len(steps)) for values in (base, other))
    known = bool(steps) and math.isfinite(first) and first != 0
    return first, second, abs(second - first) / abs(first) if known else None


def has_dropout(work: Workload) -> bool:
    """Whether any rate of the model's config is above 0."""
    if work.lora_dropout or not work.model_config:
        return True
    config = parse_json(work.model_config)
    rates = [
        value for key, value in config.items() if key.endswith(("dropout", "dropout_prob", "dropout_rate", "pdrop"))
    ]
    return any(isinstance(rate, float) and rate > 0 for rate in rates)
