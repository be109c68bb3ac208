"""Summaries of text tasks: tokens counted where the tokenizer is here, joined texts, what rows take in memory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from trainwiz.core.config import RunConfig
from trainwiz.core.data import lengths as token_counts
from trainwiz.core.data.lengths import TokenCounter
from trainwiz.core.data.summary import summarize_data
from trainwiz.core.errors import UsageError

from tests.core.data.builders import parquet, write
from tests.core.data.hub_stand_in import HubStandIn, hub_server

WORDS = ["[UNK]", "</s>", "one", "two", "three", "four"]


def _tokenizer(folder: Path, *, ends: bool) -> Path:
    """A tokenizer whose tokens are words; `ends` appends an end token to each text, as T5's does."""
    folder.mkdir()
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if ends:
        tokenizer.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    tokenizer.enable_truncation(3)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def _config(task: str, name: object, tokenizer: object = None, **values: object) -> RunConfig:
    model = {"masked-lm": "esm2-tiny", "causal-lm": "gpt2-tiny", "seq2seq": "t5-chat-tiny"}[task]
    document = {
        "task": task,
        "model": {"name": model, "tokenizer": None if tokenizer is None else str(tokenizer)},
        "data": {"sources": [{"name": str(name)}], "validation_rows": 0, **values},
    }
    return RunConfig.model_validate(document)


def test_tokens_are_counted_uncut_where_the_tokenizer_is_here(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", source=["one two three four", "one"], target=["one two", "four"])
    summary = summarize_data(_config("seq2seq", path, _tokenizer(tmp_path / "t5", ends=True)))
    assert (summary.length_unit, summary.lengths, summary.target_lengths) == ("tokens", (5, 2), (3, 2))


def test_a_causal_row_is_prompt_response_and_end(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", prompt=["one two three four", "one"], response=["one two", "four"])
    config = _config("causal-lm", path, _tokenizer(tmp_path / "gpt", ends=False))
    config.data.sources[0].text_column, config.data.sources[0].target_column = "prompt", "response"
    summary = summarize_data(config)
    assert (summary.length_unit, summary.lengths, summary.target_lengths) == ("tokens", (7, 3), ())


def test_a_broken_or_missing_tokenizer_leaves_an_estimate(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "source\ttarget\none two\tthree\n")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tokenizer.json").write_text("{")
    for tokenizer in (tmp_path / "broken", "train", None, "no/where", tmp_path):
        assert summarize_data(_config("seq2seq", path, tokenizer)).length_unit == "tokens (estimated)"


def test_beyond_a_few_million_characters_the_ratio_of_the_counted_ones_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_counts, "MOST_CHARACTERS", 40)
    config = _config("seq2seq", "x", _tokenizer(tmp_path / "t5", ends=True))
    counter = TokenCounter(config, tmp_path)
    texts = pa.array(["four four four four"] * 2, pa.large_string())
    assert counter.count(texts).tolist() == [5, 5] and counter.unit == "tokens"
    # 38 bytes were 10 tokens: 3.8 bytes each, so 19 bytes are 5, and the special one comes on top.
    assert counter.count(texts).tolist() == [6, 6] and counter.unit == "tokens (estimated)"
    assert counter.count(texts, special=False).tolist() == [5, 5]


def test_joined_texts_count_as_full_sequences(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "one two three\n" * 500)
    config = _config("causal-lm", path, _tokenizer(tmp_path / "gpt", ends=False), validation_rows=100)
    config.batch.sequence_length = 64
    summary = summarize_data(config)
    # 400 and 100 texts of four tokens.
    assert (summary.rows, summary.validation_rows, summary.rows_exact) == (1600 // 64, 400 // 64, False)
    assert set(summary.lengths) == {64}
    assert (summary.texts, summary.held_out_texts) == (500, 100)
    config.data.concatenate = False
    summary = summarize_data(config)
    assert (summary.rows, summary.validation_rows, set(summary.lengths)) == (400, 100, {4})


def test_data_to_download_is_a_warning_and_what_is_broken_is_an_error_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = HubStandIn(files={"some/texts": {"train.jsonl": b'{"text": "a"}\n' * 9}})
    with hub_server(stand_in):
        monkeypatch.delenv("HF_HUB_OFFLINE")
        monkeypatch.setenv("HF_ENDPOINT", stand_in.endpoint)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
        with pytest.raises(UsageError) as caught:
            summarize_data(_config("causal-lm", "some/texts"))
        assert [(one.code, one.severity) for one in caught.value.findings] == [("data_to_download", "warning")]
        config = _config("causal-lm", "some/texts")
        config.data.validation_sources = [config.data.sources[0].model_copy(update={"name": "gone.csv"})]
        with pytest.raises(UsageError) as caught:
            summarize_data(config)
        assert [one.severity for one in caught.value.findings] == ["error", "warning"]
