"""Values of a RunConfig as arguments of the command. Imports nothing heavy: the keeper of a run uses it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

OWN_OPTIONS: Mapping[str, str] = {"model.name": "--model", "data.sources.0.name": "--dataset", "task": "--task"}
"""Keys with an option of their own, without which the demo would be meant."""
_OF_THE_COMMAND = ("profile", "name", "mode.")
"""Keys that the command says with options of their own."""


def set_words(values: Mapping[str, Any]) -> list[str]:
    """key path -> value as arguments: `--set`, but --model, --dataset and --task, without which the demo would be meant."""
    words: list[str] = []
    for key, value in values.items():
        if key in OWN_OPTIONS and value:
            words += [OWN_OPTIONS[key], str(value)]
        elif not key.startswith(_OF_THE_COMMAND):
            words += ["--set", f"{key}={_yaml(value)}"]
    return words


def not_said_twice(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Without the keys of which a whole section is in `values` too: data.sources.0.name beside data.sources."""
    return {
        key: value
        for key, value in values.items()
        if key in changes or not any(key.startswith(f"{other}.") for other in values)
    }


def _yaml(value: Any) -> str:
    """A value as `--set` reads it back: JSON is YAML, and a plain word stays plain."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return ",".join(value)
    if isinstance(value, list):
        value = [item.model_dump(exclude_defaults=True) if hasattr(item, "model_dump") else item for item in value]
    return json.dumps(value)
