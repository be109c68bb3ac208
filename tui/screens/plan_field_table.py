"""FIELDS: every field of the wizard, in the order of the screen."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from trainwiz.core.errors import Finding
from trainwiz.core.language import language, mark, tr
from trainwiz.tui.options import OPTIONS, named_by
from trainwiz.tui.screens.plan_field_data import DATA_FIELDS
from trainwiz.tui.screens.plan_field_hardware import HARDWARE_FIELDS
from trainwiz.tui.screens.plan_field_model import ARCHITECTURE_FIELDS, MODEL_FIELDS
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


@lru_cache(maxsize=2)
def _screen_names(language: str) -> dict[str, str]:
    """Key path or option -> the field that shows it, in quotes."""
    names = {key: f"“{tr(spec.label)}”" for spec in FIELDS for key in spec.keys}
    names["data.sources"] = names["data.sources.0.name"]
    flags = {option.flag: names.get(option.key or option.name) for option in OPTIONS}
    return {**names, **{flag: name for flag, name in flags.items() if name}}


@lru_cache(maxsize=512)
def _said(text: str, language: str) -> str:
    return named_by(text, _screen_names(language))


def on_screen(finding: Finding) -> Finding:
    """The finding as the wizard says it: it names fields, not keys or options."""
    remedies = tuple(replace(one, text=_said(one.text, language())) for one in finding.remedies)
    return replace(finding, message=_said(finding.message, language()), remedies=remedies)
