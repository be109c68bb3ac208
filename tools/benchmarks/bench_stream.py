"""Ten million rows that are read while training: memory of each process, pace beside `datasets`, and no row lost or doubled."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from trainwiz.core.data.text_store import MemoryTexts
from trainwiz.core.data.texts import TextRows
from trainwiz.core.training.tokenizer import trained_tokenizer

from tools.benchmarks.measure import Result
from tools.benchmarks.stream_data import write_parquet

ROWS = 10_000_000
PACED_ROWS, WORKERS, RANKS = 300_000, 2, 2
"""Three row groups: `datasets` makes a whole group into rows at once, and in a short run that is all there is to see."""
VOCABULARY = 8000
MOST_BYTES = 1e9
REPEATS = 2
Arm = dict[str, Any]


def run(rows: int = ROWS, repeats: int = REPEATS) -> list[Result]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parquet = folder / "rows.parquet"
        write_parquet(parquet, rows)
        _tokenizer(folder / "tokenizer", parquet)
        given: Arm = {"folder": str(folder / "run"), "tokenizer": str(folder / "tokenizer"), "workers": WORKERS}
        (folder / "run").mkdir()
        of_parquet = {**given, "data": str(parquet), "columns": ["source", "target"], "kind": "parquet"}
        return [
            *_every_row(of_parquet, rows, folder),
            *_pace("parquet", of_parquet, min(PACED_ROWS, rows), repeats),
        ]


def _tokenizer(place: Path, parquet: Path) -> None:
    texts = pq.ParquetFile(parquet).read_row_group(0, ["source"])["source"].combine_chunks().cast(pa.large_string())
    store = MemoryTexts(texts.slice(0, 20_000))
    rows = TextRows(store, None, np.arange(len(store)), np.arange(0))
    trained_tokenizer(place, rows, VOCABULARY, "seq2seq")


def _arm(name: str, given: Arm) -> Arm:
    command = [sys.executable, "-m", "tools.benchmarks.stream_arms", name, json.dumps(given)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: Arm = json.loads(done.stdout.splitlines()[-1])
    return found


def _together(calls: list[Callable[[], Arm]]) -> list[Arm]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def _every_row(given: Arm, rows: int, folder: Path) -> list[Result]:
    """An epoch of two ranks with two workers each, stopped in the middle and gone on with by other processes."""
    half = max(1, rows // (2 * RANKS * 500))
    arms: list[Arm] = []
    for skip, batches in ((0, half), (half, -1)):
        asked = [
            {**given, "ranks": RANKS, "rank": rank, "skip": skip, "batches": batches, "out": _noted(folder, rank, skip)}
            for rank in range(RANKS)
        ]
        arms += _together([partial(_arm, "rank", one) for one in asked])
    seen = np.concatenate([np.load(_noted(folder, rank, skip)) for skip in (0, half) for rank in range(RANKS)])
    counts = np.bincount(seen, minlength=rows)
    wanted = arms[0]["train"]
    detail = f"{rows:,} rows of which {rows - wanted:,} are held out, {RANKS} ranks x {WORKERS} workers, a resume in the middle"
    wrong = int((counts > 1).sum()) + abs(wanted - int((counts == 1).sum()))
    return [
        Result("stream: rows lost or doubled", wrong, 0, detail),
        *_memory("stream: an epoch", arms),
    ]


def _noted(folder: Path, rank: int, skip: int) -> str:
    return str(folder / f"rank{rank}-from{skip}.npy")


def _memory(what: str, arms: list[Arm]) -> list[Result]:
    ranks = [arm["rss"][0] for arm in arms]
    workers = [size for arm in arms for size in arm["rss"][1:]]
    shares = max(size for arm in arms for size in arm["pss"])
    detail = f"ranks {_mb(ranks)} MB, workers {_mb(workers)} MB resident; the largest share (PSS) {shares / 1e6:.0f} MB"
    return [Result(f"{what}: largest process, MB", max([*ranks, *workers]) / 1e6, MOST_BYTES / 1e6, detail)]


def _mb(sizes: list[int]) -> str:
    return " ".join(f"{size / 1e6:.0f}" for size in sizes)


def _pace(what: str, given: Arm, rows: int, repeats: int) -> list[Result]:
    """The same tokenizer, collation and loader over our rows and over those of `datasets`, in turns."""
    results = []
    _arm("ours", {**given, "rows": 1000})  # makes the index
    for workers in (0, WORKERS):
        asked = {**given, "rows": rows, "workers": workers}
        pairs = [(_arm("ours", asked), _arm("datasets", asked)) for _ in range(repeats)]
        ours, theirs = (median(pair[side]["rows_per_s"] for pair in pairs) for side in (0, 1))
        memory = [max(max(pair[side]["rss"]) for pair in pairs) / 1e6 for side in (0, 1)]
        detail = f"{ours:,.0f} rows/s, datasets {theirs:,.0f}; largest process {memory[0]:.0f} MB, datasets {memory[1]:.0f} MB"
        results.append(Result(f"stream: {what}, {workers} workers: datasets / ours", theirs / ours, 1.0, detail))
        results += _memory(f"stream: {what}, {workers} workers", [pair[0] for pair in pairs])
    return results
