"""Moment: what is allocated at one point of a run. Both the formulas and the traces speak in moments."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainwiz.core.language import mark, tr

KINDS = ("weights", "gradients", "optimizer", "activations", "logits", "temporary")

LAYER = mark("the backward pass of layer {number}")
NUMBERED = re.compile(r"the backward pass of layer (\d+)")


def layer_name(number: int) -> str:
    """The name of the moment at a layer; code compares names, so they are English."""
    return LAYER.format(number=number)


def moment_text(name: str) -> str:
    """The name of a moment as people read it."""
    layer = NUMBERED.fullmatch(name)
    return tr(LAYER, number=layer[1]) if layer else tr(name)


@dataclass(frozen=True, slots=True)
class Moment:
    """What is allocated at one point of the step, in bytes by kind."""

    name: str
    parts: dict[str, int]

    @property
    def bytes(self) -> int:
        return sum(self.parts.values())
