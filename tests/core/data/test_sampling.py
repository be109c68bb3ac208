"""Samples of large files: sorted ones, whose first rows are the longest, and the estimate of how many rows there are."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.data import rows as rows_module
from trainwiz.core.data.blocks import sample_blocks
from trainwiz.core.data.proteins import SPECIAL_TOKENS
from trainwiz.core.data.reader import spread
from trainwiz.core.data.summary import SAMPLE_ROWS, TOKENIZED_ROWS, DataSummary, summarize_data
from trainwiz.core.errors import UsageError

from tests.core.data.builders import summary_of
from tests.each import each

ROWS = 90_000
LETTERS = "".join(random.Random(5).choices("LAGVSERTIDPKQNFYMHWC", k=3200))


def lengths() -> list[int]:
    generator = random.Random(4)
    return sorted((int(min(3000, generator.lognormvariate(4.6, 0.8))) + 8 for _ in range(ROWS)), reverse=True)


LENGTHS = lengths()
MEAN = sum(LENGTHS) / ROWS + SPECIAL_TOKENS


def sequences() -> list[str]:
    return [LETTERS[:length] for length in LENGTHS]


def as_fasta(sequence: str) -> str:
    return "".join(f"{sequence[at : at + 60]}\n" for at in range(0, len(sequence), 60))


TEXTS: dict[str, Callable[[str], str]] = {
    "jsonl": lambda one: json.dumps({"id": 7, "sequence": one}) + "\n",
    "txt": lambda one: one + "\r\n",
    "tsv": lambda one: f"7\t{one}\n",
    "csv": lambda one: f"7,{one}\n",
    "fasta": lambda one: f">p7 a protein\n{as_fasta(one)}",
}
HEADS = {"tsv": "id\tsequence\n", "csv": "id,sequence\n"}


@each("kind", TEXTS)
def test_a_sorted_text_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"rows.{kind}"
    path.write_text(HEADS.get(kind, "") + "".join(map(TEXTS[kind], sequences())), encoding="utf-8", newline="")
    found = summary_of(path)
    assert not found.rows_exact
    assert found.rows == pytest.approx(ROWS, rel=0.03)
    assert sum(found.lengths) / len(found.lengths) == pytest.approx(MEAN, rel=0.03)
    assert max(found.lengths) > 1000 and min(found.lengths) < 40
    assert not found.findings


@pytest.mark.parametrize("group", [2_000, 1_000_000])
def test_a_sorted_parquet_file(tmp_path: Path, group: int) -> None:
    path = tmp_path / "rows.parquet"
    # Letters that do not repeat make a file that is not small.
    generator = random.Random(6)
    long = "".join(generator.choices("LAGVSERTIDPKQNFYMHWC", k=1_000_000))
    starts = [generator.randrange(990_000) for _ in LENGTHS]
    texts = [long[start : start + length] for start, length in zip(starts, LENGTHS, strict=True)]
    pq.write_table(pa.table({"sequence": texts}), path, row_group_size=group)
    assert path.stat().st_size > 2 << 20
    found = summary_of(path)
    assert found.rows_exact and found.rows == ROWS
    assert sum(found.lengths) / len(found.lengths) == pytest.approx(MEAN, rel=0.1)


def test_blocks_hold_whole_lines_and_say_where(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    lines = [f"{'é' * (number % 50)} {number}" for number in range(200_000)]
    path.write_bytes("\n".join(lines).encode())
    raw, known, before = path.read_bytes(), set(lines), 0
    for block in sample_blocks(path, 5_000):
        assert block.start > before
        before = block.start
        for position, line in block.lines():
            assert line.rstrip("\n") in known
            assert raw[position - 1 :].startswith(line.encode())
            assert position == 1 or raw[position - 2 : position - 1] == b"\n"
    assert block.share < 1


def test_quoted_cells_with_line_ends_are_read_in_order(tmp_path: Path) -> None:
    """No line of such a file tells where a row begins: the sample is its start, and no row is torn."""
    path = tmp_path / "rows.csv"
    path.write_text("id,sequence\n" + f'7,"{LETTERS[:200]}\n{LETTERS[:200]}"\n' * 40_000, encoding="utf-8")
    config = RunConfig.model_validate(
        {
            "task": "causal-lm",
            "data": {"sources": [{"name": str(path), "text_column": "sequence"}], "concatenate": False},
        }
    )
    found = summarize_data(config)
    assert len(set(found.lengths)) == 1 and found.texts == pytest.approx(40_000, rel=0.05)


def test_a_record_longer_than_a_block(tmp_path: Path) -> None:
    path = tmp_path / "rows.fasta"
    path.write_text("".join(f">p{n}\n{as_fasta(LETTERS * 100)}" for n in range(40)), encoding="utf-8")
    found = summary_of(path)
    assert set(found.lengths) == {320_000 + SPECIAL_TOKENS}
    assert found.rows == pytest.approx(40, rel=0.5)


@pytest.mark.parametrize("kind", ["parquet", "txt"])
def test_of_many_files_some_are_read_and_all_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(rows_module, "SHARDS_BYTES", 0)
    each = 300
    for number in range(40):
        part = [LETTERS[: 50 + number]] * each
        if kind == "parquet":
            pq.write_table(pa.table({"sequence": part}), tmp_path / f"{number:02}.parquet")
        else:
            (tmp_path / f"{number:02}.txt").write_text("\n".join(part) + "\n")
    found = summary_of(tmp_path)
    assert found.rows == pytest.approx(40 * each, rel=0.02)
    assert found.rows_exact == (kind == "parquet")
    assert len(set(found.lengths)) == rows_module.SAMPLED_FILES
    assert found.bytes_on_disk == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_a_broken_file_among_those_that_are_only_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "SHARDS_BYTES", 0)
    for number in range(40):
        pq.write_table(pa.table({"sequence": [LETTERS[:50]] * 9}), tmp_path / f"{number:02}.parquet")
    unread = next(number for number in range(40) if number not in spread(40, rows_module.SAMPLED_FILES))
    (tmp_path / f"{unread:02}.parquet").write_bytes(b"PAR1 cut short")
    with pytest.raises(UsageError, match=f"{unread:02}.parquet"):
        summary_of(tmp_path)


def test_tokenizing_a_sample_has_a_bound(tmp_path: Path) -> None:
    """A large file gives about two thousand rows to a tokenizer, whose counts are exact."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    words = random.Random(8).choices(["protein", "folds", "slowly", "in", "water", "today"], k=50)
    tokenizer = Tokenizer(models.WordLevel(unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator([" ".join(words)], trainers.WordLevelTrainer(special_tokens=["?"]))
    (tmp_path / "tokens").mkdir()
    tokenizer.save(str(tmp_path / "tokens" / "tokenizer.json"))
    path = tmp_path / "rows.txt"
    path.write_text("".join(" ".join(words[: 20 + number % 30]) + "\n" for number in range(60_000)), encoding="utf-8")
    found = _texts(path, tmp_path / "tokens")
    assert found.length_unit == "tokens" and 1_000 < len(found.lengths) < SAMPLE_ROWS
    assert len(found.lengths) < 3 * TOKENIZED_ROWS
    assert sum(found.lengths) / len(found.lengths) == pytest.approx(34.5 + 1, rel=0.05)


def _texts(path: Path, tokenizer: Path) -> DataSummary:
    return summarize_data(
        RunConfig.model_validate(
            {
                "task": "causal-lm",
                "model": {"name": "gpt2-tiny", "tokenizer": str(tokenizer)},
                "data": {"sources": [{"name": str(path)}], "concatenate": False},
            }
        )
    )


def test_broken_lines_far_into_a_file_are_named_by_their_byte(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    good = "".join(map(TEXTS["jsonl"], sequences()))
    path.write_text(good + '{"sequence": "MKT\n' * 400_000, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        summary_of(path)
    message = caught.value.findings[0].message
    byte = int(message.split("byte ")[1].split(" ")[0])
    assert byte > len(good) and path.read_bytes()[byte - 1 :].startswith(b'{"sequence": "MKT\n')
