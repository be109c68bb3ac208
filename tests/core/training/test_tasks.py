"""Each task's parts, without a run: what they hold, and what is said when they cannot be made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.errors import UsageError
from trainwiz.core.training.batches import EVALUATION_EPOCH, IGNORED
from trainwiz.core.training.tasks import build_task

from tests.core.training.runs import text_config, tiny_config
from tests.each import each

TEXT = [{"name": "sample-text", "max_rows": 300}]


@each(
    ("model", "changes"),
    [
        ("t5-chat-tiny", {}),
        ("gpt2-tiny", {"data__sources": TEXT}),
        ("gpt2-tiny", {"data__concatenate": True}),
    ],
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


def test_text_too_short_to_predict_anything_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n")
    config = text_config("gpt2-tiny", data__sources=[{"name": "a.txt"}], data__validation_rows=0)
    # One letter and its end: one token to predict.
    assert len(build_task(config, tmp_path, None, 1).train) == 1  # type: ignore[arg-type]
    config = text_config("gpt2-tiny", data__sources=[{"name": "a.txt"}], data__validation_sources=[{"name": "a.txt"}])
    parts = build_task(config, tmp_path, None, 1)
    assert len(parts.train) == len(parts.evaluation) == 1  # type: ignore[arg-type]
    assert np.array_equal(parts.train[(0, 0)][0], parts.evaluation[(0, 0)][0])  # type: ignore[index]


def test_all_that_is_wrong_with_the_evaluation_is_said_at_once(tmp_path: Path) -> None:
    config = text_config(
        "gpt2-tiny",
        data__sources=TEXT,
        evaluation__generate=True,
        checkpoint__keep_best=True,
        evaluation__metric="rouge",
    )
    with pytest.raises(UsageError) as error:
        build_task(config, tmp_path, None, 1)
    assert [finding.code for finding in error.value.findings] == ["nothing_to_compare", "unknown_metric"]
    with pytest.raises(UsageError, match="none are held out"):
        build_task(tiny_config(checkpoint__keep_best=True, data__validation_rows=0), tmp_path, None, 1)


def test_rows_are_cut_and_split(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n".join(["M" * 5, "M" * 500] * 20))
    config = tiny_config(data__sources=[{"name": str(path)}], data__validation_rows=10)
    rows = load_text_rows(config, tmp_path)
    assert set(rows.texts.lengths.tolist()) == {5, 46}
    assert (len(rows.train), len(rows.held_out)) == (30, 10)
    assert not set(rows.train.tolist()) & set(rows.held_out.tolist())
