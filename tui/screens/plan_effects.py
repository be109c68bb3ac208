"""What the remedies of a plan would bring: each is planned like any other change, and told before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwiz.core.findings import Finding, Remedy
    from trainwiz.core.plan.result import Plan

MAX_REMEDIES = 9
"""As many as there are digits."""


@dataclass(frozen=True, slots=True)
class Effect:
    """A plan in the figures that a remedy is judged by."""

    memory_bytes: int
    verdict: str | None
    tier: str
    """How `memory_bytes` is known: "analytic", "traced" or "measured"."""
    total_low_s: float | None
    total_high_s: float | None

    @classmethod
    def of(cls, plan: Plan) -> Effect:
        memory, time = plan.memory, plan.time
        return cls(memory.device_used_bytes, memory.verdict, memory.tier, time.total_low_s, time.total_high_s)


def numbered_remedies(findings: tuple[Finding, ...]) -> list[Remedy]:
    """The remedies that a digit applies: number 1 is the first of the list. At most nine."""
    return [remedy for finding in findings for remedy in finding.remedies if remedy.changes][:MAX_REMEDIES]


def effect_key(changes: Mapping[str, Any]) -> str:
    """Equal for equal changes."""
    import json  # not for the first frame

    return json.dumps(changes, sort_keys=True, default=str)
