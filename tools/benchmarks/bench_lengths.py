"""Lengths of ten million rows, the longest first: how long the sample takes, and how far its mean and its count are off.

A sorted file is the hard case, for its first rows stand for nothing. Within a row group of a parquet file there is no
jumping ahead, so the groups of a sorted one must not be huge: here 100,000 rows.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from trainwiz.core.config import RunConfig
from trainwiz.core.data.proteins import SPECIAL_TOKENS
from trainwiz.core.data.summary import DataSummary, summarize_data

from tools.benchmarks.measure import Result

ROWS, WRITTEN_ROWS = 10_000_000, 100_000
"""Each row that is made is written a hundred times in a row."""
LIMIT_S, LIMIT_ROWS = 1.0, 0.05
LIMIT_MEAN = {".parquet": 0.1}
"""Of a sorted parquet file the beginning of each group is read; 0.05 for text, of which every place can be."""
LETTERS = np.frombuffer(b"LAGVSERTIDPKQNFYMHWC", np.uint8)


def run(repeats: int = 5) -> list[Result]:
    texts = _texts()
    mean = float(np.mean([len(text) for text in texts])) + SPECIAL_TOKENS
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("parquet", "jsonl", "txt", "fasta"):
            path = Path(folder) / f"rows.{kind}"
            _write(path, texts)
            results += _measured(path, mean, repeats)
            path.unlink()
    return results


def _measured(path: Path, mean: float, repeats: int) -> list[Result]:
    config = RunConfig.model_validate({"data": {"sources": [{"name": str(path)}], "validation_rows": 0}})
    seconds, found = [], None
    for _ in range(repeats):
        started = time.perf_counter()
        found = summarize_data(config)
        seconds.append(time.perf_counter() - started)
    assert found is not None
    size = f"{path.stat().st_size / 1e9:.1f} GB, {ROWS:,} rows"
    every = ", ".join(f"{one:.2f}" for one in seconds)
    return [
        Result(
            f"lengths of {path.suffix}: quickest of {repeats}, seconds", min(seconds), LIMIT_S, f"{size}; {every} s"
        ),
        Result(f"lengths of {path.suffix}: rows off", abs(found.rows / ROWS - 1), LIMIT_ROWS, _rows(found)),
        Result(
            f"lengths of {path.suffix}: mean off",
            abs(np.mean(found.lengths) / mean - 1),
            LIMIT_MEAN.get(path.suffix, 0.05),
            f"{np.mean(found.lengths):.1f} of {mean:.1f} tokens",
        ),
    ]


def _rows(found: DataSummary) -> str:
    return f"{found.rows:,} ({'exact' if found.rows_exact else 'estimated'})"


def _texts() -> list[str]:
    """Lengths spread like those of proteins, longest first."""
    generator = np.random.default_rng(7)
    lengths = np.sort(np.clip(generator.lognormal(5.0, 0.7, WRITTEN_ROWS), 12, 8000).astype(int))[::-1]
    pool = LETTERS[generator.integers(0, 20, int(lengths.sum()))].tobytes().decode()
    ends = np.cumsum(lengths)
    return [pool[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def _write(path: Path, texts: list[str]) -> None:
    times = ROWS // len(texts)
    if path.suffix == ".parquet":
        with pq.ParquetWriter(path, pa.schema([("id", pa.string()), ("sequence", pa.string())])) as writer:
            for start in range(0, len(texts), 1000):
                repeated = [text for text in texts[start : start + 1000] for _ in range(times)]
                ids = [f"p{number}" for number in range(len(repeated))]
                writer.write_table(pa.table({"id": ids, "sequence": repeated}))
        return
    form = {".jsonl": '{{"id": "p7", "sequence": "{}"}}\n', ".txt": "{}\n", ".fasta": ">p7 protein\n{}\n"}[path.suffix]
    with path.open("wb") as file:
        for text in texts:
            file.write(form.format(text).encode() * times)
