"""Joined texts: the same tokens in memory and from a file, and the sequences that they are cut into."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.errors import CannotRunError
from trainwiz.core.training.batches import IGNORED
from trainwiz.core.training.tasks import BlockDataset, Chosen, TextDataset
from trainwiz.core.training.tokens import CausalEncoder, TokenStore, join_tokens

from tests.core.training.runs import text_config
from tests.core.training.tokenizers_for_tests import SENTENCES, small_tokenizer, text_rows

ALL = np.arange(len(SENTENCES))


def test_texts_follow_each_other_with_their_ends(tmp_path: Path) -> None:
    tokenizer = small_tokenizer(tmp_path)
    tokens = join_tokens(text_rows(SENTENCES), ALL[:3], CausalEncoder(tokenizer, 8), tokenizer)
    expected = [token for text in SENTENCES[:3] for token in [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]]
    read, labelled = tokens.read(0, 1000)
    assert read.tolist() == expected and labelled.all()


def test_of_long_texts_a_few_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 books were read, and made into tokens, at once."""
    tokenizer = small_tokenizer(tmp_path)
    rows = text_rows(SENTENCES, [text[::-1] for text in SENTENCES])
    whole = join_tokens(rows, ALL, CausalEncoder(tokenizer, 8), tokenizer)
    encoder = CausalEncoder(tokenizer, 8)
    at_once: list[int] = []
    encode = encoder.whole
    monkeypatch.setattr(
        encoder, "whole", lambda texts, targets: (at_once.append(len(texts)), encode(texts, targets))[1]
    )
    monkeypatch.setattr("trainwiz.core.training.tokens.BATCH_CHARACTERS", 100)
    few = join_tokens(rows, ALL, encoder, tokenizer)
    assert max(at_once) * min(map(len, SENTENCES)) < 200 and sum(at_once) == len(ALL)
    for one, other in zip(whole.read(0, 10_000), few.read(0, 10_000), strict=True):
        assert one.tolist() == other.tolist()


def test_streamed_tokens_are_the_same_and_are_written_once(tmp_path: Path) -> None:
    tokenizer = small_tokenizer(tmp_path)
    encoder = CausalEncoder(tokenizer, 32)
    sets = []
    for streaming in (False, True):
        config = text_config("gpt2-tiny", data__streaming=streaming)
        rows = load_text_rows(config, tmp_path)
        sets.append([join_tokens(rows, numbers, encoder, tokenizer) for numbers in (rows.train, rows.held_out)])
    for held, streamed in zip(*sets, strict=True):
        assert len(held) == len(streamed) > 100
        for one, other in zip(held.read(0, len(held)), streamed.read(0, len(held)), strict=True):
            assert (one == other).all()
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("tokens-*")}
    assert len(files) == 2
    rows = load_text_rows(config, tmp_path)
    again = join_tokens(rows, rows.train, encoder, tokenizer)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("tokens-*")} == files
    spawned = pickle.loads(pickle.dumps(again))
    assert len(pickle.dumps(again)) < 1000 and (spawned.read(5, 9)[0] == again.read(5, 9)[0]).all()
    other_tokenizer = small_tokenizer(tmp_path / "other", vocabulary=280)
    join_tokens(rows, rows.train, CausalEncoder(other_tokenizer, 32), other_tokenizer)
    assert len(list(tmp_path.rglob("tokens-*"))) == 3


def test_tokens_that_cannot_be_kept_are_one_sentence(tmp_path: Path) -> None:
    tokenizer = small_tokenizer(tmp_path)
    rows = load_text_rows(text_config("gpt2-tiny", data__streaming=True), tmp_path)
    # A folder in the place of the lock: refused for every user, root too.
    (rows.folder / ".tokens.lock").mkdir()
    with pytest.raises(CannotRunError, match=r"cannot be kept in .*data\.streaming: false"):
        join_tokens(rows, rows.train, CausalEncoder(tokenizer, 8), tokenizer)


def test_rows_one_by_one_fillers_without_labels_and_chosen_ones(tmp_path: Path) -> None:
    tokenizer = small_tokenizer(tmp_path)
    rows = text_rows(["fox", "cat", "red"], ["old", "tall", "stones"])
    data = TextDataset(rows, np.array([2, 0]), CausalEncoder(tokenizer, 16).row)
    assert len(data) == 2
    assert data[(0, 0)][0].tolist()[: len(tokenizer("red")["input_ids"])] == tokenizer("red")["input_ids"]
    assert (data[(0, -1)][1] == IGNORED).all()
    chosen = Chosen(data, np.array([1]))
    assert len(chosen) == 1 and (chosen[(3, 0)][0] == data[(0, 1)][0]).all() and (chosen[(0, -1)][1] == IGNORED).all()


def test_prompts_stay_unlabelled_when_they_are_joined(tmp_path: Path) -> None:
    tokenizer = small_tokenizer(tmp_path)
    tokens = join_tokens(text_rows(["fox", "cat"], ["red", "tall"]), ALL[:2], CausalEncoder(tokenizer, 8), tokenizer)
    read, labelled = tokens.read(0, 100)
    answers = [
        *tokenizer("red")["input_ids"],
        tokenizer.eos_token_id,
        *tokenizer("tall")["input_ids"],
        tokenizer.eos_token_id,
    ]
    assert read[labelled].tolist() == answers
    assert read[~labelled].tolist() == [*tokenizer("fox")["input_ids"], *tokenizer("cat")["input_ids"]]


def test_blocks_are_full_and_the_rest_is_dropped() -> None:
    blocks = BlockDataset(TokenStore(np.arange(10, 33, dtype=np.int32)), 5)
    assert len(blocks) == 4
    tokens, labels = blocks[(0, 3)]
    assert tokens.tolist() == [25, 26, 27, 28, 29] and labels.tolist() == [26, 27, 28, 29, IGNORED]
    assert blocks[(7, 3)][0].tolist() == tokens.tolist()
    assert (blocks[(0, -1)][1] == IGNORED).all()


def test_token_0_is_a_token_with_or_without_a_label() -> None:
    tokens, labelled = TokenStore(np.array([0, -1, 5, -6], np.int32)).read(0, 4)
    assert tokens.tolist() == [0, 0, 5, 5] and labelled.tolist() == [True, False, True, False]
