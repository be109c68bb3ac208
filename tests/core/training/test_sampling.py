"""The order of rows, and evaluation rows that count once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from trainwiz.core.data.proteins import ProteinStore
from trainwiz.core.data.texts import TextRows
from trainwiz.core.training.batches import (
    FILLER,
    EpochSampler,
    EvaluationSampler,
    PaddedBatch,
    RowKey,
    out_of_shared_memory,
)
from trainwiz.core.training.metrics import StepMeter
from trainwiz.core.training.tasks import Chosen, MaskedProteins, TextDataset
from transformers import Trainer, TrainingArguments

from tests.core.training.tokenizers_for_tests import store
from tests.each import each


def test_every_epoch_sees_every_row_in_its_own_order() -> None:
    sampler = EpochSampler(50, seed=1)
    orders = []
    for epoch in (0, 1):
        sampler.start_epoch(epoch)
        keys = list(sampler)
        assert {key[0] for key in keys} == {epoch}
        orders.append([key[1] for key in keys])
        assert sorted(orders[-1]) == list(range(50))
    assert orders[0] != orders[1]
    sampler.start_epoch(0)
    assert [row for _, row in sampler] == orders[0]


def test_an_epoch_ends_with_rows_that_count_for_nothing() -> None:
    sampler = EpochSampler(13, seed=1)
    sampler.fill_up(8)
    sampler.start_epoch(2)
    keys = list(sampler)
    assert len(keys) == len(sampler) == 16
    assert sorted(row for _, row in keys[:13]) == list(range(13))
    assert keys[13:] == [(2, FILLER)] * 3


class Numbers(Dataset[dict[str, torch.Tensor]]):
    """Rows that are their own number."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.tensor([number]), "labels": torch.tensor([number])}


def test_the_order_is_that_of_the_trainer_of_transformers(tmp_path: Path) -> None:
    """Of its own loader, as it prepares it, over three epochs."""
    args = TrainingArguments(
        output_dir=str(tmp_path), seed=7, use_cpu=True, per_device_train_batch_size=4, remove_unused_columns=False
    )
    trainer = Trainer(model=torch.nn.Linear(1, 1), args=args, train_dataset=Numbers())  # type: ignore[arg-type]
    loader = trainer.get_train_dataloader()
    sampler = EpochSampler(23, seed=7)
    for epoch in range(3):
        loader.set_epoch(epoch)
        sampler.start_epoch(epoch)
        stock = [row for batch in loader for row in batch["input_ids"].flatten().tolist()]
        assert [row for _, row in sampler] == stock


def _proteins() -> Dataset[RowKey]:
    texts = ProteinStore(store(["MKTAYIAKQR" * 3, "GAVLIMFWP", "STC", "QDEKRH", "MKT"]), 100)
    return MaskedProteins(texts, np.arange(5), 0.15, 1)


def _texts() -> Dataset[RowKey]:
    rows = TextRows(["a", "bbb", "cc", "dddd", "eeeee"], None, np.arange(5), np.arange(0))
    return TextDataset(rows, np.arange(5), lambda text, _: (np.arange(len(text)) + 1, np.arange(len(text)) + 1))


MAKERS = (_proteins, _texts, lambda: Chosen(_texts(), np.arange(5)))


@each("rows", [make() for make in MAKERS])
@each("workers", [0, 1])
def test_rows_that_fill_up_are_computed_and_are_no_real_tokens(rows: Dataset[RowKey], workers: int) -> None:
    sampler = EpochSampler(5, seed=1)
    lengths = [len(rows[(0, row)][0]) for row in range(5)]
    sampler.fill_up(4)
    loader = DataLoader(rows, batch_size=4, sampler=sampler, collate_fn=PaddedBatch(0), num_workers=workers)
    meter = StepMeter()
    made = list(meter.timed(iter(loader)))
    batches = [out_of_shared_memory(batch) for batch in made]
    assert all(
        made[0][name].is_shared() is bool(workers) and value.equal(made[0][name]) for name, value in batches[0].items()
    )
    assert not any(value.is_shared() for batch in batches for value in batch.values())
    meter.step_done()
    assert [len(batch["input_ids"]) for batch in batches] == [4, 4]
    assert meter.counts()["real_tokens"] == sum(lengths) < meter.counts()["tokens"]
    assert all(set(batch) == {"input_ids", "attention_mask", "labels"} for batch in batches)


def test_evaluation_is_filled_up_to_whole_batches_of_all_processes() -> None:
    keys = [row for _, row in EvaluationSampler(13, 8)]
    assert keys == [*range(13), FILLER, FILLER, FILLER]
    assert len(EvaluationSampler(16, 8)) == 16


def test_evaluation_begins_with_the_longest_rows() -> None:
    lengths = np.array([3, 9, 1, 9, 4], np.uint32)
    assert [row for _, row in EvaluationSampler(5, 4, lengths)] == [1, 3, 4, 0, 2, FILLER, FILLER, FILLER]
