"""Every format of text rows broken in every way: one sentence with the file and the row, while planning and at the start."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.data.blocks import LONGEST_LINE
from trainwiz.core.data.summary import summarize_data
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.errors import UsageError

from tests.core.data.builders import parquet, write
from tests.each import each

GOOD = '{"prompt": "a", "response": "b"}\n'
HUGE = "x" * (LONGEST_LINE + 5)


def _config(path: Path, task: str, **source: object) -> RunConfig:
    return RunConfig.model_validate(
        {"task": task, "data": {"sources": [{"name": str(path), **source}], "validation_rows": 0}}
    )


def _messages(config: RunConfig, folder: Path) -> list[str]:
    """What is said, the same by the plan and by the training."""
    with pytest.raises(UsageError) as planned:
        summarize_data(config)
    with pytest.raises(UsageError) as trained:
        load_text_rows(config, folder)
    messages = [finding.message for finding in planned.value.findings]
    assert messages == [finding.message for finding in trained.value.findings]
    assert all("\n" not in message and "Traceback" not in message and len(message) < 500 for message in messages)
    return messages


def _message(path: Path, task: str = "seq2seq", **source: object) -> str:
    messages = _messages(_config(path, task, **source), path.parent / "run")
    assert len(messages) == 1, messages
    assert str(path) in messages[0]
    return messages[0]


@each(
    ("content", "words"),
    [
        (GOOD * 3 + '{"prompt": 5, "response": "b"}\n', "line 4: 'prompt' holds a number, not text"),
        ('{"prompt": ["a"], "response": "b"}\n', "'prompt' is a list"),
        (GOOD + '{"prompt": {"a": "x"}, "response": "b"}\n', "line 2: 'prompt' holds an object, not text"),
        (GOOD + '{"prompt": "a"}\n', "line 2: the row has no 'response' (its keys: prompt)"),
        ('{"prompt": null, "response": "b"}\n' * 3, "all 3 rows of"),
        (GOOD + '{"prompt": "\\ud83d", "response": "b"}\n', "line 2: the text holds half a character (\\ud83d)"),
        (GOOD + '{"prompt": "cut', "line 2 is not a JSON object on one line (Unterminated string);"),
        (GOOD + "[" * 100_000 + "\n", "line 2 is not a JSON object on one line (nested too deep)"),
        (f'{{"prompt": {"1" * 5000}}}\n', "line 1 is not a JSON object on one line (a number of too many digits)"),
        ('{\n"prompt": "a"\n}\n', "line 1 is not a JSON object on one line"),
        ("\n\n", "holds no rows"),
        (GOOD.encode() + GOOD.replace("a", "\u00e9").encode("latin-1"), "line 2: the text is not UTF-8 (byte 0xe9)"),
        (GOOD.encode("utf-16"), "the text is UTF-16, not UTF-8"),
        (GOOD.encode("utf-16-le"), "line 1: the text holds zero bytes"),
    ],
)  # fmt: skip
def test_json_lines(tmp_path: Path, content: str | bytes, words: str) -> None:
    assert words in _message(write(tmp_path / "a.jsonl", content))


@each(
    ("content", "words"),
    [
        (json.dumps([{"prompt": "a", "response": "b"}] * 3, indent=1)[:-40], "row 3 is not JSON"),
        (f"[{GOOD}, {GOOD.replace('b', '')}, 7]", "row 3 holds a number where a JSON object"),
        (f"[{GOOD} {GOOD}]", "row 2 is not JSON (no comma before it)"),
        (f"[{GOOD},]", "row 2 is not JSON"),
        (f"[{GOOD}", "row 2 is not JSON"),
        ("[]", "holds no rows"),
        ('[{"prompt": "a", "response": true}]', "column 'response' holds true/false, not text"),
        (f'[{GOOD}, {{"prompt": "\u00e9", "response": "b"}}]'.encode("latin-1"), "row 2: the text is not UTF-8"),
    ],
)
def test_json_arrays(tmp_path: Path, content: str | bytes, words: str) -> None:
    assert words in _message(write(tmp_path / "a.json", content))


@each(
    ("content", "words"),
    [
        ("prompt,response\na,b\nHello, you,c\n", "line 3: the row has 3 cells where the first line has 2"),
        ("prompt,response\na,b\nHello\n", "line 3: the row has 1 of 2 columns; column 'response' is missing"),
        ('prompt,response\na,b\n"open,c\nd,e\nf,g\n', "line 3: a double quote is opened in this row and never closed"),
        ('prompt,response\na,b\nc,"open', "line 3: a double quote is opened in this row and never closed"),
        ("prompt,response\n", "holds no rows"),
        ("prompt,response\n,\n,b\n", "all 2 rows of"),
        ("prompt\na\n", "one text column, 'prompt', and none for the target"),
        ("prompt,fr,it\na,b,c\n", "does not say which column holds the target; its columns: prompt, fr, it"),
        (b"prompt,response\na,b\n\xe9,c\n", "line 3: the text is not UTF-8 (byte 0xe9)"),
    ],
)
def test_csv(tmp_path: Path, content: str | bytes, words: str) -> None:
    assert words in _message(write(tmp_path / "a.csv", content))


def test_tsv(tmp_path: Path) -> None:
    wide = _message(write(tmp_path / "a.tsv", "prompt\tresponse\na\tb\tc\n"))
    assert "line 2: the row has 3 cells where the first line has 2; a tab inside a text must be replaced" in wide
    short = _message(write(tmp_path / "b.tsv", "Hi!\tAh.\nx\n"), text_column=0, target_column=1)
    assert "line 2: the row has 1 of 2 columns" in short


@each(
    ("column", "words"),
    [
        (pa.array([1, 2]), "column 'text' holds int64, not text"),
        (pa.array([None, None]), "column 'text' holds null, not text"),
        (pa.array([["a"], ["b"]]), "'text' is a list"),
        (pa.array([None, "", " "], pa.string()), "all 3 rows of"),
        (pa.array([], pa.string()), "holds no rows"),
        (pa.array([b"ok", b"\xff\xfe"]), "row 2: the text is not UTF-8 (byte 0xff)"),
    ],
)
def test_parquet(tmp_path: Path, column: pa.Array, words: str) -> None:
    assert words in _message(parquet(tmp_path / "a.parquet", text=column), "causal-lm")


def test_text_files(tmp_path: Path) -> None:
    assert "holds no rows" in _message(write(tmp_path / "a.txt", "\n \n"), "causal-lm")
    mixed = write(tmp_path / "b.txt", "\u4f60\u597d\n".encode() + "\u4f60\u597d\n".encode("gbk"))
    assert "line 2: the text is not UTF-8 (byte 0xc4)" in _message(mixed, "causal-lm")
    assert "a zip archive or an Excel file, not txt" in _message(write(tmp_path / "c.txt", b"PK\x03\x04"), "causal-lm")
    assert "line 1: the text holds zero bytes" in _message(write(tmp_path / "d.txt", bytes(600)), "causal-lm")


@pytest.mark.parametrize(
    ("name", "before", "after", "place"),
    [
        ("a.txt", "a\n", "", "line 2"),
        ("a.csv", "text,id\na,1\n", ",2\n", "line 3"),
        ("a.jsonl", '{"text": "a"}\n{"text": "', '"}\n', "line 2"),
        ("a.json", '[{"text": "a"}, {"text": "', '"}]', "row 2"),
    ],
)
def test_a_row_that_would_fill_the_memory(tmp_path: Path, name: str, before: str, after: str, place: str) -> None:
    message = _message(write(tmp_path / name, before + HUGE + after), "causal-lm")
    assert place in message and f"{LONGEST_LINE:,} characters or more" in message


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.txt"
    os.mkfifo(pipe)
    assert "no regular file" in _message(pipe, "causal-lm")


def test_no_row_within_the_limits_on_both_sides(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", prompt=["long enough", "x"], response=["y", "long enough"])
    message = _message(path, min_characters=5, max_characters=400)
    assert "all 2 rows of" in message and "none has 5 to 400 characters" in message
