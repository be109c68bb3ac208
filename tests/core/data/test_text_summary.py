"""Summaries of text tasks: tokens counted where the tokenizer is here, joined texts, what rows take in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from trainwiz.core.config import RunConfig
from trainwiz.core.data import lengths as token_counts
from trainwiz.core.data.lengths import TokenCounter
from trainwiz.core.data.summary import SAMPLE_ROWS, summarize_data
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.errors import UsageError

from tests.core.data.builders import parquet, write
from tests.core.data.hub_stand_in import HubStandIn, hub_server
from tests.each import each

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


def test_a_tokenizer_in_the_hub_cache_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = tmp_path / "models--some--model" / "snapshots"
    snapshot.mkdir(parents=True)
    _tokenizer(snapshot / "abc", ends=True)
    (snapshot / "abc" / "config.json").write_text("{}")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    path = write(tmp_path / "a.tsv", "source\ttarget\none two\tthree\n")
    assert summarize_data(_config("seq2seq", path, "some/model")).lengths == (3,)


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


@each(
    ("init", "vocabulary", "tokens"),
    [("pretrained", None, 101), ("scratch", 500, 201), ("scratch", 2000, 135), ("scratch", 10**6, 101), ("scratch", 0, 101)],
)  # fmt: skip
def test_without_a_tokenizer_the_vocabulary_says_how_long_a_token_is(
    tmp_path: Path, init: str, vocabulary: int | None, tokens: int
) -> None:
    """2 bytes a token with 500 entries, half a byte more for each doubling, 4 at most."""
    config = _config("causal-lm", "x", "train")
    config.model.init = "pretrained" if init == "pretrained" else "scratch"
    if vocabulary is not None:
        config.model.architecture_overrides = {"vocab_size": vocabulary}
    counter = TokenCounter(config, tmp_path)
    assert counter.count(pa.array(["four" * 100], pa.large_string())).tolist() == [tokens]


def test_the_tokenizer_beside_a_model_or_named_by_its_file_is_used(tmp_path: Path) -> None:
    folder = _tokenizer(tmp_path / "mine", ends=False)
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "vocab_size": 6}))
    texts = pa.array(["one two"], pa.large_string())
    config = _config("causal-lm", "x")
    config.model.name = str(folder)
    named = _config("causal-lm", "x", folder / "tokenizer.json")
    for one in (config, named):
        counter = TokenCounter(one, tmp_path)
        assert counter.count(texts).tolist() == [2] and counter.unit == "tokens"


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


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("tatoeba_zh_en.tsv", {"text_column": 1, "target_column": 0}),
        ("chat_zh_train_3k.parquet", {"text_column": "prompt", "target_column": "response"}),
    ],
)
def test_the_estimate_is_near_what_a_tokenizer_made_from_the_data_counts(
    shared_data: Path, tmp_path: Path, file: str, source: dict[str, object]
) -> None:
    from tokenizers import trainers

    config = _config("seq2seq", shared_data / file)
    config.data.sources[0] = config.data.sources[0].model_copy(update=source)
    rows = load_text_rows(config, tmp_path)
    assert rows.targets is not None
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([*rows.texts, *rows.targets], trainer)
    counted = sum(len(encoding.ids) + 1 for encoding in tokenizer.encode_batch(list(rows.texts))) / len(rows.texts)
    lengths = summarize_data(config).lengths
    assert sum(lengths) / len(lengths) == pytest.approx(counted, rel=0.35)


def test_rows_in_memory_are_their_bytes_and_offsets(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "source\ttarget\n" + "\u4f60\u597d\tabcd\n" * 1000)
    assert summarize_data(_config("seq2seq", path)).bytes_in_memory == 1000 * (6 + 4 + 2 * 8)


def test_limits_of_all_sources_hold_for_proteins_too(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "MK\nMKT\nMKTA\nMKTAY\n")
    assert summarize_data(_config("masked-lm", path, min_characters=3, max_characters=4)).lengths == (5, 6)
    limited = _config("masked-lm", path, min_characters=3, max_characters=4)
    limited.data.sources[0].max_characters = 5
    assert summarize_data(limited).lengths == (5, 6, 7)


def test_both_sides_are_within_the_limits(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "source\ttarget\nab\tabcdef\nabc\tabc\na\tabc\n")
    assert summarize_data(_config("seq2seq", path, min_characters=2, max_characters=5)).rows == 1


def test_real_pairs_within_the_guides_limits(shared_data: Path) -> None:
    config = _config("seq2seq", shared_data / "tatoeba_zh_en.tsv", min_characters=10, max_characters=400)
    config.data.sources[0] = config.data.sources[0].model_copy(update={"text_column": 1, "target_column": 0})
    lines = (shared_data / "tatoeba_zh_en.tsv").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t")[:2] for line in lines]
    kept = sum(all(10 <= len(side.strip()) <= 400 for side in pair) for pair in pairs)
    summary = summarize_data(config)
    assert (summary.rows, summary.rows_exact) == (kept, True)
    assert len(lines) > SAMPLE_ROWS, "a file of 3 MB is read whole: this one is sorted by length"


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
