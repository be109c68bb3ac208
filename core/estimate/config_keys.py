"""Reading the keys of a Hugging Face architecture config, which name the same thing in many ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.estimate.architecture import Activation

_TANH_UNFUSED = {"gelu_new", "gelu_fast", "gelu_accurate"}


LARGEST = 2**40
"""No size of a model is above this; figures made of larger ones would leave the range of a float."""


class MissingKeyError(Exception):
    """A config lacks a key that its family has no default for."""


def number(config: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    """The first key that is there, as a whole number; MissingKeyError without one and without a default,
    TypeError, ValueError or OverflowError for what is no number of a sensible size."""
    for name in names:
        if config.get(name) is not None:
            value = int(config[name])
            if abs(value) > LARGEST:
                raise ValueError(f"{name} is too large")
            return value
    if default is None:
        raise MissingKeyError(" or ".join(names))
    return default


def activation_of(name: Any, default: str = "gelu") -> Activation:
    """Whether transformers runs the activation function as one kernel."""
    name = str(name or default)
    if name in _TANH_UNFUSED:
        return "tanh_unfused"
    return "relu" if name == "relu" else "fused"


def dropout_of(config: Mapping[str, Any], *names: str, default: float = 0.1) -> bool:
    """Whether a dropout is active; `default` is the library's own."""
    for name in names:
        if config.get(name) is not None:
            return float(config[name]) > 0
    return default > 0
