"""What reading rows while training takes on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainwiz.core.data.formats import format_of

INDEX_BYTES_PER_ROW = 2 * 4 + 2 * 2 * 8
"""Lengths of both sides, and the places of both; a parquet file has no places, a line of text has one."""
TOKEN_BYTES = 4
"""Of texts that are joined: their tokens are written once."""


def index_bytes(files: Sequence[Path], kind: str | None, rows: int, text_bytes: int) -> int:
    """At most so much beside the run for streamed rows of these files, which hold `text_bytes` of texts."""
    sizes = [(path, path.stat().st_size) for path in files if path.is_file()]
    copied = sum(size for path, size in sizes if may_be_copied(path, kind))
    share = copied / max(sum(size for _, size in sizes), 1)
    return rows * INDEX_BYTES_PER_ROW + int(share * text_bytes)


def may_be_copied(path: Path, kind: str | None) -> bool:
    """Whether rows may be told only by what stands before them, as far as the name says: quotes, packing, arrays."""
    return path.name.endswith((".gz", ".json")) or (kind or format_of(path)) == "csv"
