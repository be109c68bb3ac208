"""The wizard by keyboard and mouse, over a frozen world: steps, values, starts, help, sizes, leaving."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from textual import events
from textual.widgets import Input, Static
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import Finding
from trainwiz.core.run.folder import RunFolder
from trainwiz.tui.screens import plan_command as plan_starter
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.screens.plan_command import Started
from trainwiz.tui.screens.plan_fields import DATA, FIELDS, HARDWARE, MODEL, REVIEW, TRAINING, applies
from trainwiz.tui.theme import PALETTES
from trainwiz.tui.widgets.chooser import Chooser, matching
from trainwiz.tui.widgets.field_row import ActionButton, FieldRow, RemedyButton
from trainwiz.tui.widgets.frame import HelpCard

from tests.tui.wizard_parts import (
    FROZEN,
    MISSING,
    WIDE,
    FrozenReader,
    frozen,
    go,
    settled,
    shown,
    to_field,
    type_into,
    until,
)


async def test_the_five_steps_forth_and_back_with_their_help():
    async with frozen(FrozenReader(findings=()), size=(120, 60)) as (app, pilot):
        assert app.screen.state.step == HARDWARE
        # The card's load comes with the first look at it.
        await until(pilot, lambda: " 0%" in shown(app))
        drawn = shown(app)
        # The names of keys and models and the numbers of the steps are not figures.
        figures = re.findall(r"(?<![\w-])\d[\d.,]*", re.sub(r"(?m)^ \d |2080|GPU 0", "", drawn))
        assert len(figures) <= 15 and "peak" not in drawn, figures
        await go(pilot, "v")
        assert "peak" in shown(app)
        await go(pilot, "v")
        assert shown(app) == drawn
        for step in (MODEL, DATA):
            await go(pilot, "enter")
            assert app.screen.state.step == step
        assert "10,000" in shown(app) and "MKVLA[red]TT" in shown(app) and "\x1b" not in shown(app)
        await go(pilot, "down")
        assert isinstance(app.focused, ActionButton) and "enter press" in shown(app)
        await go(pilot, "escape", "enter", "enter")
        assert app.screen.state.step == TRAINING
        await to_field(pilot, "precision")
        await pilot.press("f1")
        await pilot.pause()
        assert isinstance(app.screen, HelpCard)
        # One line for the digits: nine would push the other keys out of sight.
        assert [row.shown_key for row in app.screen._rows if row.id.startswith("plan.remedy")] == ["1-9"]
        assert "Numeric precision" in shown(app) and "Safe choice" in shown(app)
        await go(pilot, "escape", "enter")
        assert app.screen.state.step == REVIEW
        assert isinstance(app.focused, ActionButton) and app.focused.action == "start"
        # A heading goes with the last of its rows.
        headings = {title.content for title in app.screen.query(".group") if title.display}
        assert headings <= {spec.group for spec in FIELDS if applies(spec, app.screen.state.plan)}
        for step in (TRAINING, DATA, MODEL, HARDWARE, HARDWARE):
            await go(pilot, "escape")
            assert app.screen.state.step == step
        assert app.screen.state.reached == REVIEW
        themes = [app.theme]
        for _ in PALETTES:
            await pilot.press("f2")
            themes.append(app.theme)
        assert set(themes) == set(PALETTES) and themes[0] == themes[-1]


async def test_remedies_steps_and_rows_answer_keys_and_a_mouse():
    async with frozen() as (app, pilot):
        assert "1  apply: 2,000 steps" in shown(app)
        app.screen.query_one("#remedy-2", RemedyButton).focus()
        await go(pilot, "enter")
        assert app.screen.state.request.overrides == {"model.name": "esm2-8m"}
        assert app.screen.state.step == HARDWARE and app.focused.id == "remedy-2", "the button keeps the focus"
        await pilot.click("#remedy-1")
        await settled(pilot)
        assert app.screen.state.request.overrides == {"model.name": "esm2-8m", "training.max_steps": 2000}
        app.screen._change_request(FROZEN)
        await go(pilot, "2", "9")
        assert app.screen.state.request.overrides == {"model.name": "esm2-8m"}, "there is no ninth one"
        app.screen._change_request(FROZEN)
        app.screen._focus_step()
        # Two lines of the rail are a step.
        await pilot.click("#rail", offset=(3, 2 * DATA))
        await settled(pilot)
        assert (app.screen.state.step, app.screen.state.reached) == (HARDWARE, HARDWARE), "not seen yet"
        await go(pilot, "enter", "enter", "escape", "escape")
        assert app.screen.state.step == HARDWARE and app.screen.state.reached == DATA
        await pilot.click("#rail", offset=(3, 2 * MODEL))
        await settled(pilot)
        assert app.screen.state.step == MODEL
        # A button of a mouse comes up later than it goes down, and the row with the focus has more lines than without.
        await to_field(pilot, "precision")
        below = app.screen.query_one("#field-attention", FieldRow)
        long = "a reason that takes many words, and with them more lines than a row without the focus has for it"
        app.focused.show(replace(app.focused.view, reason=long))
        await pilot.pause()
        place = below.region
        for kind in (events.MouseDown, events.MouseUp):
            app.post_message(kind(None, place.x + 4, place.y, 0, 0, 1, False, False, False, place.x + 4, place.y))
            await pilot.pause()
        await pilot.pause()
        assert isinstance(app.screen, Chooser)
        assert below.has_focus or app.screen_stack[-2].focused is below


async def test_what_cannot_start_says_why_and_what_fails_leaves_the_plan(monkeypatch, tmp_path):
    class Breakable(FrozenReader):
        def read(self, request, is_cancelled):
            if request.name == "broken":
                raise ZeroDivisionError("of all things [bold]")
            yield from super().read(request, is_cancelled)

    started: list[str] = []
    answers: list[dict[str, Any]] = [{}, {"problem": "The disk is full."}, {"folder": RunFolder(tmp_path / "run")}]
    monkeypatch.setattr(
        plan_starter,
        "start_plan",
        lambda kind, plan, request, said: started.append(kind) or Started(kind, **answers.pop(0)),
    )

    async def press(pilot, *keys):
        await go(pilot, *keys)
        await app.workers.wait_for_complete()
        await pilot.pause()

    reader = Breakable(findings=(MISSING,))
    async with frozen(reader) as (app, pilot):
        await go(pilot, "f5")
        assert app.screen.state.step == REVIEW and started == []
        await pilot.resize_terminal(60, 20)
        await settled(pilot)
        button = app.screen.query_one("#button-start")
        said = " ".join(shown(app).split())
        assert "[ Cannot start ]" in said and "✗ This machine has no RTX 2080 Super." in said and app.focused is button
        assert not app.screen.query_one("#button-detached").display
        await pilot.resize_terminal(*WIDE)
        # A plan for another machine may be written.
        await press(pilot, "right", "enter")
        assert started == ["write"]
        reader.findings = ()
        await to_field(pilot, "learning_rate")
        reader.problem = (Finding("bad_value", "error", "training.learning_rate", "It must be 10 or less."),)
        await type_into(pilot, "99")
        await go(pilot, "enter")
        assert "It must be 10 or less." in shown(app) and "3,906 sequences" in shown(app), "the old plan stays"
        assert app.focused.view.invalid == "It must be 10 or less."
        await go(pilot, "escape")
        assert "4 ✗ Training" in shown(app)
        await go(pilot, "f5")
        assert "Cannot start" in shown(app)
        reader.problem = ()
        app.screen._change_request(replace(app.screen.state.request, overrides={}, name="broken"))
        await settled(pilot)
        assert "ZeroDivisionError: of all things [bold]" in shown(app) and "3,906 sequences" in shown(app)
        app.screen._change_request(replace(app.screen.state.request, name=None))
        await settled(pilot)
        app.screen.query_one("#button-start").focus()
        await press(pilot, "enter")
        assert "✗ The disk is full." in shown(app) and app.screen.state.busy == ""
        await press(pilot, "right", "enter")
    assert app.return_value == 0 and started == ["write", "start", "detached"]
    assert str(tmp_path / "run") in app.farewell and "trainwiz monitor" in app.farewell


async def test_a_start_that_waits_for_its_plan_says_so_and_can_be_called_off(monkeypatch):
    monkeypatch.setattr(plan_starter, "start_plan", lambda *_: pytest.fail("started"))
    reader = FrozenReader(findings=())
    async with frozen(reader, at_review=True) as (app, pilot):
        verdict = app.screen.query_one("#verdict", Static)
        assert str(verdict.render()).startswith("Writes to runs/")
        reader.may_answer.clear()
        app.screen._change_request(replace(app.screen.state.request, name="another"))
        await pilot.press("f5")
        await pilot.pause()
        assert str(verdict.render()) == "starts when the plan is ready; esc cancels"
        await pilot.press("escape")
        assert app.screen.state.wanted_start == "" and app.screen.state.step == REVIEW
        reader.may_answer.set()
        await settled(pilot)
        assert str(verdict.render()).startswith("Writes to runs/")


async def test_a_number_is_typed_planned_taken_back_and_refused_at_every_size():
    async with frozen() as (app, pilot):
        row = await to_field(pilot, "micro_batch")
        await type_into(pilot, "9")
        await settled(pilot)
        assert app.screen.state.plan.batch.micro_batch == 9 and "✗ does not fit" in shown(app), "before enter"
        await go(pilot, "escape")
        assert app.screen.state.request.overrides == {} and app.screen.state.step == TRAINING
        assert app.screen.state.plan.batch.micro_batch == 6
        await type_into(pilot, "9")
        await go(pilot, "enter")
        assert app.screen.state.request.overrides == {"batch.micro_batch_size": 9}
        assert row.view.changed and row.view.origin == "you" and "1 value changed" in shown(app)
        await go(pilot, "r")
        assert app.screen.state.request.overrides == {} and app.screen.state.plan.batch.micro_batch == 6
        await type_into(pilot, "many")
        await settled(pilot)
        assert "✗ Type a number" in shown(app) and app.screen.state.plan.batch.micro_batch == 6
        await go(pilot, "enter")
        assert row.editing, "enter leaves the editor only with a readable text"
        await go(pilot, "escape")
        assert not row.editing and app.screen.state.invalid == {}
        for size in ((60, 15), (200, 60)):
            await pilot.resize_terminal(*size)
            await settled(pilot)
            text = shown(app)
            assert "651" in text and "fits" in text and "Training" in text, size
        await to_field(pilot, "name")
        await type_into(pilot, "q half a na")
        entry = app.screen.query_one(Input)
        for size in ((40, 10), WIDE):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        assert entry.value == "q half a na" and entry.has_focus, "q is a letter here, and what is typed stays"
        await pilot.press(*"me")
        await go(pilot, "enter")
        assert app.screen.state.request.name == "q half a name"


async def test_a_field_is_found_by_its_name_and_lists_are_searched_or_turned():
    reader = FrozenReader()
    request = PlanRequest(profile="p", overrides={"data.sources.0.text_column": "old"})
    async with frozen(reader, request=request) as (app, pilot):
        await pilot.press("slash")
        await pilot.pause()
        offers = app.screen._offers
        assert "Schedule" in {offer.label for offer in offers} and "Training: " in {offer.before for offer in offers}
        assert "Schedule" not in {offer.label for offer in matching(offers, "training:")}, "not by its step"
        await go(pilot, "escape")
        await to_field(pilot, "data")
        await type_into(pilot, "my/x.csv")
        await go(pilot, "enter")
        assert app.screen.state.request.overrides == {"data.sources.0.name": "my/x.csv"}, "the old column is gone"
        await go(pilot, "r")
        await to_field(pilot, "attention")
        await type_into(pilot, "eag")
        await go(pilot, "enter")
        for keys, value in (((), "eager"), (("right",), "flash_attention_2"), (("left", "left"), "sdpa")):
            await go(pilot, *keys)
            assert app.screen.state.request.overrides == {"engine.attention": value}
        await go(pilot, "r")
        await to_field(pilot, "folder")
        await type_into(pilot, "out/x")
        app.screen.query_one(Input).insert_text_at_cursor("x" * 1_000_000)
        await pilot.pause()
        assert len(app.screen.query_one(Input).value) <= 4096
        app.screen.query_one(Input).value = "out/x"
        await go(pilot, "enter")
        assert reader.asked[-1].output_dir == "out/x"
        await go(pilot, "r")
        assert reader.asked[-1].output_dir is None and reader.asked[-1].overrides == {}
        # Leaving asks where something would be lost. Who presses q twice and enter means it.
        await to_field(pilot, "seed")
        await type_into(pilot, "7")
        await go(pilot, "enter", "q")
        assert isinstance(app.screen, Chooser) and "1 chosen value is not saved" in shown(app)
        await go(pilot, "escape")
        assert isinstance(app.screen, PlanScreen) and app.return_code is None
        await pilot.press("q", "q", "enter")
    assert app.return_code == 0
