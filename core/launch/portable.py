"""Paths in a run folder are relative to it: the training runs there, and the folder may travel."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainwiz.core.catalog.hub_cache import is_hub_id
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config import RunConfig
from trainwiz.core.data.samples import sample_path
from trainwiz.core.language import tr
from trainwiz.core.run.folder import DEEPSPEED_JSON

TRAINED_TOKENIZER = "train"
"""The value of model.tokenizer that stands for no file."""


@dataclass(frozen=True, slots=True)
class Needed:
    """Something that a run reads and its folder does not hold."""

    key: str
    """The setting of run.yaml that names it."""
    name: str
    """A path as it stands in run.yaml (relative to the run folder), or a hub id."""
    kind: Literal["path", "hub"]


def relative_to_folder(config: RunConfig, folder: Path) -> RunConfig:
    """A copy whose local paths, until now relative to the working folder, are relative to `folder`.

    An absolute path becomes relative too, unless it shares nothing with the folder but the root of the
    file system: such a place (another disk, a cluster's share) is no nearer to the folder than to any
    other. Names of samples, of the catalogue and of the hub stay as they are. A DeepSpeed file is
    copied into the folder, so that is where it lies.
    """
    copy = config.model_copy(deep=True)
    for source in [*copy.data.sources, *copy.data.validation_sources]:
        if sample_path(source.name) is None:
            source.name = _moved(source.name, folder)
    if copy.model.name not in load_models():
        copy.model.name = _moved(copy.model.name, folder)
    if copy.model.tokenizer not in (None, TRAINED_TOKENIZER):
        copy.model.tokenizer = _moved(str(copy.model.tokenizer), folder)
    if copy.engine.deepspeed_file is not None:
        copy.engine.deepspeed_file = DEEPSPEED_JSON
    return copy


def needed(config: RunConfig, folder: Path) -> tuple[Needed, ...]:
    """What a run reads from outside its folder. `config` is that of run.yaml, its paths relative to `folder`."""
    return tuple(_needed(config, folder))


def travel_notes(config: RunConfig, folder: Path) -> tuple[str, ...]:
    """Sentences for whoever carries the folder to another machine; () when it holds all that it needs."""
    notes: list[str] = []
    wanted = needed(config, folder)
    paths = [one for one in wanted if one.kind == "path"]
    if paths:
        listed = ", ".join(f"{one.name} ({one.key})" for one in paths)
        notes.append(
            tr("To start this folder elsewhere, take along what it reads from outside: {names}.", names=listed)
        )
    hub = [one for one in wanted if one.kind == "hub"]
    if hub:
        listed = ", ".join(f"{one.name} ({one.key})" for one in hub)
        notes.append(tr("The machine that starts it needs these from the hub or in its cache: {names}.", names=listed))
    return tuple(notes)


def _needed(config: RunConfig, folder: Path) -> Iterator[Needed]:
    for group, sources in (("sources", config.data.sources), ("validation_sources", config.data.validation_sources)):
        for number, source in enumerate(sources):
            if sample_path(source.name) is None:
                yield _need(f"data.{group}.{number}.name", source.name, folder)
    model = config.model
    known = load_models().get(model.name)
    if known is not None:
        if model.init == "pretrained" and known.hub_id is not None:
            yield Needed("model.name", known.hub_id, "hub")
    else:
        found = _need("model.name", model.name, folder)
        # The architecture stands in run.yaml: from scratch, only a folder can hold more (a tokenizer).
        if model.init == "pretrained" or (folder / model.name).is_dir():
            yield found
    if model.tokenizer not in (None, TRAINED_TOKENIZER):
        yield _need("model.tokenizer", str(model.tokenizer), folder)


def _need(key: str, name: str, folder: Path) -> Needed:
    return Needed(key, name, "hub" if _is_on_the_hub(name) and not (folder / name).exists() else "path")


def _is_on_the_hub(name: str) -> bool:
    """A name that is not here: a hub id, or a file that is yet to come (`data/train.parquet`)?"""
    from trainwiz.core.data.formats import format_of

    return is_hub_id(name) and format_of(Path(name)) is None


def _moved(name: str, folder: Path) -> str:
    path = Path(name).expanduser()
    if not path.is_absolute() and not path.exists() and _is_on_the_hub(name):
        return name
    # Both sides resolved: "..", taken as text, would lead elsewhere through a symbolic link.
    # Path.resolve() fails for a link that leads to itself, which is what the data's own sentence is about.
    real, start = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    if path.is_absolute() and not _near(real, start):
        return str(path)
    return os.path.relpath(real, start)


def _near(path: Path, folder: Path) -> bool:
    """They share a folder below the root of the file system."""
    return len(Path(os.path.commonpath([path, folder])).parts) > 1
