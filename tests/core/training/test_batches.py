"""Which rows make a step and how they are loaded: orders, epochs of streamed rows, fillers, masks, evaluation rows."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard, SkipBatchSampler
from torch.utils.data import BatchSampler, DataLoader, Dataset
from trainwiz.core.config import RunConfig
from trainwiz.core.data.text_store import CLS, EOS, ESM_VOCABULARY, MASK
from trainwiz.core.data.texts import TextRows, load_text_rows
from trainwiz.core.errors import UsageError
from trainwiz.core.training.batches import (
    EVALUATION_EPOCH,
    FILLER,
    IGNORED,
    EpochSampler,
    PaddedBatch,
    evaluation_order,
    out_of_shared_memory,
)
from trainwiz.core.training.metrics import StepMeter
from trainwiz.core.training.tasks import RESIDUES, MaskedRow, Rows, build_task, protein_places, text_row
from trainwiz.core.training.weights import esm_tokenizer
from transformers import Trainer, TrainingArguments

from tests.core.training.runs import text_config
from tests.core.training.tokenizers_for_tests import store
from tests.each import each


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


def _proteins() -> Rows:
    return Rows(np.arange(5), masked(store(["MKTAYIAKQR" * 3, "GAVLIMFWP", "STC", "QDEKRH", "MKT"]), 1))


def masked(texts: Any, seed: int) -> MaskedRow:
    return MaskedRow(texts, partial(protein_places, 10**6), MASK, RESIDUES, 0.15, seed)


def _texts() -> Rows:
    rows = TextRows(["a", "bbb", "cc", "dddd", "eeeee"], None, np.arange(5), np.arange(0))
    return Rows(np.arange(5), partial(text_row, rows, lambda text, _: (np.arange(len(text)) + 1,) * 2))


@each(("rows", "workers"), [(_proteins(), 1), (_texts(), 0), (Rows(np.arange(5), _texts().item), 1)])
def test_rows_that_fill_up_are_computed_and_are_no_real_tokens(rows: Rows, workers: int) -> None:
    sampler = EpochSampler(5, seed=1)
    lengths = [len(rows[(0, row)][0]) for row in range(5)]
    sampler.fill_up(4)
    loader = DataLoader(rows, batch_size=4, sampler=sampler, collate_fn=PaddedBatch(0), num_workers=workers)
    meter = StepMeter()
    made = list(meter.timed(iter(loader)))
    batches = [out_of_shared_memory(batch) for batch in made]
    for name, value in batches[0].items():
        assert made[0][name].is_shared() is bool(workers) and value.equal(made[0][name])
    assert not any(value.is_shared() for batch in batches for value in batch.values())
    meter.step_done()
    assert [len(batch["input_ids"]) for batch in batches] == [4, 4]
    assert meter.counts()["real_tokens"] == sum(lengths) < meter.counts()["tokens"]
    assert all(set(batch) == {"input_ids", "attention_mask", "labels"} for batch in batches)


def test_evaluation_begins_with_the_longest_rows_and_is_filled_up_to_whole_batches_of_all_processes() -> None:
    assert evaluation_order(13, 8) == [(EVALUATION_EPOCH, row) for row in (*range(13), FILLER, FILLER, FILLER)]
    assert len(evaluation_order(16, 8)) == 16
    lengths = np.array([3, 9, 1, 9, 4], np.uint32)
    assert [row for _, row in evaluation_order(5, 4, lengths)] == [1, 3, 4, 0, 2, FILLER, FILLER, FILLER]


BATCH, RANKS = 8, 2


def _batches(sampler: EpochSampler, data: Any, epoch: int, rank: int, skip: int, workers: int) -> list[list[Any]]:
    sampler.start_epoch(epoch)
    sampler.fill_up(BATCH * RANKS)
    own: Any = BatchSamplerShard(BatchSampler(sampler, BATCH, False), num_processes=RANKS, process_index=rank)
    own = SkipBatchSampler(own, skip_batches=skip)
    return list(DataLoader(data, batch_sampler=own, num_workers=workers, collate_fn=_rows))


def _rows(rows: list[tuple[np.ndarray, np.ndarray]]) -> list[tuple[list[int], list[int], bool]]:
    """(tokens, labels, whether it counts) of each row."""
    return [(tokens.tolist(), labels.tolist(), type((tokens, labels)) is tuple) for tokens, labels in rows]


def test_masks_of_a_resumed_epoch_are_those_of_an_undisturbed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rows that are streamed in several windows."""
    monkeypatch.setattr("trainwiz.core.data.lengths.UNIT_BYTES", 200)
    proteins = ["MKTAYIAKQR"[: 3 + n % 8] * (1 + n % 5) for n in range(701)]
    pq.write_table(pa.table({"sequence": proteins}), tmp_path / "a.parquet", row_group_size=53)
    data = {"sources": [{"name": "a.parquet", "text_column": "sequence"}], "streaming": True, "validation_rows": 40}
    config = RunConfig.model_validate({"task": "masked-lm", "data": data})
    found = []
    for workers, skip in ((0, 0), (2, 0), (2, 9)):
        rows = load_text_rows(config, tmp_path)
        windows = rows.windows_of_training()
        assert windows is not None and len(list(windows.orders(5, 2))) > 2
        sampler = EpochSampler(len(rows.train), 5, windows=windows)
        found.append(_batches(sampler, Rows(rows.train, masked(rows.texts, 5)), 2, 1, skip, workers))
    assert found[0] == found[1] and found[0][9:] == found[2] and len(found[2]) > 20


def test_shares_of_masked_swapped_and_kept() -> None:
    letters = ESM_VOCABULARY[4] * 400_000
    make = masked(store([letters, letters[0]]), 0)
    tokens, labels = make(0, 0)
    chosen = labels != IGNORED
    assert chosen.mean() == pytest.approx(0.15, abs=0.004)
    inputs = tokens[chosen]
    assert (inputs == MASK).mean() == pytest.approx(0.8, abs=0.01)
    # One swap in twenty draws the letter that was there.
    assert (inputs == 4).mean() == pytest.approx(0.1 + 0.1 / 20, abs=0.01)
    others = inputs[(inputs != MASK) & (inputs != 4)]
    assert others.min() >= 4 and others.max() <= 23
    # Ends are special tokens and never labelled; even a single letter is: a batch without labels has no loss.
    assert (tokens[~chosen][1:-1] == 4).all() and (tokens[0], tokens[-1]) == (CLS, EOS)
    _, labels = make(0, 1)
    assert labels.tolist() == [IGNORED, 4, IGNORED]


def test_built_in_encoding_equals_the_real_tokenizer() -> None:
    text = "LAGVSERTIDPKQNFYMHWCXBUZO.-J"
    expected = esm_tokenizer()(text)["input_ids"]
    assert [protein_places(100, written)[0].tolist() for written in (text, text.lower())] == [expected] * 2
    assert ESM_VOCABULARY[:4] == ("<cls>", "<pad>", "<eos>", "<unk>") and ESM_VOCABULARY[31:] == ("<null_1>", "<mask>")


# Each task's parts, without a run: what they hold, and what is said when they cannot be made.

TEXT = [{"name": "sample-text", "max_rows": 300}]


@each(
    ("model", "changes"),
    [("t5-chat-tiny", {}), ("gpt2-tiny", {"data__sources": TEXT}), ("gpt2-tiny", {"data__concatenate": True})],
)
def test_streamed_and_held_rows_give_the_same_batches(model: str, changes: dict[str, Any], tmp_path: Path) -> None:
    seen = []
    for streaming, workers in ((False, 0), (True, 2)):
        folder = tmp_path / str(streaming)
        folder.mkdir()
        parts = build_task(text_config(model, data__streaming=streaming, **changes), folder, None, 1)
        parts.sampler.start_epoch(1)
        loader = DataLoader(
            parts.train, batch_size=4, sampler=parts.sampler, collate_fn=parts.collate, num_workers=workers
        )
        held = [parts.evaluation[(EVALUATION_EPOCH, index)] for index in range(len(parts.evaluation))]  # type: ignore[index, arg-type]
        batches = [{name: values.tolist() for name, values in batch.items()} for batch in loader]
        seen.append((batches, [(tokens.tolist(), labels.tolist()) for tokens, labels in held]))
    assert len(seen[0][0]) > 10 and len(seen[0][1]) > 1
    assert seen[0] == seen[1]


def test_plain_text_is_joined_to_full_sequences_and_an_adapters_rows_are_not(tmp_path: Path) -> None:
    joined = build_task(text_config("gpt2-tiny", data__sources=TEXT), tmp_path, None, 1)
    lengths = {len(joined.train[(0, index)][0]) for index in range(len(joined.train))}  # type: ignore[index, arg-type]
    assert lengths == {48}
    long = text_config("gpt2-tiny", data__sources=TEXT, data__concatenate=False, batch__sequence_length=512)
    alone = build_task(long, tmp_path, None, 1)
    assert len(alone.train) + len(alone.evaluation) == 300  # type: ignore[arg-type]
    rows = [alone.train[(0, index)] for index in range(50)]  # type: ignore[index]
    assert len({len(tokens) for tokens, _ in rows}) > 1
    assert all((labels != IGNORED).sum() == len(tokens) - 1 for tokens, labels in rows)


@each("changes", [{}, {"data__sources": TEXT}])
def test_overfitting_repeats_a_few_rows(changes: dict[str, Any], tmp_path: Path) -> None:
    config = text_config("gpt2-tiny", mode__kind="overfit", mode__overfit_batches=3, data__validation_rows=0, **changes)
    parts = build_task(config, tmp_path, None, 2)
    assert len(parts.train) == 3 * 4 * 2  # type: ignore[arg-type]
    assert parts.evaluation is None
    first = list(parts.sampler)
    parts.sampler.start_epoch(4)
    assert list(parts.sampler) == first
    different = {tuple(parts.train[key][0].tolist()) for key in first}  # type: ignore[index]
    assert len(different) > 12


def test_a_text_without_a_target_has_nothing_for_bleu(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="BLEU compares generated texts with targets"):
        build_task(text_config("gpt2-tiny", data__sources=TEXT, evaluation__generate=True), tmp_path, None, 1)
