"""Paths as people type them, and as a field writes them. Pure but for the folders that are asked for."""

from __future__ import annotations

import os
from pathlib import Path

from trainwiz.core.language import tr


def first_folder(start: str | Path, here: Path) -> tuple[Path, str]:
    """The folder to open and the entry in it to stand on, for what a field holds now; `here` where that is no path."""
    if not str(start).strip():
        return here, ""
    try:
        path = here / Path(start).expanduser()
        if path.is_dir():
            return path, ""
        if path.is_file():
            return path.parent, path.name
    except (OSError, RuntimeError, ValueError):
        pass
    return here, ""


def typed_parts(text: str, base: Path) -> tuple[Path, str]:
    """(folder that a typed text names, what narrows its list). A relative path starts from `base`."""
    text = text.strip()
    if "\0" in text:
        return base, text.replace("\0", "")
    if text == "~" or text.startswith("~/"):
        try:
            text = str(Path("~").expanduser()) + (text[1:] or "/")
        except RuntimeError:
            return base, text
    head, slash, name = text.rpartition("/")
    if not slash:
        return base, text
    return Path(os.path.normpath(base / (head or "/"))), name


def unusable_name(name: str) -> str:
    """Why a path with this name could not be written into a config and read back; empty when it can."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return tr("The name of this file is not UTF-8; rename it first.")
    if name != name.strip() or not name.isprintable():
        return tr("The name begins or ends with a blank, or holds letters that cannot be seen; rename it first.")
    return ""


def path_text(path: Path, here: Path) -> str:
    """The path as a field shows it: from the folder `here` where it lies in it, else in full."""
    try:
        inside = path.relative_to(here)
    except ValueError:
        return str(path)
    return f"./{inside}" if len(inside.parts) == 1 and inside.suffix == "" else str(inside)
