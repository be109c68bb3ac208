"""Small data files of every format."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.data.summary import DataSummary, summarize_data
from trainwiz.core.errors import UsageError

TURNS = [("system", "Be short."), ("user", "Hello"), ("assistant", "Hi.")]
MESSAGES = [{"role": role, "content": content} for role, content in TURNS]
PROTEINS = ["MKTAYIAKQR", "GAVLIMFWP", "STCYNQDEKRH", "MMMM"]


def parquet(path: Path, row_group_size: int | None = None, **columns: list[object]) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return path


def fasta_text(sequences: list[str] = PROTEINS) -> str:
    """Each sequence over two lines, as files from databases are."""
    return "".join(f">p{i} protein {i}\n{s[:5]}\n{s[5:]}\n" for i, s in enumerate(sequences))


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def rows_in(path: Path, rows: list[Any]) -> Path:
    """Objects in the form that the name ends with: parquet, one JSON array, or a line each."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=3)
        return path
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    return write(path, json.dumps(rows) if path.suffix == ".json" else "\n".join(lines))


def config_for(*paths: Path | str, **source: object) -> RunConfig:
    sources = [{"name": str(path), **source} for path in paths]
    return RunConfig.model_validate({"data": {"sources": sources, "validation_rows": 0}})


def summary_of(*paths: Path | str, **source: object) -> DataSummary:
    return summarize_data(config_for(*paths, **source))


def refused(config: RunConfig) -> list[str]:
    """What the plan says is wrong with the data, in one line each."""
    with pytest.raises(UsageError) as caught:
        summarize_data(config)
    messages = [finding.message for finding in caught.value.findings]
    assert not [one for one in messages if "\n" in one or "Traceback" in one]
    return messages


def config_of(task: str, *sources: Path | str | dict[str, object], **data: object) -> RunConfig:
    """A config whose sources are paths, or dicts of their settings."""
    named = [one if isinstance(one, dict) else {"name": str(one)} for one in sources]
    return RunConfig.model_validate({"task": task, "data": {"sources": named, **data}})
