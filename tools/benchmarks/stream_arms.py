"""One arm of the benchmark of streaming, a process of its own: python -m tools.benchmarks.stream_arms ARM JSON

ours | datasets   batches of 64 rows, made into tokens and padded, through a DataLoader
rank              one of several ranks, with loader workers, that notes which rows it gets
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from accelerate.data_loader import BatchSamplerShard, SkipBatchSampler
from torch.utils.data import BatchSampler, DataLoader, IterableDataset
from trainwiz.core.config import RunConfig
from trainwiz.core.data.texts import TextRows, load_text_rows
from trainwiz.core.training import trainer as whole_trainer
from trainwiz.core.training.batches import EpochSampler, PaddedBatch
from trainwiz.core.training.tasks import Rows, text_row
from trainwiz.core.training.tokens import PairEncoder, TokenRow
from transformers import PreTrainedTokenizerFast

MICRO_BATCH, LENGTH, NOTED_BATCH = 64, 128, 500
SHUFFLE_BUFFER = 10_000


class Memory(threading.Thread):
    """The most memory that this process and each of its workers have had: RSS, and PSS, in bytes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.rss: dict[int, int] = {}
        self.pss: dict[int, int] = {}
        self.start()

    def run(self) -> None:
        own = psutil.Process()
        while True:
            for process in [own, *own.children(recursive=True)]:
                try:
                    now = process.memory_full_info()
                except psutil.Error:
                    continue
                self.rss[process.pid] = max(self.rss.get(process.pid, 0), now.rss)
                self.pss[process.pid] = max(self.pss.get(process.pid, 0), now.pss)
            time.sleep(0.3)

    def said(self) -> dict[str, list[int]]:
        """This process first, then its workers."""
        return {"rss": list(self.rss.values()), "pss": list(self.pss.values())}


def rows_of(given: dict[str, Any]) -> TextRows:
    source = {"name": given["data"], "text_column": given["columns"][0], "target_column": given["columns"][1]}
    config = RunConfig.model_validate({"task": "seq2seq", "data": {"sources": [source], "streaming": True}})
    return load_text_rows(config, Path(given["folder"]))


def tokens_of(given: dict[str, Any]) -> tuple[PairEncoder, PaddedBatch]:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(given["tokenizer"])
    padding = tokenizer.pad_token_id
    assert isinstance(padding, int)
    return PairEncoder(tokenizer, LENGTH, LENGTH), PaddedBatch(padding)


class Foreign(IterableDataset[TokenRow]):
    """Rows as `datasets` streams them, made into tokens in the same way."""

    def __init__(self, rows: Any, columns: list[str], encoder: PairEncoder) -> None:
        self._rows, self._columns, self._encoder = rows, columns, encoder

    def __iter__(self) -> Iterator[TokenRow]:
        text, target = self._columns
        for row in self._rows:
            yield self._encoder.row(row[text], row[target])


def paced(loader: DataLoader[Any], given: dict[str, Any], memory: Memory) -> dict[str, Any]:
    """Rows a second after the first tenth of the rows, in which workers start and buffers are filled."""
    wanted, warm = given["rows"], given["rows"] // 10
    done, started = 0, 0.0
    for batch in loader:
        done += len(batch["input_ids"])
        if not started and done >= warm:
            started, warm = time.perf_counter(), done
        if done >= wanted:
            break
    return {"rows_per_s": (done - warm) / (time.perf_counter() - started), **memory.said()}


def ours(given: dict[str, Any]) -> dict[str, Any]:
    memory = Memory()
    started = time.perf_counter()
    rows = rows_of(given)
    prepared_s = time.perf_counter() - started
    encoder, collate = tokens_of(given)
    sampler = EpochSampler(len(rows.train), 0, windows=rows.windows_of_training())
    data = Rows(rows.train, partial(text_row, rows, encoder.row))
    loader = DataLoader(data, MICRO_BATCH, sampler=sampler, num_workers=given["workers"], collate_fn=collate)
    return {**paced(loader, given, memory), "prepared_s": prepared_s}


def datasets(given: dict[str, Any]) -> dict[str, Any]:
    from datasets import load_dataset

    memory = Memory()
    stream = load_dataset(given["kind"], data_files=given["data"], split="train", streaming=True)
    encoder, collate = tokens_of(given)
    data = Foreign(stream.shuffle(seed=0, buffer_size=SHUFFLE_BUFFER), given["columns"], encoder)
    return paced(DataLoader(data, MICRO_BATCH, num_workers=given["workers"], collate_fn=collate), given, memory)


def number_of(text: str, target: str) -> TokenRow:
    """The number that a row begins with, in the place of its tokens."""
    number = np.array([int(text.split(" ", 1)[0])])
    return number, number


def numbers_of(rows: list[TokenRow]) -> np.ndarray:
    return np.array([int(row[0][0]) for row in rows if type(row) is tuple], np.int64)


def rank(given: dict[str, Any]) -> dict[str, Any]:
    memory = Memory()
    rows = rows_of(given)
    sampler = EpochSampler(len(rows.train), 0, windows=rows.windows_of_training())
    sampler.fill_up(NOTED_BATCH * given["ranks"])
    batches: Any = BatchSampler(sampler, NOTED_BATCH, drop_last=False)
    batches = BatchSamplerShard(batches, num_processes=given["ranks"], process_index=given["rank"])
    batches = SkipBatchSampler(batches, skip_batches=given["skip"])
    data: Any = Rows(rows.train, partial(text_row, rows, number_of))
    loader = DataLoader(data, batch_sampler=batches, num_workers=given["workers"], collate_fn=numbers_of)
    seen, started, taken = [], time.perf_counter(), 0
    for batch in loader:
        seen.append(batch)
        taken += 1
        if taken == given["batches"]:
            break
    numbers = np.concatenate([np.empty(0, np.int64), *seen])
    np.save(given["out"], numbers)
    took = time.perf_counter() - started
    return {"rows_per_s": len(numbers) / took, "batches": taken, "train": len(rows.train), **memory.said()}


ARMS = {"ours": ours, "datasets": datasets, "rank": rank}

if __name__ == "__main__":
    assert whole_trainer  # a training process has it in memory too
    print(json.dumps(ARMS[sys.argv[1]](json.loads(sys.argv[2]))))
