"""What a trace depends on besides its request: versions of libraries and of the traced code. Without importing either."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path

from trainwiz.core.small_file import read_small

LIBRARIES = ("torch", "transformers", "accelerate", "peft")
TRACED_CODE = ("estimate/trace", "training")
"""Folders of trainwiz.core: the tracer, and the training that it traces."""
FORMAT = "1"
"""Of what stands in the cache."""


@cache
def trace_versions() -> dict[str, str]:
    """Name -> version, "" for what is not installed. A trace made with other ones is not used."""
    return {**{name: _version(name) for name in LIBRARIES}, "code": _code_digest(), "format": FORMAT}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except (metadata.PackageNotFoundError, OSError):
        return ""


def _code_digest() -> str:
    """Of the sources themselves: an editable install changes without a new version."""
    core = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256(_version("trainwiz").encode())
    for folder in TRACED_CODE:
        for file in sorted((core / folder).glob("*.py")):
            try:
                digest.update(file.name.encode() + b"\0" + read_small(file))
            except OSError:
                continue
    return digest.hexdigest()[:16]
