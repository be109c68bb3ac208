"""LogFile: parts of a log from either end, searched and filtered, whatever its size."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from trainwiz.core.telemetry.log import LogFile, LogPart


def texts(part: LogPart) -> list[str]:
    return [placed.line.text for placed in part.lines]


def written(path: Path, count: int = 30_000) -> list[str]:
    lines = [
        f"line {number} WARNING: slow" if number % 1000 == 7 else f"line {number} of the log" for number in range(count)
    ]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return lines


def test_parts_from_the_start_give_the_whole_log(tmp_path: Path) -> None:
    lines = written(tmp_path / "log")
    log, found, after = LogFile(tmp_path / "log"), [], 0
    while True:
        part = log.search(after=after, limit=700)
        found += texts(part)
        if part.at_end:
            break
        after = part.end
    assert found == lines


def test_a_search_finds_the_next_and_the_one_before(tmp_path: Path) -> None:
    lines = written(tmp_path / "log")
    log = LogFile(tmp_path / "log")
    last = log.search("LINE 12", limit=1)
    assert texts(last) == [line for line in lines if "line 12" in line][-1:]
    before = log.search("line 12", before=last.lines[0].start, limit=2)
    assert texts(before) == [line for line in lines if "line 12" in line][-3:-1]
    after = log.search("line 12", after=before.lines[1].end, limit=1)
    assert texts(after) == texts(last)
    assert texts(log.search("nowhere")) == []


def test_a_level_is_filtered(tmp_path: Path) -> None:
    lines = written(tmp_path / "log")
    part = LogFile(tmp_path / "log").search(level="warning", limit=100, seconds=10)
    assert texts(part) == [line for line in lines if "WARNING" in line]
    assert texts(LogFile(tmp_path / "log").search("line 7 ", "warning", seconds=10)) == ["line 7 WARNING: slow"]


def test_what_is_found_is_what_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\x1b[32mmodel\x1b[0m esm2\n\rold\r\xc3\x89cole finie\n\xff\xfe bytes\n")
    log = LogFile(path)
    assert texts(log.search("MODEL ESM2")) == ["model esm2"]
    assert texts(log.search("école")) == ["École finie"]
    assert texts(log.search("old")) == []
    assert len(texts(log.search())) == 3


def test_an_unfinished_line_is_read_again_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntw")
    part = LogFile(path).search(after=0)
    assert texts(part) == ["one", "tw"]
    with path.open("a") as file:
        file.write("o\nthree\n")
    assert texts(LogFile(path).search(after=part.end)) == ["two", "three"]
    back = LogFile(path).search(limit=1)
    assert texts(back) == ["three"] and back.at_end


def test_versions_of_a_bar_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    bars = [f"{at:3d}%|#| {at}/100 [00:01<00:01,  1.2it/s]" for at in range(1, 60)]
    path.write_text("start\n" + "".join(f"\r{bar}\n{{'loss': {at}}}\n" for at, bar in enumerate(bars)))
    found = texts(LogFile(path).search(limit=500))
    assert found[0] == "start" and len(found) == 1 + len(bars) + 1
    assert found[-2:] == [bars[-1], "{'loss': 58}"]


def test_absent_empty_and_unreadable_logs(tmp_path: Path) -> None:
    assert LogFile(tmp_path / "none").search().lines == ()
    (tmp_path / "empty").touch()
    assert LogFile(tmp_path / "empty").search("x").at_start
    part = LogFile(tmp_path).search()
    assert part.problem is not None and str(tmp_path) in part.problem


@pytest.mark.parametrize("line_end", [b"\n", b""])
def test_a_large_log_is_searched_in_bounded_memory(tmp_path: Path, line_end: bytes) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(b"the needle" + (line_end or b" "))
        for _ in range(32):
            file.write((b"x" * 99 + (line_end or b" ")) * 10_000)
    assert path.stat().st_size > 30_000_000
    log, before = LogFile(path), None
    tracemalloc.start()
    while not (part := log.search("the needle", before=before)).lines:
        assert not part.at_start
        before = part.start
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert part.lines[0].start == 0
    assert peak < 24 * 1024 * 1024


def test_what_was_printed_behind_a_bar_stays_with_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a\n 50%|#| 1/2 [00:01<00:01,  1.2it/s]behind\nb\n")
    part = LogFile(path).search(after=0, limit=2)
    assert texts(part) == ["a", " 50%|#| 1/2 [00:01<00:01,  1.2it/s]", "behind"]
    assert texts(LogFile(path).search(after=part.end)) == ["b"]
