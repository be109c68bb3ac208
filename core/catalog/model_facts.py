"""ModelFacts: what a person wants to know of a model beside its architecture: bytes on disk, where its weights are, its licence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from trainwiz.core.catalog.hub_cache import cached_model_folder
from trainwiz.core.catalog.hub_model import PICKLES, SAFETENSORS, HubModel, ask_hub
from trainwiz.core.catalog.model import ModelSpec
from trainwiz.core.small_file import open_file

LONGEST_HEAD = 65_536
"""Bytes of a README.md that are searched: the block in front of it is far shorter."""
_BLOCK = re.compile(r"\A\s*---\s*\n(.*?)\n---\s*(?:\n|\Z)", re.DOTALL)
_LICENCE = re.compile(r"^license(_name)?\s*:\s*[\"']?([\w.+-]+)[\"']?\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is not known is None."""

    weights_bytes: int | None = None
    """Of the weight files that are here."""
    weights_folder: Path | None = None
    """Where they are."""
    download_bytes: int | None = None
    """Of the weight files that the hub has, where they are not here and the hub was asked."""
    license: str | None = None


def read_model_facts(spec: ModelSpec) -> ModelFacts:
    """Reads the folder of the model; of the hub only what it has said already. Never raises."""
    folder = spec.path
    if folder is None and spec.hub_id is not None:
        folder = cached_model_folder(spec.hub_id)
    weights = _weights_bytes(folder) if folder is not None else None
    # A model whose config came from the hub: its answer is remembered, and there is no second question.
    answer = ask_hub(spec.hub_id) if spec.source == "hub" and spec.path is None and spec.hub_id else None
    return ModelFacts(
        weights_bytes=weights,
        weights_folder=folder if weights is not None else None,
        download_bytes=_download_bytes(answer) if answer is not None and weights is None else None,
        license=(_readme_licence(folder) if folder is not None else None) or spec.license or _hub_licence(answer),
    )


def _weights_bytes(folder: Path) -> int | None:
    """Of the safetensors, or where there are none of torch's own files: both hold the same weights."""
    try:
        sizes = {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
    except OSError:
        return None
    for pattern in (SAFETENSORS, PICKLES):
        found = [size for name, size in sizes.items() if pattern.fullmatch(name)]
        if found:
            return sum(found)
    return None


def _download_bytes(answer: HubModel) -> int | None:
    files = answer.files(SAFETENSORS) or answer.files(PICKLES)
    return sum(files.values()) or None


def _readme_licence(folder: Path) -> str | None:
    """`license:` of the block in front of README.md; "other" gives way to its `license_name:`."""
    try:
        with open_file(folder / "README.md") as file:
            head = file.read(LONGEST_HEAD).decode("utf-8", "replace")
    except OSError:
        return None
    block = _BLOCK.match(head)
    named = {bool(suffix): name for suffix, name in _LICENCE.findall(block.group(1))} if block else {}
    own = named.get(False)
    return named.get(True, own) if own in (None, "other") else own


def _hub_licence(answer: HubModel | None) -> str | None:
    return answer.license if answer is not None else None
