"""Remedies and starts in the wizard, over a frozen world; starts that are not possible, failures that nobody foresaw."""

from __future__ import annotations

import pytest
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import Finding
from trainwiz.core.run.folder import RunFolder
from trainwiz.tui.screens import plan_command as plan_starter
from trainwiz.tui.screens.plan_command import Started
from trainwiz.tui.screens.plan_fields import MODEL, REVIEW

from tests.tui.wizard_keys import WIDE, go, shown, to_field, type_into
from tests.tui.wizard_parts import MISSING, FrozenReader, frozen_app, settled


@pytest.mark.parametrize("pause", [True, False])
async def test_five_enters_start_the_plan_that_is_shown(monkeypatch, pause):
    """Also when they are typed before anything was read."""
    started = []
    monkeypatch.setattr(
        plan_starter, "start_plan", lambda kind, plan, request, said: started.append((kind, plan)) or Started(kind)
    )
    reader = FrozenReader(findings=())
    app = frozen_app(reader)
    async with app.run_test(size=WIDE) as pilot:
        if pause:
            await settled(pilot)
        await go(pilot, *["enter"] * 5)
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert [kind for kind, _ in started] == ["start"]
        assert started[0][1] is app.screen.state.plan


async def test_a_start_that_is_not_possible_says_why_and_writes_nothing(monkeypatch):
    started = []
    monkeypatch.setattr(
        plan_starter, "start_plan", lambda kind, plan, request, said: started.append(kind) or Started(kind)
    )
    app = frozen_app(FrozenReader(findings=(MISSING,)))
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await go(pilot, "f5")
        assert app.screen.state.step == REVIEW and started == []
        text = shown(app)
        assert "Cannot start" in text and "✗ This machine has no RTX 2080 Super." in text
        # A plan for another machine may be written.
        await go(pilot, "right", "enter")
        await app.workers.wait_for_complete()
        assert started == ["write"]


async def test_a_request_that_cannot_be_planned_keeps_the_old_plan_and_names_the_field():
    reader = FrozenReader()
    app = frozen_app(reader)
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await to_field(pilot, "learning_rate")
        reader.problem = (Finding("bad_value", "error", "training.learning_rate", "It must be 10 or less."),)
        await type_into(pilot, "99")
        await go(pilot, "enter")
        text = shown(app)
        assert "It must be 10 or less." in text and "3,906 sequences" in text
        assert app.focused.view.invalid == "It must be 10 or less."
        await go(pilot, "escape")
        assert "4 ✗ Training" in shown(app)
        await go(pilot, "f5")
        assert "Cannot start" in shown(app)


async def test_a_failed_start_is_a_sentence_and_a_detached_one_leaves_with_the_folder(monkeypatch, tmp_path):
    answers = [{"problem": "The disk is full."}, {"folder": RunFolder(tmp_path / "run")}]
    monkeypatch.setattr(plan_starter, "start_plan", lambda kind, plan, request, said: Started(kind, **answers.pop(0)))
    app = frozen_app(FrozenReader(findings=()), at_review=True)
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await go(pilot, "enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "✗ The disk is full." in shown(app) and app.screen.state.busy == ""
        await go(pilot, "right", "enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
    assert app.return_value == 0
    assert str(tmp_path / "run") in app.farewell and "trainwiz monitor" in app.farewell


async def test_review_shows_files_command_and_folder():
    request = PlanRequest(profile="2080super", overrides={"training.max_steps": 100})
    app = frozen_app(request=request, at_review=True)
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        text = shown(app)
        assert "trainwiz --profile 2080super --max-steps 100" in text and "--yes" in text
        assert "runs/2026-11-21_1402-frozen" in text
        assert "note: '[red]text[/red]'" in text
        for _ in range(12):
            if app.focused.id == "files":
                break
            await go(pilot, "down")
        assert app.focused.id == "files"
        await go(pilot, "down")
        assert "exec accelerate" in shown(app)


async def test_a_failure_that_nobody_foresaw_is_a_sentence():
    class Broken(FrozenReader):
        def read(self, request, is_cancelled):
            if request.overrides:
                raise ZeroDivisionError("of all things [bold]")
            yield from super().read(request, is_cancelled)

    app = frozen_app(Broken())
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await go(pilot, "1")
        assert "ZeroDivisionError: of all things [bold]" in shown(app)
        assert "3,906 sequences" in shown(app)
        await go(pilot, "enter")
        assert app.screen.state.step == MODEL
