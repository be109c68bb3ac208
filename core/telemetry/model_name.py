"""What model a folder of a training holds, by the settings that transformers and peft save."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainwiz.core.run.folder import read_json


def model_name(folder: Path) -> str | None:
    """The base model by its hub id or path, else its architecture; None where nothing says."""
    folders = [folder, *sorted(folder.glob("checkpoint-*"), reverse=True)[:1]]
    for name, key in (("adapter_config.json", "base_model_name_or_path"), ("config.json", "_name_or_path")):
        for place in folders:
            found = (read_json(place / name) or {}).get(key)
            if isinstance(found, str) and found:
                return _last_parts(found)
    for place in folders:
        config: dict[str, Any] = dict(read_json(place / "config.json") or {})
        architectures = config.get("architectures")
        if isinstance(architectures, list) and architectures and isinstance(architectures[0], str):
            return architectures[0]
        if isinstance(config.get("model_type"), str):
            return str(config["model_type"])
    return None


def _last_parts(name: str) -> str:
    """A hub id as it is; of a path of any system its last part."""
    if name.count("/") <= 1 and "\\" not in name and not name.startswith((".", "/", "~")):
        return name
    return name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] or name
