"""Data with what real files have: NaN in a column, missing values, rows cut off, bytes that are no text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

PROTEINS = ["MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVKALPD"[: 30 + k % 30] for k in range(400)]


def _parquet(path: Path, values: list[object]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"sequence": values}), path)


def nan_column(folder: Path) -> Path:
    path = folder / "nan.parquet"
    _parquet(path, [float("nan")] * len(PROTEINS))
    return path


def missing_values(folder: Path) -> Path:
    path = folder / "missing.parquet"
    _parquet(path, [None if k % 3 == 0 else protein for k, protein in enumerate(PROTEINS)])
    return path


def nan_cells(folder: Path) -> Path:
    path = folder / "nan.csv"
    rows = ["NaN" if k % 4 == 0 else "" if k % 4 == 1 else protein for k, protein in enumerate(PROTEINS)]
    path.write_text("sequence\n" + "\n".join(rows) + "\n")
    return path


def cut_parquet(folder: Path) -> Path:
    path = folder / "cut.parquet"
    _parquet(path, list(PROTEINS))
    path.write_bytes(path.read_bytes()[:-40])
    return path


def garbage_lines(folder: Path) -> Path:
    path = folder / "garbage.jsonl"
    rows = [json.dumps({"sequence": protein}) for protein in PROTEINS]
    rows[200] = '{"sequence": "MKT'
    rows[300] = '{"sequence": NaN}'
    path.write_text("\n".join(rows))
    return path


def not_text(folder: Path) -> Path:
    path = folder / "bytes.fasta"
    path.write_bytes(b">one\n" + bytes(range(128, 256)) * 40 + b"\n>two\nMKT\x00AY\n")
    return path


def empty_file(folder: Path) -> Path:
    path = folder / "empty.jsonl"
    path.write_text("")
    return path


BROKEN_DATA: dict[str, Callable[[Path], Path]] = {
    "a column of NaN": nan_column,
    "missing values": missing_values,
    "NaN and empty cells": nan_cells,
    "a parquet file that is cut off": cut_parquet,
    "lines that are no JSON": garbage_lines,
    "bytes that are no text": not_text,
    "an empty file": empty_file,
}
