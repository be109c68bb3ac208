"""Paths in a run folder are relative to it: the training runs there, and the folder may travel."""

from __future__ import annotations

import os
from pathlib import Path

from trainwiz.core.catalog.models import load_models
from trainwiz.core.config import RunConfig
from trainwiz.core.data.samples import sample_path


def relative_to_folder(config: RunConfig, folder: Path) -> RunConfig:
    """A copy whose local paths (data, model, DeepSpeed file), until now relative to the working folder, are relative to `folder`.

    Absolute paths stay: the user meant that very place. Names of samples, of the catalogue and of the
    hub stay as they are.
    """
    copy = config.model_copy(deep=True)
    for source in [*copy.data.sources, *copy.data.validation_sources]:
        if sample_path(source.name) is None:
            source.name = _moved(source.name, folder)
    if copy.model.name not in load_models():
        copy.model.name = _moved(copy.model.name, folder)
    if copy.engine.deepspeed_file is not None:
        copy.engine.deepspeed_file = _moved(copy.engine.deepspeed_file, folder)
    return copy


def _moved(name: str, folder: Path) -> str:
    path = Path(name).expanduser()
    if path.is_absolute():
        return str(path)
    if not path.exists():
        return name
    # Both sides resolved: "..", taken as text, would lead elsewhere through a symbolic link.
    return os.path.relpath(path.resolve(), folder.resolve())
