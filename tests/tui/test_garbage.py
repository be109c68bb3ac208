"""The collector of garbage rests up to the first frame, and no longer."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from trainwiz.core.plan.request import PlanRequest
from trainwiz.tui import cli
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.commands import wizard
from trainwiz.tui.garbage import collect_again
from trainwiz.tui.screens.plan import PlanScreen


class Terminal:
    def isatty(self) -> bool:
        return True


async def test_it_works_again_once_the_wizard_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    rested: list[bool] = []
    monkeypatch.setattr(wizard, "run_wizard", lambda request: rested.append(not gc.isenabled()) or 0)
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("sys.stdout", Terminal())
    try:
        assert cli.run_command([]) == 0 and rested == [True]
        monkeypatch.undo()
        async with TrainwizApp(lambda: PlanScreen(PlanRequest(profile="cpu-demo"))).run_test() as pilot:
            for _ in range(200):
                if gc.isenabled():
                    break
                await pilot.pause(0.05)
        assert gc.isenabled() and gc.get_freeze_count() > 1000
    finally:
        gc.unfreeze()
        gc.enable()


def test_where_it_did_not_rest_nothing_is_kept() -> None:
    gc.unfreeze()
    collect_again()
    assert gc.get_freeze_count() == 0
