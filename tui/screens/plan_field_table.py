"""FIELDS: every field of the wizard, in the order of the screen."""

from __future__ import annotations

from trainwiz.core.language import mark
from trainwiz.tui.screens.plan_field_architecture import ARCHITECTURE_FIELDS
from trainwiz.tui.screens.plan_field_data import DATA_FIELDS
from trainwiz.tui.screens.plan_field_hardware import HARDWARE_FIELDS
from trainwiz.tui.screens.plan_field_model import MODEL_FIELDS
from trainwiz.tui.screens.plan_field_training import TRAINING_FIELDS
from trainwiz.tui.screens.plan_fields import NAME, OUTPUT_DIR, REVIEW, FieldSpec, Help

FIELDS: tuple[FieldSpec, ...] = (
    *HARDWARE_FIELDS,
    *MODEL_FIELDS,
    *ARCHITECTURE_FIELDS,
    *DATA_FIELDS,
    *TRAINING_FIELDS,
    FieldSpec(
        id="name",
        label=mark("Name"),
        step=REVIEW,
        keys=(NAME,),
        kind="text",
        help=Help(
            mark("The name of the run, part of its folder's name."),
            mark("You find the run again by it."),
            mark("A word for what you try."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="folder",
        label=mark("Folder"),
        step=REVIEW,
        keys=(OUTPUT_DIR,),
        kind="text",
        help=Help(
            mark("The run folder: everything about the run is in it."),
            mark("Another disk may have more room."),
            mark("Empty: runs/<time>-<name> here. A folder that is not empty is refused."),
            mark("Disk, as the plan shows."),
        ),
    ),
)

FIELD_BY_ID = {spec.id: spec for spec in FIELDS}
