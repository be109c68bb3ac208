"""ModelSpec: one model, as its architecture config, so that planning needs no network and no weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trainwiz.core.config.values import Task


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model known by its architecture."""

    name: str
    architecture: dict[str, Any]
    """The Hugging Face config.json as a dict (has "model_type" and "architectures")."""
    task: Task
    description: str = ""
    """One line for a list; empty for a model that is not in the catalogue."""
    hub_id: str | None = None
    gated: bool = False
    """The hub hands its files out only to accounts that accepted a licence."""
    license: str | None = None
    """The name of its licence as its page on the hub has it; None where the catalogue does not know."""
    tokenizer: str | None = None
    """ "esm" for the built-in protein alphabet, else a hub id or folder; None: comes with `path` or is trained on the data."""
    smallest_sibling: str | None = None
    """Catalogue name of the model that --smoke uses."""
    source: Literal["catalogue", "hub", "folder", "config"] = "catalogue"
    path: Path | None = None
    has_weights: bool = False
    """Weights are here and can be loaded without a network."""
    unavailable: dict[str, str] = field(default_factory=dict)
