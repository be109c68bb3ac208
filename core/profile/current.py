"""The profile that a folder uses by default: `profile:` in its .trainwiz.yaml."""

from __future__ import annotations

from pathlib import Path

import yaml
from trainwiz.core.config.yaml_text import parse_yaml, read_yaml
from trainwiz.core.defaults import SETTINGS_FILE
from trainwiz.core.errors import os_reason, usage_error
from trainwiz.core.language import tr
from trainwiz.core.profile.store import load_as_written
from trainwiz.core.run.folder import write_atomic
from trainwiz.core.small_file import read_small


def current_profile(folder: Path) -> str | None:
    """The name in the folder's .trainwiz.yaml, or None. Raises UsageError when the file is broken."""
    path = folder / SETTINGS_FILE
    if not path.is_file():
        return None
    value = read_yaml(path).values.get("profile")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is not None and not isinstance(value, str):
        raise usage_error("bad_value", str(path), tr("{path}: `profile` must be the name of a profile.", path=path))
    return value


def use_profile(name: str, folder: Path) -> Path:
    """Make `name` the default of later commands in `folder`; whatever else is in the file stays as it is.

    Returns the file. Raises UsageError for an unknown profile or a file that cannot be read or written.
    """
    profile = load_as_written(name)
    chosen = str(Path(name).resolve()) if profile.origin == "user" and name.endswith((".yaml", ".yml")) else name
    path = folder / SETTINGS_FILE
    old = read_small(path).decode() if current_profile(folder) is not None or path.is_file() else ""
    try:
        write_atomic(path, _with_profile(old, chosen, path))
    except OSError as error:
        raise usage_error(
            "unwritable", str(path), tr("{path} cannot be written: {reason}.", path=path, reason=os_reason(error))
        ) from None
    return path


def _with_profile(text: str, name: str, path: Path) -> str:
    """`text` with its top-level `profile:` line replaced or added; comments and other keys untouched."""
    line = yaml.safe_dump({"profile": name}, default_flow_style=False, allow_unicode=True).rstrip("\n")
    if not text.strip():
        return f"{line}\n"
    lines = text.splitlines()
    at = parse_yaml(text, path).lines.get("profile")
    if at is None:
        return "\n".join([*lines, line]) + "\n"
    _, comment, rest = lines[at - 1].partition(" #")
    lines[at - 1] = line + comment + rest
    return "\n".join(lines) + "\n"
