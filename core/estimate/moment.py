"""Moment: what is allocated at one point of a run. Both the formulas and the traces speak in moments."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("weights", "gradients", "optimizer", "activations", "logits", "temporary")


@dataclass(frozen=True, slots=True)
class Moment:
    """What is allocated at one point of the step, in bytes by kind."""

    name: str
    parts: dict[str, int]

    @property
    def bytes(self) -> int:
        return sum(self.parts.values())
