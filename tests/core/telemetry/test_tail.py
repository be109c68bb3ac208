"""Tails read exactly what was appended, however it was cut, truncated, replaced or broken."""

from __future__ import annotations

import json
import math
import os
import random
import tracemalloc
from pathlib import Path

import pytest
from trainwiz.core.telemetry.tail import LONGEST_LINE_BYTES, READ_BYTES, JsonLinesTail, TextTail


def read_all(tail: JsonLinesTail) -> list[dict]:
    rows = tail.read_new()
    while tail.behind:
        rows += tail.read_new()
    return rows


@pytest.mark.parametrize("seed", range(20))
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


def test_a_half_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\n{"step"')
    tail = JsonLinesTail(path)
    assert tail.read_new() == [{"step": 1}]
    with path.open("a") as file:
        file.write(": 2}\n")
    assert tail.read_new() == [{"step": 2}]


def test_a_file_that_appears_later(tmp_path: Path) -> None:
    tail = JsonLinesTail(tmp_path / "m.jsonl")
    assert tail.read_new() == []
    (tmp_path / "m.jsonl").write_text('{"a": 1}\n')
    assert tail.read_new() == [{"a": 1}]
    assert tail.resets == 0


def test_truncation_starts_again(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n')
    tail = JsonLinesTail(path)
    tail.read_new()
    path.write_text('{"b": 1}\n')
    assert tail.read_new() == [{"b": 1}]
    assert tail.resets == 1


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


def test_non_finite_values_in_every_spelling_are_floats(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(
        '{"loss": NaN}\n{"loss": "NaN"}\n{"loss": Infinity}\n{"loss": "Infinity"}\n{"loss": "-Infinity"}\n'
        '{"loss": 1e999}\n{"loss": "Nancy"}\n'
    )
    values = [row["loss"] for row in JsonLinesTail(path).read_new()]
    assert math.isnan(values[0]) and math.isnan(values[1])
    assert values[2:6] == [math.inf, math.inf, -math.inf, math.inf]
    assert values[6] == "Nancy"


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


def test_a_large_file_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    line = json.dumps({"pad": "x" * 4000}).encode() + b"\n"
    count = 5 * READ_BYTES // len(line)
    with path.open("wb") as file:
        for _ in range(count):
            file.write(line)
    tail = JsonLinesTail(path)
    tracemalloc.start()
    seen = len(tail.read_new())
    while tail.behind:
        seen += len(tail.read_new())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen == count
    assert peak < 4 * READ_BYTES


def test_a_folder_in_place_of_the_file_is_a_sentence(tmp_path: Path) -> None:
    tail = JsonLinesTail(tmp_path)
    assert tail.read_new() == []
    assert tail.problem is not None and str(tmp_path) in tail.problem


@pytest.mark.parametrize("seed", range(10))
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


def test_text_after_truncation(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("one\ntwo\n")
    tail = TextTail(path)
    tail.read_new()
    path.write_text("new\n")
    assert tail.read_new() == "new\n"
    assert tail.resets == 1


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
