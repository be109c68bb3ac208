"""The fields of one step. Those of the first step need no other table, and the first frame waits for none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainwiz.tui.screens.plan_field_hardware import HARDWARE_FIELDS
from trainwiz.tui.screens.plan_fields import HARDWARE, FieldSpec

if TYPE_CHECKING:
    from trainwiz.core.plan.result import Plan


def _all_of(step: int) -> Iterable[FieldSpec]:
    if step == HARDWARE:
        return HARDWARE_FIELDS
    from trainwiz.tui.screens.plan_field_table import FIELDS

    return (spec for spec in FIELDS if spec.step == step)


def fields_of(step: int, rare: bool) -> tuple[FieldSpec, ...]:
    """The fields of a step; the rarely changed ones only where `rare` is true."""
    return tuple(spec for spec in _all_of(step) if rare or not spec.rare)


def hidden_fields(step: int, plan: Plan | None) -> int:
    """How many rarely changed fields of a step have something to say to this plan."""
    return sum(spec.rare and spec.applies(plan) for spec in _all_of(step))


def field_of(field_id: str) -> FieldSpec | None:
    """The field with this id."""
    from trainwiz.tui.screens.plan_field_table import FIELD_BY_ID

    return FIELD_BY_ID.get(field_id)
