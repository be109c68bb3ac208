"""From JSON values of another process or a file to a TraceAnswer, checked: neither is trusted to be whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from trainwiz.core.estimate.moment import KINDS, Moment
from trainwiz.core.plain import plain_text
from trainwiz.core.tracing.request import TraceTier
from trainwiz.core.tracing.result import ProblemCode, TraceProblem, TraceResult

LONGEST_MESSAGE = 400
MOST_COUNT, MOST_RATE = 1 << 60, 1e30
"""Bytes or parameters; floating-point operations. More is no trace, and arithmetic with it may overflow."""


def result_of(values: Any) -> TraceResult:
    """ValueError for anything that is no trace."""
    if not isinstance(values, Mapping):
        raise ValueError("no trace: not an object")
    try:
        result = TraceResult.from_json(dict(values))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"no trace: {error}") from None
    counts = (result.parameters, result.trainable_parameters, result.kernels)
    rates = (result.flops, result.moved_bytes, result.seconds)
    whole = (
        result.tier in get_args(TraceTier)
        and bool(result.training)
        and all(_is_moment(moment) for moment in (*result.training, *result.evaluation))
        and all(_is_count(count) for count in counts)
        and (result.reserved_bytes is None or _is_count(result.reserved_bytes))
        and all(isinstance(rate, int | float) and 0 <= rate < MOST_RATE for rate in rates)
        and isinstance(result.note, str)
        and isinstance(result.versions, dict)
    )
    if not whole:
        raise ValueError("no trace: values of the wrong kind")
    return result


def problem_of(values: Any) -> TraceProblem:
    """ValueError for anything that is no problem. The message becomes one harmless line."""
    if not isinstance(values, Mapping):
        raise ValueError("no problem: not an object")
    message = values.get("message")
    known: dict[Any, ProblemCode] = {code: code for code in get_args(ProblemCode)}
    code = known.get(str(values.get("code")))
    if code is None or not isinstance(message, str) or not message:
        raise ValueError("no problem: values of the wrong kind")
    return TraceProblem(code, plain_text(message, LONGEST_MESSAGE))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_COUNT


def _is_moment(moment: Moment) -> bool:
    if not isinstance(moment.name, str) or not isinstance(moment.parts, dict):
        return False
    return all(kind in KINDS and _is_count(size) for kind, size in moment.parts.items())
