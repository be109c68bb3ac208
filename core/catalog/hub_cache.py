"""The local Hugging Face cache, read without importing huggingface_hub and without a network."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from trainwiz.core.small_file import read_small


def is_hub_id(name: str) -> bool:
    """`owner/name`, or one word, in the characters that the hub allows."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", name) is not None and ".." not in name


def hub_cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where Hugging Face keeps what it downloaded (HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, in its own order)."""
    variables = os.environ if environment is None else environment
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if variables.get(variable):
            return Path(variables[variable]).expanduser()
    home = variables.get("HF_HOME")
    if home:
        return Path(home).expanduser() / "hub"
    return Path(variables.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface" / "hub"


def cached_model_folder(hub_id: str) -> Path | None:
    """The snapshot of a model that has its config.json here: the one of `main`, else the newest."""
    return _cached_folder("models", hub_id, "config.json")


def _cached_folder(kind: str, hub_id: str, marker: str) -> Path | None:
    if not is_hub_id(hub_id):
        return None
    root = hub_cache_folder() / f"{kind}--{hub_id.replace('/', '--')}"
    try:
        main = root / "snapshots" / read_small(root / "refs" / "main").decode().strip()
    except (OSError, UnicodeDecodeError):
        main = None
    if main is not None and (main / marker).is_file():
        return main
    snapshots = [path for path in (root / "snapshots").glob("*") if (path / marker).is_file()]
    return max(snapshots, key=lambda path: path.stat().st_mtime, default=None)


def is_offline(environment: Mapping[str, str] | None = None) -> bool:
    """The user has switched the network off for Hugging Face (HF_HUB_OFFLINE)."""
    variables = os.environ if environment is None else environment
    return variables.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def hub_endpoint(environment: Mapping[str, str] | None = None) -> str:
    """The hub's address, or that of the mirror in HF_ENDPOINT; without a slash at the end."""
    variables = os.environ if environment is None else environment
    return (variables.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def hub_token(environment: Mapping[str, str] | None = None) -> str | None:
    """HF_TOKEN, else what `hf auth login` left beside the cache; None without an account."""
    variables = os.environ if environment is None else environment
    if variables.get("HF_TOKEN"):
        return variables["HF_TOKEN"].strip()
    home = variables.get("HF_HOME")
    folder = Path(home) if home else Path(variables.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    path = Path(variables.get("HF_TOKEN_PATH") or folder / "token").expanduser()
    try:
        return read_small(path).decode().strip() or None
    except (OSError, UnicodeDecodeError):
        return None
