"""Summaries: splits and estimates, tokens counted where the tokenizer is here, samples of large files."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from trainwiz.core.config import RunConfig
from trainwiz.core.data import lengths as token_counts
from trainwiz.core.data import rows as rows_module
from trainwiz.core.data.lengths import TokenCounter
from trainwiz.core.data.reader import spread
from trainwiz.core.data.summary import SAMPLE_ROWS, TOKENIZED_ROWS, summarize_data
from trainwiz.core.data.text_store import SPECIAL_TOKENS
from trainwiz.core.errors import UsageError

from tests.core.data.builders import config_for, config_of, parquet, summary_of, write
from tests.each import each


def test_held_out_rows_are_not_counted_as_training_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "MKT\n" * 300)
    config = config_for(path)
    for wanted, held in ((None, 3), (0, 0), (50, 50), (400, 150)):
        config.data.validation_rows = wanted
        summary = summarize_data(config)
        assert (summary.rows, summary.validation_rows) == (300 - held, held)
    config.data.validation_sources = config_for(write(tmp_path / "b.txt", "MKT\n" * 4)).data.sources
    assert (summarize_data(config).rows, summarize_data(config).validation_rows) == (300, 4)


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


def of_task(task: str, name: object, tokenizer: object = None, **values: object) -> RunConfig:
    config = config_of(task, {"name": str(name)}, **{"validation_rows": 0, **values})
    config.model.name = {"causal-lm": "gpt2-tiny", "seq2seq": "t5-chat-tiny"}[task]
    config.model.tokenizer = None if tokenizer is None else str(tokenizer)
    return config


def test_tokens_are_counted_uncut_where_the_tokenizer_is_here(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", prompt=["one two three four", "one"], response=["one two", "four"])
    pairs = of_task("seq2seq", path, _tokenizer(tmp_path / "t5", ends=True))
    # A causal row is prompt, response and end.
    causal = of_task("causal-lm", path, _tokenizer(tmp_path / "gpt", ends=False))
    causal.data.sources[0].text_column, causal.data.sources[0].target_column = "prompt", "response"
    for config, lengths, target_lengths in ((pairs, (5, 2), (3, 2)), (causal, (7, 3), ())):
        found = summarize_data(config)
        assert (found.length_unit, found.lengths, found.target_lengths) == ("tokens", lengths, target_lengths)


def test_without_a_tokenizer_in_the_cache_tokens_are_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.tsv", "source\ttarget\none two\tthree\n")
    write(tmp_path / "tokenizer.json", "{")
    for tokenizer in (tmp_path, "train", None, "no/where"):
        assert summarize_data(of_task("seq2seq", path, tokenizer)).length_unit == "tokens (estimated)"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    place = tmp_path / "models--openai-community--gpt2-medium" / "snapshots" / "abc"
    place.parent.mkdir(parents=True)
    write(_tokenizer(place, ends=False) / "config.json", "{}")
    config = RunConfig.model_validate({"task": "causal-lm", "model": {"name": "gpt2-medium"}})
    assert token_counts.tokenizer_folder(config, tmp_path) == place


def test_beyond_a_few_million_characters_a_ratio_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_counts, "MOST_CHARACTERS", 40)
    config = of_task("seq2seq", "x", _tokenizer(tmp_path / "t5", ends=True))
    counter = TokenCounter(config, tmp_path)
    texts = pa.array(["four four four four"] * 2, pa.large_string())
    assert counter.count(texts).tolist() == [5, 5] and counter.unit == "tokens"
    # 38 bytes were 10 tokens: 3.8 bytes each, so 19 bytes are 5, and the special one comes on top.
    assert counter.count(texts).tolist() == [6, 6] and counter.unit == "tokens (estimated)"
    assert counter.count(texts, special=False).tolist() == [5, 5]


def test_joined_texts_count_as_full_sequences(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "one two three\n" * 500)
    config = of_task("causal-lm", path, _tokenizer(tmp_path / "gpt", ends=False), validation_rows=100)
    config.batch.sequence_length = 64
    summary = summarize_data(config)
    # 400 and 100 texts of four tokens.
    assert (summary.rows, summary.validation_rows, summary.rows_exact) == (1600 // 64, 400 // 64, False)
    assert set(summary.lengths) == {64}
    assert summary.texts == 500
    config.data.concatenate = False
    summary = summarize_data(config)
    assert (summary.rows, summary.validation_rows, set(summary.lengths)) == (400, 100, {4})


ROWS = 60_000
LETTERS = "".join(random.Random(5).choices("LAGVSERTIDPKQNFYMHWC", k=3200))
DRAW = random.Random(4)
LENGTHS = sorted((int(min(3000, DRAW.lognormvariate(4.6, 0.8))) + 8 for _ in range(ROWS)), reverse=True)
MEAN = sum(LENGTHS) / ROWS + SPECIAL_TOKENS


def as_fasta(sequence: str) -> str:
    return "".join(f"{sequence[at : at + 60]}\n" for at in range(0, len(sequence), 60))


TEXTS: dict[str, Callable[[str], str]] = {
    "jsonl": lambda one: json.dumps({"id": 7, "sequence": one}) + "\n",
    "csv": lambda one: f"7,{one}\r\n",
    "fasta": lambda one: f">p7 a protein\n{as_fasta(one)}",
}


@each("kind", TEXTS)
def test_a_sorted_text_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"rows.{kind}"
    header = "id,sequence\n" if kind == "csv" else ""
    rows = "".join(TEXTS[kind](LETTERS[:length]) for length in LENGTHS)
    path.write_text(header + rows, encoding="utf-8", newline="")
    found = summary_of(path)
    assert not found.rows_exact and found.rows == pytest.approx(ROWS, rel=0.03)
    assert sum(found.lengths) / len(found.lengths) == pytest.approx(MEAN, rel=0.03)
    assert max(found.lengths) > 1000 and min(found.lengths) < 40
    assert not found.findings


@each("group", [2_000, 1_000_000])
def test_a_sorted_parquet_file(tmp_path: Path, group: int) -> None:
    path = tmp_path / "rows.parquet"
    # Letters that do not repeat make a file that is not small.
    generator = random.Random(6)
    long = "".join(generator.choices("LAGVSERTIDPKQNFYMHWC", k=1_000_000))
    starts = [generator.randrange(990_000) for _ in LENGTHS]
    texts = [long[start : start + length] for start, length in zip(starts, LENGTHS, strict=True)]
    parquet(path, row_group_size=group, sequence=texts)
    assert path.stat().st_size > 2 << 20
    found = summary_of(path)
    assert found.rows_exact and found.rows == ROWS
    assert sum(found.lengths) / len(found.lengths) == pytest.approx(MEAN, rel=0.1)


def test_quoted_cells_with_line_ends_are_read_in_order(tmp_path: Path) -> None:
    """No line of such a file tells where a row begins: the sample is its start, and no row is torn."""
    path = tmp_path / "rows.csv"
    path.write_text("id,sequence\n" + f'7,"{LETTERS[:200]}\n{LETTERS[:200]}"\n' * 40_000, encoding="utf-8")
    found = summarize_data(config_of("causal-lm", {"name": str(path), "text_column": "sequence"}, concatenate=False))
    assert len(set(found.lengths)) == 1 and found.texts == pytest.approx(40_000, rel=0.05)


def test_rows_longer_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three lines of 12 MB were 2,000,000,000 rows: a file that was closed again had been read to 0 %."""
    path = tmp_path / "rows.fasta"
    path.write_text("".join(f">p{n}\n{as_fasta(LETTERS * 100)}" for n in range(20)), encoding="utf-8")
    found = summary_of(path)
    assert set(found.lengths) == {320_000 + SPECIAL_TOKENS}
    assert found.rows == pytest.approx(20, rel=0.5)
    # Where no row begins in a block, they are read one after another.
    for place, most in (("rows.SMALL_BYTES", 1000), ("text_file.BATCH_CHARACTERS", 1000), ("text_file.BLOCKS", 1)):
        monkeypatch.setattr(f"trainwiz.core.data.{place}", most)
    assert summary_of(write(tmp_path / "a.txt", (LETTERS * 125 + "\n") * 7)).rows == 7


@each("kind", ["parquet", "txt"])
def test_many_files_are_opened_and_some_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(rows_module, "SHARDS_BYTES", 0)
    for number in range(40):
        part = [LETTERS[: 50 + number]] * 300
        if kind == "parquet":
            parquet(tmp_path / f"{number:02}.parquet", sequence=part)
        else:
            (tmp_path / f"{number:02}.txt").write_text("\n".join(part) + "\n")
    found = summary_of(tmp_path)
    assert found.rows == pytest.approx(40 * 300, rel=0.02)
    assert found.rows_exact == (kind == "parquet")
    assert len(set(found.lengths)) == rows_module.SAMPLED_FILES
    assert found.bytes_on_disk == sum(path.stat().st_size for path in tmp_path.iterdir())
    if kind == "parquet":
        unread = next(number for number in range(40) if number not in spread(40, rows_module.SAMPLED_FILES))
        (tmp_path / f"{unread:02}.parquet").write_bytes(b"PAR1 cut short")
        with pytest.raises(UsageError, match=f"{unread:02}.parquet"):
            summary_of(tmp_path)


def test_tokenizing_a_sample_has_a_bound(tmp_path: Path) -> None:
    """A large file gives about two thousand rows to a tokenizer, whose counts are exact."""
    words = random.Random(8).choices(WORDS[2:], k=50)
    path = tmp_path / "rows.txt"
    path.write_text("".join(" ".join(words[: 20 + number % 30]) + "\n" for number in range(60_000)), encoding="utf-8")
    found = summarize_data(of_task("causal-lm", path, _tokenizer(tmp_path / "gpt", ends=False), concatenate=False))
    assert found.length_unit == "tokens" and 1_000 < len(found.lengths) < SAMPLE_ROWS
    assert len(found.lengths) < 3 * TOKENIZED_ROWS
    assert sum(found.lengths) / len(found.lengths) == pytest.approx(34.5 + 1, rel=0.05)


def test_broken_lines_far_into_a_file_are_named_by_their_byte(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    good = "".join(TEXTS["jsonl"](LETTERS[:length]) for length in LENGTHS)
    path.write_text(good + '{"sequence": "MKT\n' * 400_000, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        summary_of(path)
    message = caught.value.findings[0].message
    byte = int(message.split("byte ")[1].split(" ")[0])
    assert byte > len(good) and path.read_bytes()[byte - 1 :].startswith(b'{"sequence": "MKT\n')
