"""SETTINGS: every value that a run can be given, by its key, and the order of the wizard's rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

from trainwiz.core.config import settings_keeping, settings_model, settings_training
from trainwiz.core.config.request import RequestSettings
from trainwiz.core.config.setting import DATA, GROUPS, MODEL, RARE_GROUPS, Section, Setting

SECTIONS: Mapping[str, type[Section]] = {
    "": settings_model.RunSection,
    "model": settings_model.ModelSection,
    "data": settings_model.DataSection,
    "batch": settings_model.BatchSection,
    "peft": settings_model.PeftSection,
    "training": settings_training.TrainingSection,
    "engine": settings_training.EngineSection,
    "evaluation": settings_keeping.EvaluationSection,
    "checkpoint": settings_keeping.CheckpointSection,
    "recovery": settings_keeping.RecoverySection,
    "logging": settings_keeping.LoggingSection,
    "planning": settings_keeping.PlanningSection,
    "mode": settings_keeping.ModeSection,
}
"""The sections of a RunConfig, in its order; "" are the keys above them."""

FIRST_SOURCE = "data.sources.0"
SOURCE_LISTS = ("data.sources", "data.validation_sources")
"""Lists of sections; each is one key, and has keys below it: data.sources.0.name."""


STEPS_OF: Mapping[str, int] = {"model": MODEL, "peft": MODEL, "data": DATA, "batch": DATA}
"""Section -> the wizard step of its rows without a group."""


def declared(section: type, prefix: str) -> Iterator[Setting]:
    """The entries of a section, each with its key and its type."""
    entries: dict[str, tuple[Setting, Any]] = {
        f"{prefix}.{name}".lstrip("."): (vars(section)[name], kind) for name, kind in section.__annotations__.items()
    }
    for key, (entry, kind) in entries.items():
        shown = {key: entry.unit, **{other: its.unit for other, (its, _) in entries.items() if its.beside == key}}
        of_section = STEPS_OF.get(prefix.partition(".")[0], entry.step)
        yield replace(
            entry,
            key=key,
            type=kind,
            step=entry.step if entry.group else of_section,
            rare=entry.rare or entry.group in RARE_GROUPS,
            id=entry.id or key.rpartition(".")[2],
            keys=tuple(shown),
            units=tuple(shown.values()) if entry.unit else (),
        )


SETTINGS: Mapping[str, Setting] = {
    entry.key: entry for prefix, section in SECTIONS.items() for entry in declared(section, prefix)
}
SOURCE_SETTINGS: Mapping[str, Setting] = {
    entry.key.rpartition(".")[2]: entry for entry in declared(settings_model.DataSource, FIRST_SOURCE)
}
"""Of one source of data, by their names; their keys are those of the first one."""


REQUEST_SETTINGS = tuple(declared(RequestSettings, ""))


def all_settings() -> Iterator[Setting]:
    """Those of the request, then SETTINGS, with those of the first source in the place of the list."""
    yield from REQUEST_SETTINGS
    for key, entry in SETTINGS.items():
        yield from SOURCE_SETTINGS.values() if key == SOURCE_LISTS[0] else (entry,)


def in_order_of_rows(settings: Iterable[Setting]) -> list[Setting]:
    """Those with a row, by step and group, else as they are declared; `after` moves one behind another one, with those of
    its section that follow."""
    with_row = (entry for entry in settings if entry.label)
    runs = groupby(with_row, lambda entry: (entry.step, entry.group, entry.key.rpartition(".")[0]))
    rows: list[Setting] = []
    for first, *others in sorted((list(run) for _, run in runs), key=lambda run: bool(run[0].after)):
        place = [entry.key for entry in rows].index(first.after) + 1 if first.after else len(rows)
        rows[place:place] = [first, *others]
    return sorted(rows, key=lambda entry: (entry.step, GROUPS.index(entry.group)))
