"""advice.jsonl: one line at each change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainwiz.core.lines import JsonLinesTail
from trainwiz.core.run.attempts import Advice, AdviceFile, advice_of
from trainwiz.core.supervise.watch import QUIET_S, SAY_AGAIN_S, AdviceLog

HEAT = Advice("heat", "warning", "Heat limits the clock of GPU 0.", "More air.")
STALLED = Advice("stalled", "warning", "No step was logged for 5 min.")
LOOK_S = 5.0


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


class Told:
    """A log with a clock that is turned by hand."""

    def __init__(self, folder: Path, **after_s: float) -> None:
        self.clock = Clock()
        self.path = folder / "advice.jsonl"
        self.log = AdviceLog(folder, after_s, self.clock)

    def look(self, *advice: Advice, for_s: float = LOOK_S) -> None:
        end_s = self.clock.now_s + for_s
        while self.clock.now_s < end_s:
            self.log.tell(advice)
            self.clock.now_s += LOOK_S

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []


def test_one_line_when_it_begins_and_one_when_it_is_over(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.look(STALLED, for_s=300)
    assert [row["severity"] for row in told.rows] == ["warning"]
    told.look(for_s=QUIET_S + 2 * LOOK_S)
    assert [(row["code"], row["severity"]) for row in told.rows] == [("stalled", "warning"), ("stalled", "cleared")]
    assert AdviceFile(JsonLinesTail(told.path)).read() == []


def test_what_does_not_last_is_never_written(tmp_path: Path) -> None:
    told = Told(tmp_path, heat=60.0)
    for _ in range(20):
        told.look(HEAT, for_s=50)
        told.look(for_s=10)
    assert not told.path.exists()
    told.look(HEAT, for_s=70)
    assert [row["text"] for row in told.rows] == [HEAT.text]


def test_a_trouble_that_comes_and_goes_fills_no_disk(tmp_path: Path) -> None:
    told = Told(tmp_path)
    for _ in range(200):
        told.look(HEAT, for_s=30)
        told.look(for_s=90)
    assert len(told.rows) < 12, "200 times in 7 hours"


def test_figures_are_brought_up_to_date_now_and_then(tmp_path: Path) -> None:
    told = Told(tmp_path)
    for minute in range(30):
        told.look(Advice("stalled", "warning", f"No step was logged for {minute} min."), for_s=60)
    assert 2 <= len(told.rows) <= 1 + 1_800 / SAY_AGAIN_S
    told.look(Advice("stalled", "error", "It hangs."))
    assert told.rows[-1]["severity"] == "error", "worse is said at once"


def test_a_line_after_half_a_line_is_whole(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.path.write_text('{"code": "hal')
    told.look(HEAT)
    assert json.loads(told.path.read_text().splitlines()[-1])["code"] == "heat"


def test_the_next_keeper_takes_back_what_a_killed_one_left(tmp_path: Path) -> None:
    Told(tmp_path).look(STALLED, HEAT)
    with (tmp_path / "advice.jsonl").open("a") as file:
        file.write('{"code": "mine", "where": "me", "severity": "note", "text": "of another"}\n{"code": "hal')
    told = Told(tmp_path)
    told.log.take_over({"stalled", "heat", "mine"})
    told.look(HEAT, for_s=QUIET_S + 2 * LOOK_S)
    standing = {str(row["code"]) for row in AdviceFile(JsonLinesTail(told.path)).read()}
    assert standing == {"heat", "mine"}
    assert not any('"mine"' in line and '"keeper"' in line for line in told.path.read_text().splitlines())


def test_at_the_end_what_is_over_is_taken_back(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.look(STALLED, HEAT)
    told.log.clear({"stalled", "ram_full"})
    (left,) = advice_of(AdviceFile(JsonLinesTail(told.path)).read())
    assert left == HEAT
