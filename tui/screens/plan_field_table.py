"""FIELDS: every field of the wizard, in the order of the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwiz.tui.screens.plan_field_data import DATA_FIELDS
from trainwiz.tui.screens.plan_field_model import MODEL_FIELDS
from trainwiz.tui.screens.plan_field_training import TRAINING_FIELDS
from trainwiz.tui.screens.plan_fields import HARDWARE, NAME, OUTPUT_DIR, PROFILE, REVIEW, FieldSpec, Help

if TYPE_CHECKING:
    from trainwiz.core.plan.result import Plan


def has_several_gpus(plan: Plan) -> bool:
    return len(plan.machine.gpus) > 1


FIELDS: tuple[FieldSpec, ...] = (
    FieldSpec(
        id="profile",
        label="Profile",
        step=HARDWARE,
        keys=(PROFILE,),
        kind="choice",
        free_text=False,
        help=Help(
            "A tried set of values for one kind of hardware and one task.",
            "It fills every field below; what you change yourself stays changed.",
            "cpu-demo: a tiny model on sample data, done in about a minute on any machine.",
            "Nothing: profiles can be switched at any time.",
        ),
    ),
    FieldSpec(
        id="gpus",
        label="GPUs",
        step=HARDWARE,
        keys=("engine.gpus",),
        kind="text",
        empty="all",
        when=has_several_gpus,
        help=Help(
            "The cards that train, by index or UUID: 0,1.",
            "Each card computes micro-batches of its own; accumulation is solved again, so that the step stays the same.",
            "Empty: all that are visible.",
            "A card that you leave out is free for something else; the run takes longer.",
        ),
    ),
    *MODEL_FIELDS,
    *DATA_FIELDS,
    *TRAINING_FIELDS,
    FieldSpec(
        id="name",
        label="Name",
        step=REVIEW,
        keys=(NAME,),
        kind="text",
        help=Help(
            "The name of the run, part of its folder's name.",
            "You find the run again by it.",
            "A word for what you try.",
            "Nothing.",
        ),
    ),
    FieldSpec(
        id="folder",
        label="Folder",
        step=REVIEW,
        keys=(OUTPUT_DIR,),
        kind="text",
        help=Help(
            "The run folder: everything about the run is in it.",
            "Another disk may have more room.",
            "Empty: runs/<time>-<name> here. A folder that is not empty is refused.",
            "Disk, as the plan shows.",
        ),
    ),
)

FIELD_BY_ID = {spec.id: spec for spec in FIELDS}


def fields_of(step: int, rare: bool) -> tuple[FieldSpec, ...]:
    """The fields of a step; the rarely changed ones only where `rare` is true."""
    return tuple(spec for spec in FIELDS if spec.step == step and (rare or not spec.rare))


def hidden_fields(step: int, plan: Plan | None) -> int:
    """How many rarely changed fields of a step have something to say to this plan."""
    return sum(spec.rare and spec.step == step and spec.applies(plan) for spec in FIELDS)
