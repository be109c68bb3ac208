"""Lengths that rows of text are arranged by: those of the rows that train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.training.tasks import TextDataset
from trainwiz.core.training.tokenizer import build_tokenizer
from trainwiz.core.training.tokens import CausalEncoder, PairEncoder, row_lengths

from tests.core.training.runs import text_config


def rows_and_encoder(model: str, folder: Path, source: int = 24, target: int = 16, **changes: Any) -> Any:
    config = text_config(model, batch__sequence_length=source, **changes)
    rows = load_text_rows(config, folder)
    tokenizer = build_tokenizer(config, folder, rows)
    causal = config.task == "causal-lm"
    encoder = CausalEncoder(tokenizer, source) if causal else PairEncoder(tokenizer, source, target)
    return rows, encoder, config.task


@pytest.mark.parametrize(
    ("model", "sizes"), [("gpt2-tiny", (24, 0)), ("t5-chat-tiny", (24, 16)), ("t5-chat-tiny", (8, 20))]
)
def test_they_are_those_of_the_rows(model: str, sizes: tuple[int, int], tmp_path: Path) -> None:
    """After the tokenizer cut other texts: it must not remember that."""
    rows, encoder, task = rows_and_encoder(model, tmp_path, *sizes)
    made = TextDataset(rows, rows.train, encoder.row)
    expected = [max(map(len, made[(0, row)])) for row in range(len(made))]
    assert row_lengths(rows, rows.train, task, encoder).tolist() == expected
    assert len(set(expected)) >= 4


@pytest.mark.parametrize("budget", [10**9, 1000])
def test_of_streamed_rows_those_of_one_window_are_counted(
    budget: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a run that streams little data is the run that holds it in memory, bit for bit."""
    rows, encoder, task = rows_and_encoder("t5-chat-tiny", tmp_path / "memory")
    in_memory = row_lengths(rows, rows.train, task, encoder)
    streamed, *_ = rows_and_encoder("t5-chat-tiny", tmp_path / "streamed", data__streaming=True)
    monkeypatch.setattr(streamed.windows, "_budget", budget)
    monkeypatch.setattr(streamed.windows, "_sizes", np.full_like(streamed.windows._sizes, 900))
    several = streamed.windows.several
    expected = streamed.lengths_of(task, streamed.train) if several else in_memory
    assert np.array_equal(row_lengths(streamed, streamed.train, task, encoder), expected)
    assert several is (budget < 900 * len(streamed.windows._sizes))
