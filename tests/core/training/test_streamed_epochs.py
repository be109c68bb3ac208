"""An epoch of rows that are read while training: over ranks and loader workers, and gone on with in the middle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from accelerate.data_loader import BatchSamplerShard, SkipBatchSampler
from torch.utils.data import BatchSampler, DataLoader
from trainwiz.core.config import RunConfig
from trainwiz.core.data.proteins import ProteinStore
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.training.batches import EpochSampler
from trainwiz.core.training.tasks import MaskedProteins, TextDataset

ROWS, BATCH, RANKS = 1501, 8, 2


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwiz.core.data.streamed.WINDOW_BYTES", 6000)
    monkeypatch.setattr("trainwiz.core.data.texts.UNIT_BYTES", 1000)
    monkeypatch.setattr("trainwiz.core.data.text_file.BATCH_ROWS", 16)


def _file(folder: Path) -> None:
    proteins = ["MKTAYIAKQR"[: 3 + n % 8] * (1 + n % 5) for n in range(ROWS)]
    table = pa.table({"text": [str(n) for n in range(ROWS)], "sequence": proteins})
    pq.write_table(table, folder / "a.parquet", row_group_size=53)
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


def _config(task: str, column: str, name: str) -> RunConfig:
    source = {"name": name, "text_column": column}
    data = {"sources": [source], "streaming": True, "validation_rows": 40}
    return RunConfig.model_validate({"task": task, "data": data})


def _batches(
    sampler: EpochSampler, data: Any, epoch: int, rank: int, skip: int = 0, workers: int = 2
) -> list[list[Any]]:
    sampler.start_epoch(epoch)
    sampler.fill_up(BATCH * RANKS)
    own: Any = BatchSamplerShard(BatchSampler(sampler, BATCH, False), num_processes=RANKS, process_index=rank)
    own = SkipBatchSampler(own, skip_batches=skip)
    return list(DataLoader(data, batch_sampler=own, num_workers=workers, collate_fn=_rows))


def _rows(rows: list[tuple[np.ndarray, np.ndarray]]) -> list[tuple[list[int], list[int], bool]]:
    """(tokens, labels, whether it counts) of each row."""
    return [(tokens.tolist(), labels.tolist(), type((tokens, labels)) is tuple) for tokens, labels in rows]


def _number(text: str, target: str | None) -> tuple[np.ndarray, np.ndarray]:
    return np.array([int(text)]), np.array([int(text)])


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
def test_no_row_is_lost_or_doubled_over_ranks_workers_and_a_resume(tmp_path: Path, name: str) -> None:
    _file(tmp_path)
    seen: list[list[int]] = []
    for epoch in (0, 3):
        numbers: list[int] = []
        for rank in range(RANKS):
            for skip, most in ((0, 31), (31, None)):
                # As a new process has it: everything is read anew.
                rows = load_text_rows(_config("causal-lm", "text", name), tmp_path)
                windows = rows.windows_of_training()
                assert windows is not None and len(list(windows.orders(5, epoch))) > 5
                sampler = EpochSampler(len(rows.train), 5, windows=windows)
                batches = _batches(sampler, TextDataset(rows, rows.train, _number), epoch, rank, skip)[:most]
                numbers += [labels[0] for batch in batches for _, labels, _ in batch if labels[0] >= 0]
        assert sorted(numbers) == rows.train.tolist()
        seen.append(numbers)
    assert seen[0] != seen[1]


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
def test_masks_of_a_resumed_epoch_are_those_of_an_undisturbed_one(tmp_path: Path, name: str) -> None:
    _file(tmp_path)
    found = []
    for workers, skip in ((0, 0), (2, 0), (2, 17)):
        rows = load_text_rows(_config("masked-lm", "sequence", name), tmp_path)
        sampler = EpochSampler(len(rows.train), 5, windows=rows.windows_of_training())
        found.append(
            _batches(sampler, MaskedProteins(ProteinStore(rows.texts, 1022), rows.train, 0.15, 5), 2, 1, skip, workers)
        )
    assert found[0] == found[1] and found[0][17:] == found[2] and len(found[2]) > 50
