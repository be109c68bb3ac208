"""SETTINGS: every value that a run can be given, by its key, and the order of the wizard's rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from trainwiz.core.config import settings_keeping, settings_model, settings_training
from trainwiz.core.config.request import RequestSettings
from trainwiz.core.config.setting import GROUPS, Section, Setting

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


def declared(section: type, prefix: str) -> Iterator[Setting]:
    """The entries of a section, each with its key and its type."""
    entries: dict[str, Setting] = {
        f"{prefix}.{name}".lstrip("."): vars(section)[name] for name in section.__annotations__
    }
    for (key, entry), kind in zip(entries.items(), section.__annotations__.values(), strict=True):
        beside = {other: its.unit for other, its in entries.items() if its.beside == key}
        shown = {key: entry.unit, **beside}
        units = tuple(shown.values()) if entry.unit else ()
        yield replace(entry, key=key, type=kind, id=entry.id or key.rpartition(".")[2], keys=tuple(shown), units=units)


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


def in_order_of_rows(settings: Sequence[Setting]) -> list[Setting]:
    """Those with a row, by step and group. A section's settings stand together, behind what the first names by `after`."""
    runs: dict[tuple[str, str], list[Setting]] = {}
    for entry in settings:
        if entry.label:
            runs.setdefault((f"{entry.step}{entry.group}", entry.key.rpartition(".")[0]), []).append(entry)
    rows = [entry for run in runs.values() if not run[0].after for entry in run]
    for run in runs.values():
        if run[0].after:
            at = next(place for place, entry in enumerate(rows) if entry.key == run[0].after)
            rows[at + 1 : at + 1] = run
    return sorted(rows, key=lambda entry: (entry.step, GROUPS.index(entry.group)))
