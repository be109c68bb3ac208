"""Moment: what is allocated at one point of a run. Both the formulas and the traces speak in moments."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainwiz.core.language import mark, tr

KINDS = ("weights", "gradients", "optimizer", "activations", "logits", "temporary")

NAMES = (
    mark("the forward pass"),
    mark("the end of the forward pass"),
    mark("the end of the forward pass, with its outputs in fp32"),
    mark("the end of the forward pass, with the loss"),
    mark("the loss"),
    mark("the start of the backward pass"),
    mark("the start of the backward pass, in the loss"),
    mark("the backward pass of the first layer"),
    mark("the backward pass of the other layers"),
    mark("the backward pass of the last layer"),
    mark("the backward pass of the encoder's first layer"),
    mark("the backward pass of the encoder's other layers"),
    mark("the backward pass of the encoder's last layer"),
    mark("the backward pass of the decoder's first layer"),
    mark("the backward pass of the decoder's other layers"),
    mark("the backward pass of the decoder's last layer"),
    mark("the end of the backward pass"),
    mark("the end of the backward pass, at the token table"),
    mark("clipping the gradients"),
    mark("the optimizer step"),
    mark("an evaluation"),
    mark("the logits of an evaluation"),
    mark("reading the prompts in an evaluation"),
    mark("generating text in an evaluation"),
)
"""All that formulas and traces call their moments, beside the layers by number. Code compares them."""
LAYER = re.compile(r"the backward pass of layer (\d+)")


def moment_text(name: str) -> str:
    """The name of a moment as people read it."""
    layer = LAYER.fullmatch(name)
    return tr("the backward pass of layer {number}", number=layer[1]) if layer else tr(name)


@dataclass(frozen=True, slots=True)
class Moment:
    """What is allocated at one point of the step, in bytes by kind."""

    name: str
    parts: dict[str, int]

    @property
    def bytes(self) -> int:
        return sum(self.parts.values())
