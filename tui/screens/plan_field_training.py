"""TRAINING_FIELDS: the goal first, then how it is done and measured, then what is rarely changed."""

from __future__ import annotations

from trainwiz.tui.screens.plan_field_device import DEVICE_FIELDS
from trainwiz.tui.screens.plan_field_engine import ENGINE_FIELDS
from trainwiz.tui.screens.plan_field_evaluation import EVALUATION_FIELDS
from trainwiz.tui.screens.plan_field_goal import GOAL_FIELDS
from trainwiz.tui.screens.plan_field_keeping import KEEPING_FIELDS
from trainwiz.tui.screens.plan_field_loading import LOADING_FIELDS
from trainwiz.tui.screens.plan_field_optimizer import OPTIMIZER_FIELDS
from trainwiz.tui.screens.plan_field_recovery import RECOVERY_FIELDS
from trainwiz.tui.screens.plan_fields import FieldSpec

TRAINING_FIELDS: tuple[FieldSpec, ...] = (
    *GOAL_FIELDS,
    *ENGINE_FIELDS,
    *EVALUATION_FIELDS,
    *OPTIMIZER_FIELDS,
    *DEVICE_FIELDS,
    *LOADING_FIELDS,
    *RECOVERY_FIELDS,
    *KEEPING_FIELDS,
)
