"""Log lines are plain text: no escape codes, progress bars folded, memory bounded."""

from __future__ import annotations

import time

from trainwiz.core.telemetry.log import LONGEST_LINE, LogLines, bar_of, level_of

from tests.each import each


@each(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m text", "red text"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x00b\x07c\x9b31md", "abcd"),
        ("[bold]not markup[/bold]", "[bold]not markup[/bold]"),
        ("right \u202eto left", "right to left"),
        ("tab\there", "tab here"),
    ],
)
def test_lines_are_harmless(raw: str, shown: str) -> None:
    log = LogLines()
    log.feed(raw + "\n")
    assert tuple(line.text for line in log.lines()) == (shown,)


def test_a_progress_bar_is_one_line_and_its_last_version() -> None:
    log = LogLines()
    for percent in range(101):
        log.feed(f"\r{percent}%|{'#' * (percent // 10)}")
    assert tuple(line.text for line in log.lines()) == ("100%|##########",)
    log.feed("\nsaved\n")
    assert tuple(line.text for line in log.lines()) == ("100%|##########", "saved")


def test_fifty_thousand_lines_at_once_keep_the_newest() -> None:
    log = LogLines(kept=300)
    started = time.perf_counter()
    log.feed("".join(f"line {n}\n" for n in range(50_000)))
    assert time.perf_counter() - started < 0.5
    assert tuple(line.text for line in log.lines()) == tuple(f"line {n}" for n in range(49_700, 50_000))


@each(
    ("line", "level"),
    [
        ("ValueError: no such column", "error"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "error"),
        ("E1121 14:02:11.123 77 torch/distributed/elastic/api.py:870] failed", "error"),
        ("  exitcode  : -9 (pid: 12)", "error"),
        ("[1]: 2026-11-21 ERROR worker: gone", "error"),
        ("Killed", "error"),
        ("[W1121 14:02:11 socket.cpp:752] retrying", "warning"),
        ("/x.py:3: FutureWarning: `a` is deprecated", "warning"),
        ("WARNING: ConnectionError: trying again", "warning"),
        ("INFO retried after ValueError: x", "info"),
        ("error: 0.031", "info"),
        ("{'eval_error': 0.3, 'loss': 2.1}", "info"),
        ("MeanSquaredError: 0.25", "info"),
        ("", "info"),
    ],
)
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


def bar(at: int, total: int, name: str = "") -> str:
    """As tqdm writes it."""
    return f"{name}{at * 100 // total:3d}%|{'#' * at}| {at}/{total} [00:0{at}<00:01,  1.20it/s]"


def test_a_bar_between_logged_lines_is_one_line_at_the_end() -> None:
    log = LogLines()
    for step in range(1, 5):
        log.feed(f"\r{bar(step, 9)}\r          \r{{'loss': {step}}}\n\r{bar(step, 9)}")
    texts = [line.text.strip() for line in log.lines()]
    assert texts == ["{'loss': 1}", "{'loss': 2}", "{'loss': 3}", "{'loss': 4}", bar(4, 9).strip()]
    assert log.lines()[-1].level == "progress"


def test_nested_bars_stay_two_lines() -> None:
    log = LogLines()
    for outer in range(3):
        log.feed(f"\r{bar(outer, 3, 'epochs: ')}")
        for inner in range(5):
            log.feed(f"\n\r{bar(inner, 7, 'batches: ')}\x1b[A")
    assert [line.text for line in log.lines()] == [bar(2, 3, "epochs: "), bar(4, 7, "batches: ")]


def test_text_printed_behind_a_bar_is_a_line() -> None:
    log = LogLines()
    log.feed(bar(3, 9) + "RuntimeError: broken\n")
    assert [(line.text.strip(), line.level) for line in log.lines()] == [
        (bar(3, 9).strip(), "progress"),
        ("RuntimeError: broken", "error"),
    ]


def test_huge_lines_are_cut_and_wide_characters_stay() -> None:
    log = LogLines()
    log.feed("x" * 300_000 + "\n" + "損失 2.5\n")
    first, second = log.lines()
    assert len(first.text) == LONGEST_LINE and first.text.endswith("…")
    assert second.text == "損失 2.5"


@each(
    "line",
    [
        "%|" + " " * 1990,
        " " * 1990 + "12345%|",
        "[/s" + "1,1" * 660,
        "[/s" + "1" * 1990,
        "[/s " + ("1" * 44 + ",") * 44,
    ],
)
def test_no_line_is_dear_to_look_at(line: str) -> None:
    def seconds() -> float:
        began_s = time.process_time()
        assert bar_of(line) is None
        return time.process_time() - began_s

    # A pattern that tries every split of the line takes 70 ms and more.
    assert min(seconds() for _ in range(3)) < 0.02
