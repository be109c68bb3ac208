"""Tails read exactly what was appended, however it was cut, truncated, replaced or broken."""

from __future__ import annotations

import json
import math
import os
import random
from pathlib import Path

import pytest
from trainwiz.core.lines import LONGEST_LINE_BYTES, JsonLinesTail, TextTail

from tests.each import each


def read_all(tail: JsonLinesTail) -> list[dict]:
    rows = tail.read_new()
    while tail.behind:
        rows += tail.read_new()
    return rows


@each("seed", range(20))
def test_any_cut_of_the_bytes_gives_the_same_rows(tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    rows = [{"step": n, "text": source.choice(["é", "体", "x" * source.randrange(200), "\u2028"])} for n in range(200)]
    document = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    path = tmp_path / "m.jsonl"
    tail = JsonLinesTail(path)
    seen: list[dict] = []
    position = 0
    while position < len(document):
        step = source.choice([1, 2, 3, 17, 400, 5000])
        with path.open("ab") as file:
            file.write(document[position : position + step])
        position += step
        seen += read_all(tail)
    assert seen == rows
    assert tail.garbage_lines == 0
    assert read_all(tail) == []


@pytest.mark.parametrize("same_inode", [True, False])
def test_replacement_by_a_longer_file_starts_again(tmp_path: Path, same_inode: bool) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"a": 1}\n')
    tail = JsonLinesTail(path)
    tail.read_new()
    longer = "".join(json.dumps({"b": n}) + "\n" for n in range(100))
    if same_inode:
        path.write_text(longer)
    else:
        other = tmp_path / "other"
        other.write_text(longer)
        other.replace(path)
    assert tail.read_new() == [{"b": n} for n in range(100)]
    assert tail.resets == 1


def test_rewriting_to_the_same_size_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"a": 1}\n')
    tail = JsonLinesTail(path)
    tail.read_new()
    path.write_text('{"a": 2}\n')
    os.utime(path, ns=(1, 1))
    assert tail.read_new() == [{"a": 2}]


def test_garbage_is_counted_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(
        b'{"a": 1}\n\nnonsense\n[1]\n"text"\n\x00\x00\x00\n{"a": \xff}\n' + b"[" * 200_000 + b'\n{"a": 9}\r\n'
    )
    tail = JsonLinesTail(path)
    assert read_all(tail) == [{"a": 1}, {"a": 9}]
    assert tail.garbage_lines == 6


def test_a_line_without_end_is_bounded_and_the_next_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    with path.open("wb") as file:
        file.write(b'{"a": 1}\n')
        for _ in range(10):
            file.write(b"x" * LONGEST_LINE_BYTES)
        file.write(b'\n{"a": 2}\n')
    tail, rows, held = JsonLinesTail(path), [], []
    while not rows or tail.behind:
        rows += tail.read_new()
        held.append(len(tail._half))
    assert rows == [{"a": 1}, {"a": 2}]
    assert tail.garbage_lines == 1
    assert max(held) <= LONGEST_LINE_BYTES


def test_a_folder_in_place_of_the_file_is_a_sentence(tmp_path: Path) -> None:
    tail = JsonLinesTail(tmp_path)
    assert tail.read_new() == []
    assert tail.problem is not None and str(tmp_path) in tail.problem


@each("seed", range(10))
def test_text_survives_any_cut(tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    text = "".join(source.choice(["a", "é", "体", "🙂", "\n", "\r"]) for _ in range(3000))
    document = text.encode()
    path = tmp_path / "train.log"
    tail = TextTail(path)
    seen, position = "", 0
    while position < len(document):
        step = source.choice([1, 2, 3, 5, 100])
        with path.open("ab") as file:
            file.write(document[position : position + step])
        position += step
        seen += tail.read_new()
    assert seen == text


def test_text_of_a_large_log_is_entered_near_its_end_at_a_line(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    lines = [f"line {n}" for n in range(10_000)]
    path.write_text("\n".join(lines) + "\n")
    tail = TextTail(path, window_bytes=1000)
    seen = tail.read_new().splitlines()
    assert seen == lines[-len(seen) :]
    assert 80 < len(seen) < 100
    assert tail.skipped_bytes > 0
    with path.open("a") as file:
        file.write("after\n")
    assert tail.read_new() == "after\n"


def test_rows_with_a_window_are_entered_near_the_end(tmp_path: Path) -> None:
    path = tmp_path / "system.jsonl"
    path.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(10_000)))
    tail = JsonLinesTail(path, window_bytes=1000)
    numbers = [row["n"] for row in read_all(tail)]
    assert numbers == list(range(numbers[0], 10_000))
    assert 50 < len(numbers) < 120
    assert tail.garbage_lines == 0
    with path.open("a") as file:
        file.write('{"n": 10000}\n')
    assert tail.read_new() == [{"n": 10000}]


NUMBER_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf, "inf": math.inf, "-inf": -math.inf}
HOSTILE_LINES = [
    b'{"step": 1, "loss": 0.1, "rate": 1e-05, "big": 18446744073709551615, "low": -9223372036854775808}',
    b'{"loss": NaN, "a": Infinity, "b": -Infinity}',
    b'{"loss": "NaN", "a": "Infinity", "b": "-Infinity", "c": "inf", "d": "-inf", "e": "NaN!", "f": ["NaN"]}',
    b'{"zero": -0, "negative": -0.0, "huge": 1e400, "tiny": 1e-400, "long": 0.1000000000000000055511151231257827}',
    b'{"loss": 1, "loss": 2}',
    b'\t {"spaces": 1} \r',
    b'\xef\xbb\xbf{"mark": 1}',
    b'{"text": "\xff\xfe", "pair": "\\ud83d\\ude00", "lone": "\\ud800"}',
    b'{"control": "\x01"}',
    b'{"nul": "\\u0000", "separator": "\xe2\x80\xa8"}',
    b'{"deep": ' + b"[" * 1200 + b"]" * 1200 + b"}",
    b'{"deeper": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    b'{"cut": 1, "off',
    b'{"a": 1} {"b": 2}',
    b'{"a": 1,}',
    b"{'a': 1}",
    b'{"a": 01, "b": .5, "c": +1}',
    b'{"none": null, "yes": true, "nested": {"x": [1, 2.5, "s"]}}',
    b"{}",
    b"[1, 2]",
    b"NaN",
    b"7",
    b'"text"',
    b"",
    b"   ",
    b"not json",
]


def as_the_standard_library(line: bytes) -> dict | None:
    try:
        row = json.loads(line.strip().decode("utf-8-sig", errors="replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    return {key: NUMBER_WORDS.get(value, value) if isinstance(value, str) else value for key, value in row.items()}


@each("seed", range(30))
def test_hostile_lines_read_as_the_standard_library_reads_them(tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    lines = [source.choice(HOSTILE_LINES) for _ in range(source.choice([1, 2, 5, 40]))]
    if seed >= 15:
        # Bytes changed at random, also in lines that were well.
        lines = [bytes(b if source.random() > 0.02 else source.choice(b' "{},:eN-') for b in line) for line in lines]
    path = tmp_path / "m.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    tail = JsonLinesTail(path)
    expected = [as_the_standard_library(line) for line in lines if line.strip()]
    assert [repr(row) for row in read_all(tail)] == [repr(row) for row in expected if row is not None]
    assert (tail.lines, tail.garbage_lines) == (len(expected), expected.count(None))


def test_integers_of_more_than_64_bits_keep_what_a_float_holds(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"n": 123456789012345678901234567890}\n{"n": -9223372036854775809, "loss": NaN}\n')
    rows = read_all(JsonLinesTail(path))
    assert [float(row["n"]) for row in rows] == [1.2345678901234568e29, -9.223372036854776e18]
