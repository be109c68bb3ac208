"""Logs and lines: tails read what was appended however it was cut, and shown lines are plain."""

import json
import math
import os
import random
import time
from pathlib import Path
from typing import Any

from trainwiz.core.lines import LONGEST_LINE_BYTES, JsonLinesTail, TextTail
from trainwiz.core.telemetry.log import LONGEST_LINE, LogLines, bar_of, level_of

from tests.each import each


def shown(*texts: str) -> list[str]:
    log = LogLines()
    for text in texts:
        log.feed(text)
    return [line.text for line in log.lines()]


def bar(at: int, total: int, name: str = "") -> str:
    """As tqdm writes it."""
    return f"{name}{at * 100 // total:3d}%|{'#' * min(at, 9)}| {at}/{total} [00:0{at}<00:01,  1.20it/s]"


@each(("raw", "text"), [
    ("\x1b[31mred\x1b[0m text", "red text"),
    ("\x1b]0;title\x07after", "after"),
    ("a\x00b\x07c\x9b31md", "abcd"),
    ("[bold]not markup[/bold]", "[bold]not markup[/bold]"),
    ("right \u202eto left", "right to left"),
    ("tab\there", "tab here"),
    ("x" * 300_000, "x" * (LONGEST_LINE - 1) + "…"),
])  # fmt: skip
def test_lines_are_harmless(raw: str, text: str) -> None:
    assert shown(raw + "\n") == [text]


def test_a_progress_bar_is_one_line_and_its_last_version() -> None:
    bars = [f"\r{percent}%|{'#' * (percent // 10)}" for percent in range(101)]
    assert shown(*bars, "\nsaved\n") == ["100%|##########", "saved"]
    # Between logged lines it is one line at the end; nested ones stay two; text behind one is a line.
    log = LogLines()
    for step in range(1, 5):
        log.feed(f"\r{bar(step, 9)}\r          \r{{'loss': {step}}}\n\r{bar(step, 9)}")
    texts = [line.text.strip() for line in log.lines()]
    assert texts == ["{'loss': 1}", "{'loss': 2}", "{'loss': 3}", "{'loss': 4}", bar(4, 9).strip()]
    inner = "".join(f"\n\r{bar(step, 7, 'batches: ')}\x1b[A" for step in range(5))
    nested = [f"\r{bar(outer, 3, 'epochs: ')}{inner}" for outer in range(3)]
    assert shown(*nested) == [bar(2, 3, "epochs: "), bar(4, 7, "batches: ")]
    log = LogLines()
    log.feed(bar(3, 9) + "RuntimeError: broken\n")
    found = [(line.text.strip(), line.level) for line in log.lines()]
    assert found == [(bar(3, 9).strip(), "progress"), ("RuntimeError: broken", "error")]


@each(("line", "level"), [
    ("ValueError: no such column", "error"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "error"),
    ("E1121 14:02:11.123 77 torch/distributed/elastic/api.py:870] failed", "error"),
    ("  exitcode  : -9 (pid: 12)", "error"),
    ("[W1121 14:02:11 socket.cpp:752] retrying", "warning"),
    ("/x.py:3: FutureWarning: `a` is deprecated", "warning"),
    ("INFO retried after ValueError: x", "info"),
    ("error: 0.031", "info"),
    ("{'eval_error': 0.3, 'loss': 2.1}", "info"),
])  # fmt: skip
def test_words_say_the_level(line: str, level: str) -> None:
    assert level_of(line) == level


def test_a_traceback_is_an_error_to_its_end_on_the_rank_that_wrote_it() -> None:
    log = LogLines()
    log.feed(
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "train.py", line 3, in <module>\n'
        "[rank0]: step 4\n"
        "[rank1]:     main()\n"
        "[rank1]: KeyError: 'text'\n"
        "[rank1]: bye\n"
    )
    assert [line.level for line in log.lines()] == ["error", "error", "info", "error", "error", "info"]


def test_no_line_is_dear_to_look_at() -> None:
    """A pattern that tries every split of the line takes 70 ms and more."""
    for line in ("%|" + " " * 1990, " " * 1990 + "12345%|", "[/s" + "1,1" * 660, "[/s " + ("1" * 44 + ",") * 44):
        began_s = time.process_time()
        assert [bar_of(line) for _ in range(3)] == [None] * 3
        assert time.process_time() - began_s < 0.09, line[:9]


def rows_of(tail: JsonLinesTail) -> list[dict[str, Any]]:
    rows = tail.read_new()
    while tail.behind:
        rows += tail.read_new()
    return rows


def test_any_cut_of_the_bytes_gives_the_same_rows_and_text(tmp_path: Path) -> None:
    source = random.Random(1)
    kinds = ["é", "体", "🙂", "\r", "x" * 150, "\u2028"]
    rows = [{"step": n, "text": source.choice(kinds)} for n in range(150)]
    document = "".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in rows)
    path, data, position = tmp_path / "m.jsonl", document.encode(), 0
    tail, text_tail, seen, seen_text = JsonLinesTail(path), TextTail(path), list[Any](), ""
    while position < len(data):
        step = source.choice([1, 2, 3, 5, 17, 400, 5000])
        with path.open("ab") as file:
            file.write(data[position : position + step])
        position += step
        seen += rows_of(tail)
        seen_text += text_tail.read_new()
    assert (seen, seen_text, tail.garbage_lines) == (rows, document, 0)


def test_a_file_that_is_replaced_or_rewritten_starts_again(tmp_path: Path) -> None:
    path, longer = tmp_path / "m.jsonl", [{"b": n} for n in range(100)]
    # What was half a line of the old file is none of the new one.
    path.write_text('{"a": 1}\n{"b')
    tail = JsonLinesTail(path)
    tail.read_new()
    # To the same size: by its time.
    path.write_text('{"a": 2}\n{"c')
    os.utime(path, ns=(1, 1))
    assert tail.read_new() == [{"a": 2}]
    (tmp_path / "other").write_text("".join(json.dumps(row) + "\n" for row in longer))
    (tmp_path / "other").replace(path)
    assert (tail.read_new(), tail.began_anew) == (longer, True)
    path.write_text('{"a": 3}\n')
    assert (tail.read_new(), tail.began_anew) == ([{"a": 3}], True)
    folder = JsonLinesTail(tmp_path)
    assert folder.read_new() == []
    assert folder.problem is not None and str(tmp_path) in folder.problem


def test_a_line_without_end_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "endless.jsonl"
    path.write_bytes(b'{"a": 1}\n' + b"x" * 10 * LONGEST_LINE_BYTES + b'\n{"a": 2}\n')
    tail, rows, held = JsonLinesTail(path), list[Any](), list[int]()
    while not rows or tail.behind:
        rows += tail.read_new()
        held.append(len(tail._half))
    assert (rows, tail.garbage_lines) == ([{"a": 1}, {"a": 2}], 1)
    assert max(held) <= LONGEST_LINE_BYTES


def test_what_has_a_window_is_entered_near_its_end_at_a_line(tmp_path: Path) -> None:
    path, lines = tmp_path / "train.log", [json.dumps({"n": n}) for n in range(10_000)]
    path.write_text("\n".join(lines) + "\n")
    rows, text = JsonLinesTail(path, window_bytes=1000), TextTail(path, window_bytes=1000)
    found, seen = rows_of(rows), text.read_new().splitlines()
    assert 50 < len(found) < 120 and found == [{"n": n} for n in range(10_000 - len(found), 10_000)]
    assert 50 < len(seen) < 100 and seen == lines[-len(seen) :]
    assert rows.garbage_lines == 0 and text.skipped_bytes > 0


NUMBER_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf, "inf": math.inf, "-inf": -math.inf}
HOSTILE_LINES = [
    b'{"step": 1, "loss": 0.1, "rate": 1e-05, "big": 18446744073709551615, "low": -9223372036854775808}',
    b'{"loss": NaN, "a": Infinity, "b": -Infinity, "zero": -0, "negative": -0.0}',
    b'{"loss": "NaN", "a": "Infinity", "b": "-Infinity", "c": "inf", "d": "-inf", "e": "NaN!", "f": ["NaN"]}',
    b'{"huge": 1e400, "tiny": 1e-400, "long": 0.1000000000000000055511151231257827}',
    *(b'{"loss": 1, "loss": 2}', b'\t {"spaces": 1} \r', b'\xef\xbb\xbf{"mark": 1}', b'{"control": "\x01"}'),
    b'{"text": "\xff\xfe", "pair": "\\ud83d\\ude00", "lone": "\\ud800", "nul": "\\u0000", "separator": "\xe2\x80\xa8"}',
    b'{"deep": ' + b"[" * 1200 + b"]" * 1200 + b"}",
    b'{"deeper": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    *(b'{"cut": 1, "off', b'{"a": 1} {"b": 2}', b'{"a": 1,}', b"{'a': 1}", b'{"a": 01, "b": .5, "c": +1}'),
    b'{"none": null, "yes": true, "nested": {"x": [1, 2.5, "s"]}}',
    *(b"{}", b"[1, 2]", b"NaN", b"7", b'"text"', b"", b"   ", b"not json", b"\x00\x00"),
]


def as_the_standard_library(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line.strip().decode("utf-8-sig", errors="replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    return {key: NUMBER_WORDS.get(value, value) if isinstance(value, str) else value for key, value in row.items()}


@each("seed", range(4))
def test_hostile_lines_read_as_the_standard_library_reads_them(tmp_path: Path, seed: int) -> None:
    """In any order, and with bytes changed at random, also in lines that were well."""
    source = random.Random(seed)
    lines = source.sample(HOSTILE_LINES, len(HOSTILE_LINES))
    lines += [
        bytes(b if source.random() > 0.02 else source.choice(b' "{},:eN-') for b in line[:5000]) for line in lines
    ]
    path = tmp_path / "m.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    tail = JsonLinesTail(path)
    expected = [as_the_standard_library(line) for line in lines if line.strip()]
    assert [repr(row) for row in rows_of(tail)] == [repr(row) for row in expected if row is not None]
    assert tail.garbage_lines == expected.count(None)
