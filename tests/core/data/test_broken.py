"""Each broken input ends in one sentence that names the file, the place and what to do, while planning and at the start."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from trainwiz.core.data import rows, sources, tables, text_file
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.errors import UsageError

from tests.core.data.builders import PROTEINS, config_for, config_of, fasta_text, parquet, refused, summary_of, write
from tests.each import each

GOOD = '{"prompt": "a", "response": "b"}\n'
LONGEST_LINE = 30_000
HUGE = "x" * (LONGEST_LINE + 5)
PACKED = gzip.compress(fasta_text(PROTEINS * 500).encode())


def _message(path: Path | str) -> str:
    (message,) = refused(config_for(path))
    return message


def _of_text(path: Path, task: str = "seq2seq", **source: object) -> str:
    """What is said of rows of text, the same by the plan and by the training."""
    config = config_of(task, {"name": str(path), **source}, validation_rows=0)
    with pytest.raises(UsageError) as trained:
        load_text_rows(config, path.parent / "run")
    (message,) = refused(config)
    assert [message] == [finding.message for finding in trained.value.findings]
    assert len(message) < 500 and str(path) in message
    return message


@each(("name", "content", "words"), [
    ("a.csv", "", "is empty (0 bytes)"),
    ("a.fasta.gz", PACKED[: len(PACKED) // 2], "the gzip data is truncated"),
    ("a.fasta.gz", PACKED[:30] + b"\x00" * 40 + PACKED[70:], "the gzip data is corrupt"),
    ("a.fasta", b">a\nMK\xff\n", "a.fasta, line 1: the text is not UTF-8 (byte 0xff)"),
    ("a.fasta", "MKT\n", "line 1: there is text before the first '>'"),
    ("a.parquet", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer"),
    ("a.csv", "<!DOCTYPE html><html></html>", "web page"),
    ("a.fasta", ">a\nMKT\n>b\n\nMKTA\nMK;T\n", "a.fasta, line 3: characters outside the protein alphabet"),
    ("b.fasta", ">a\nMKT\nM\u00e9T\n", "b.fasta, line 1: characters outside the protein alphabet"),
    ("a.jsonl", '{"sequence": "MKT"}\n\n{"sequence": "MK;T"}\n', "line 3: characters outside the protein alphabet"),
])  # fmt: skip
def test_files_of_proteins(tmp_path: Path, name: str, content: str | bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    assert words in _message(tmp_path / name)


def test_parquet_of_proteins(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", sequence=PROTEINS * 100)
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"\xff" * 56 + data[60:])
    assert "not a complete parquet file" in _message(path)
    other = parquet(tmp_path / "b.parquet", sequence=PROTEINS).rename(tmp_path / "b.csv")
    assert "is a parquet file, not csv" in _message(other)


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none, two, many = (tmp_path / name for name in ("none", "two", "many"))
    for folder in (none, two, many):
        folder.mkdir()
    write(none / "x.bin", "1")
    assert "contains no data file (looked for .parquet" in _message(none)
    write(two / "a.csv", "sequence\nMKT\n")
    write(two / "a.jsonl", '{"sequence": "MKT"}\n')
    assert "several formats" in _message(two) and summary_of(two, format="csv").rows == 1
    for number in range(rows.NAMED_FILES + 7):
        write(many / f"{number:03}.fasta", "")
    assert ["is empty (0 bytes)" in said for said in refused(config_for(many))] == [True] * rows.NAMED_FILES
    monkeypatch.setattr(sources, "MOST_ENTRIES", 3)
    assert "more than 3 files and folders" in _message(many)


def test_missing_files_name_the_nearest_and_all_broken_sources_are_named_at_once(tmp_path: Path) -> None:
    write(tmp_path / "proteins.csv", "sequence\nMKT\n")
    assert "'proteins.csv'" in _message(tmp_path / "protein.csv")
    assert "'sample-proteins'" in _message("sample-protein")
    broken = (write(tmp_path / "a.csv", ""), tmp_path / "gone.parquet", write(tmp_path / "b.txt", "MK1\n"))
    assert all(path.name in message for path, message in zip(broken, refused(config_for(*broken)), strict=True))


@each(("name", "content", "words"), [
    ("a.jsonl", GOOD * 3 + '{"prompt": 5, "response": "b"}\n', "line 4: 'prompt' contains a number, not text"),
    ("a.jsonl", GOOD + '{"prompt": {"a": "x"}, "response": "b"}\n', "line 2: 'prompt' contains an object, not text"),
    ("a.jsonl", GOOD + '{"prompt": "a"}\n', "line 2: the row has no 'response' (its keys: prompt)"),
    ("a.jsonl", '{"prompt": null, "response": "b"}\n' * 3, "all 3 rows of"),
    ("a.jsonl", GOOD + '{"prompt": "\\ud83d", "response": "b"}\n', "line 2: the text contains an unpaired surrogate (\\ud83d)"),
    ("a.jsonl", GOOD + '{"prompt": "cut', "line 2 is not a JSON object on one line (Unterminated string);"),
    ("a.jsonl", GOOD + "[" * 100_000 + "\n", "line 2 is not a JSON object on one line (nested too deeply)"),
    ("a.jsonl", f'{{"prompt": {"1" * 5000}}}\n', "line 1 is not a JSON object on one line (a number with too many digits)"),
    ("a.jsonl", "\n\n", "has no rows"),
    ("a.jsonl", GOOD.encode() + GOOD.replace("a", "\u00e9").encode("latin-1"), "line 2: the text is not UTF-8 (byte 0xe9)"),
    ("a.jsonl", GOOD.encode("utf-16"), "the text is UTF-16, not UTF-8"),
    ("a.jsonl", GOOD.encode("utf-16-le"), "line 1: the text contains NUL bytes"),
    ("a.json", json.dumps([{"prompt": "a", "response": "b"}] * 3, indent=1)[:-40], "row 3 is not valid JSON"),
    ("a.json", f"[{GOOD}, {GOOD.replace('b', '')}, 7]", "row 3 contains a number, but must be a JSON object"),
    ("a.jsonl", f"[{GOOD}]\n[{GOOD}]\n", "has more after the end of its list; write one list of all rows"),
    ("a.json", f"[{GOOD} {GOOD}]", "row 2 is not valid JSON (no comma before it)"),
    ("a.json", f'[{GOOD}, {{"prompt": "\u00e9", "response": "b"}}]'.encode("latin-1"), "row 2: the text is not UTF-8"),
    ("a.csv", "prompt,response\na,b\nHello, you,c\n", "line 3: the row has 3 cells, but the first line has 2"),
    ("a.csv", "prompt,response\na,b\nHello\n", "line 3: the row has 1 of 2 columns; column 'response' is missing"),
    ("a.csv", 'prompt,response\na,b\n"open,c\nd,e\nf,g\n', "line 3: a double quote in this row is never closed"),
    ("a.csv", "prompt,response\n", "has no rows"),
    ("a.csv", "prompt,response\n,\n,b\n", "all 2 rows of"),
    ("a.csv", "prompt,fr,it\na,b,c\n", "does not indicate which column contains the target; its columns: prompt, fr, it"),
    ("a.csv", b"prompt,response\na,b\n\xe9,c\n", "line 3: the text is not UTF-8 (byte 0xe9)"),
    ("a.tsv", "prompt\tresponse\na\tb\tc\n", "has 3 cells, but the first line has 2; replace tabs inside a text"),
])  # fmt: skip
def test_files_of_pairs(tmp_path: Path, name: str, content: str | bytes, words: str) -> None:
    assert words in _of_text(write(tmp_path / name, content))


@each(("name", "content", "words"), [
    ("a.txt", "\u4f60\n".encode() + "\u4f60\n".encode("gbk"), "line 2: the text is not UTF-8 (byte 0xc4)"),
    ("a.txt", b"PK\x03\x04", "a zip archive or an Excel file, not a supported"),
    ("a.parquet", pa.array([1, 2]), "contains int64, not text, in column 'text'"),
    ("a.parquet", pa.array([["a"], ["b"]]), "'text' is a list"),
    ("a.parquet", pa.array([None, "", " "], pa.string()), "all 3 rows of"),
    ("a.parquet", pa.array([b"ok", b"\xff\xfe"]), "row 2: the text is not UTF-8 (byte 0xff)"),
    # A row that would fill the memory.
    ("a.txt", "a\n" + HUGE, "line 2"),
    ("a.csv", f"text,id\na,1\n{HUGE},2\n", "line 3"),
    ("a.jsonl", f'{{"text": "a"}}\n{{"text": "{HUGE}"}}\n', "line 2"),
    ("a.json", f'[{{"text": "a"}}, {{"text": "{HUGE}"}}]', "row 2"),
])  # fmt: skip
def test_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: Any, words: str) -> None:
    for module in (tables, text_file):
        monkeypatch.setattr(module, "LONGEST_LINE", LONGEST_LINE)
    path = tmp_path / name
    path = parquet(path, text=content) if isinstance(content, pa.Array) else write(path, content)
    message = _of_text(path, "causal-lm")
    assert words in message
    assert len(content) < LONGEST_LINE or f"{LONGEST_LINE:,} or more characters" in message


def test_columns_by_position_and_limits_that_no_row_meets(tmp_path: Path) -> None:
    short = _of_text(write(tmp_path / "b.tsv", "Hi!\tAh.\nx\n"), text_column=0, target_column=1)
    assert "line 2: the row has 1 of 2 columns" in short
    path = parquet(tmp_path / "a.parquet", prompt=["long enough", "x"], response=["y", "long enough"])
    message = _of_text(path, min_characters=5, max_characters=400)
    assert "all 2 rows of" in message and "none has 5 to 400 characters" in message
