"""Rows for the benchmark of streaming: pairs of random words, each source with its number as the first word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

GROUP_ROWS = 100_000
WORDS = {"source": 15, "target": 13}


def write_parquet(path: Path, rows: int) -> None:
    """Two string columns, about 100 characters each, in row groups of 100,000 rows."""
    writer = None
    for table in _tables(rows):
        writer = writer or pq.ParquetWriter(path, table.schema, compression="snappy", use_dictionary=False)
        writer.write_table(table, row_group_size=GROUP_ROWS)
    if writer is not None:
        writer.close()


def _tables(rows: int) -> Iterator[pa.Table]:
    random = np.random.default_rng(1)
    words = pa.array(["".join(map(chr, random.integers(97, 123, size))) for size in random.integers(3, 11, 20_000)])
    for start in range(0, rows, GROUP_ROWS):
        count = min(GROUP_ROWS, rows - start)
        columns = {}
        for side, length in WORDS.items():
            chosen = words.take(pa.array(random.integers(0, len(words), count * length)))
            lists = pa.ListArray.from_arrays(pa.array(np.arange(0, count * length + 1, length, dtype=np.int32)), chosen)
            columns[side] = pc.binary_join(lists, " ")
        numbers = pc.cast(pa.array(np.arange(start, start + count)), pa.string())
        columns["source"] = pc.binary_join_element_wise(numbers, columns["source"], " ")
        yield pa.table(columns)
