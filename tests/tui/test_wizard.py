"""The wizard by keyboard, over a frozen world: steps, values, starts, the review, help, sizes, leaving."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from textual import events
from textual.widgets import Input
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import Finding
from trainwiz.core.run.folder import RunFolder
from trainwiz.tui.screens import plan_command as plan_starter
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.screens.plan_command import Started
from trainwiz.tui.screens.plan_fields import DATA, HARDWARE, MODEL, REVIEW, TRAINING
from trainwiz.tui.widgets.chooser import Chooser, matching
from trainwiz.tui.widgets.field_row import ActionButton, FieldRow
from trainwiz.tui.widgets.frame import HelpCard

from tests.tui.wizard_keys import WIDE, Typist, go, shown, to_field, type_into
from tests.tui.wizard_parts import MISSING, FrozenReader, frozen, settled


@pytest.fixture
def started(monkeypatch) -> list[tuple[str, object]]:
    """What was started, instead of starting it."""
    kinds: list[tuple[str, object]] = []
    monkeypatch.setattr(
        plan_starter, "start_plan", lambda kind, plan, request, said: kinds.append((kind, plan)) or Started(kind)
    )
    return kinds


async def test_the_first_screen_the_five_steps_back_and_help():
    async with frozen(size=(120, 60)) as (app, pilot):
        assert app.screen.state.step == HARDWARE
        assert "[bold]here[/bold]" in shown(app), "text from outside is never markup"
        for step in (MODEL, DATA):
            await go(pilot, "enter")
            assert app.screen.state.step == step
        text = shown(app)
        assert "10,000" in text and re.search(r"sequence +id +length", text) and "\x1b" not in text
        assert re.search(r"MKVLA\[red\]TT +ab +12", text) and re.search(r"MSSQ +\(empty\) +4", text)
        assert re.search(r"\[/\] +\(no value\) +3", text) and "enter next" in text
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
        text = shown(app)
        assert "Numeric precision" in text and "the card has compute capability 7.5" in text and "Safe choice" in text
        await go(pilot, "escape")
        assert not isinstance(app.screen, HelpCard)
        await go(pilot, "enter")
        assert app.screen.state.step == REVIEW
        assert isinstance(app.focused, ActionButton) and app.focused.action == "start"
        for step in (TRAINING, DATA, MODEL, HARDWARE, HARDWARE):
            await go(pilot, "escape")
            assert app.screen.state.step == step
        assert app.screen.state.reached == REVIEW


async def test_the_first_screen_has_few_figures_and_v_shows_the_rest():
    async with frozen(FrozenReader(findings=())) as (app, pilot):
        drawn = shown(app)
        # The names of keys and models and the numbers of the steps are not figures.
        figures = re.findall(r"(?<![\w-])\d[\d.,]*", re.sub(r"(?m)^ \d |2080|GPU 0", "", drawn))
        assert len(figures) <= 15, figures
        assert "peak" not in drawn
        await go(pilot, "v")
        assert "peak" in shown(app) and "torch 2.13.0" in shown(app)
        await go(pilot, "v")
        assert shown(app) == drawn


async def test_the_plan_is_on_the_screen_at_every_size_and_what_is_typed_stays():
    async with frozen() as (app, pilot):
        await go(pilot, "enter", "enter", "enter")
        for width, height in ((60, 20), (20, 5), (200, 60)):
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            await pilot.pause()
            text = shown(app)
            assert "651" in text, f"the batch at {width}x{height}"
            assert "fits" in text or width < 40, (width, height)
            assert any(word in text for word in ("Training", "Target", "Length")), (width, height)
        assert "2 findings" in shown(app)
        await to_field(pilot, "name")
        await type_into(pilot, "half a na")
        for size in ((60, 20), (40, 10), WIDE):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        assert app.screen.query_one(Input).value == "half a na" and app.screen.query_one(Input).has_focus
        await pilot.press(*"me")
        await go(pilot, "enter")
        assert app.screen.state.request.name == "half a name"


# Starts.


async def test_a_start_that_is_not_possible_says_why_and_writes_nothing(started):
    async with frozen(FrozenReader(findings=(MISSING,))) as (app, pilot):
        await go(pilot, "f5")
        assert app.screen.state.step == REVIEW and started == []
        text = shown(app)
        assert "Cannot start" in text and "✗ This machine has no RTX 2080 Super." in text
        # A plan for another machine may be written.
        await go(pilot, "right", "enter")
        await app.workers.wait_for_complete()
        assert [kind for kind, _ in started] == ["write"]


async def test_a_request_that_cannot_be_planned_keeps_the_old_plan_and_names_the_field():
    reader = FrozenReader()
    async with frozen(reader) as (app, pilot):
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
    async with frozen(FrozenReader(findings=()), at_review=True) as (app, pilot):
        await go(pilot, "enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "✗ The disk is full." in shown(app) and app.screen.state.busy == ""
        await go(pilot, "right", "enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
    assert app.return_value == 0
    assert str(tmp_path / "run") in app.farewell and "trainwiz monitor" in app.farewell


async def test_a_failure_that_nobody_foresaw_is_a_sentence():
    class Broken(FrozenReader):
        def read(self, request, is_cancelled):
            if request.overrides:
                raise ZeroDivisionError("of all things [bold]")
            yield from super().read(request, is_cancelled)

    async with frozen(Broken()) as (app, pilot):
        await go(pilot, "1")
        assert "ZeroDivisionError: of all things [bold]" in shown(app) and "3,906 sequences" in shown(app)
        await go(pilot, "enter")
        assert app.screen.state.step == MODEL


# Values.


async def test_a_number_is_typed_planned_taken_back_and_refused():
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


async def test_a_field_is_found_by_its_name_and_lists_are_searched_or_turned():
    reader = FrozenReader()
    async with frozen(reader, request=PlanRequest(profile="p", overrides={"data.sources.0.text_column": "old"})) as (
        app,
        pilot,
    ):
        await pilot.press("slash")
        await pilot.pause()
        offers = app.screen._offers
        assert "Schedule" in {offer.label for offer in offers} and "Training: " in {offer.before for offer in offers}
        assert "Schedule" not in {offer.label for offer in matching(offers, "training:")}, "not by its step"
        await pilot.press(*"seed")
        await go(pilot, "enter")
        assert app.focused.spec.id == "seed" and app.screen.state.step == TRAINING, "also a hidden one"
        await to_field(pilot, "data")
        await type_into(pilot, "my/x.csv")
        await go(pilot, "enter")
        assert app.screen.state.request.overrides == {"data.sources.0.name": "my/x.csv"}, "the old column is gone"
        await go(pilot, "r")
        await to_field(pilot, "attention")
        await type_into(pilot, "eag")
        assert isinstance(app.screen, Chooser)
        await go(pilot, "enter")
        assert app.screen.state.request.overrides == {"engine.attention": "eager"}
        await go(pilot, "right")
        assert app.screen.state.request.overrides == {"engine.attention": "flash_attention_2"}
        await go(pilot, "left", "left")
        assert app.screen.state.request.overrides == {"engine.attention": "sdpa"}
        await go(pilot, "r")
        await to_field(pilot, "folder")
        await type_into(pilot, "out/x")
        await go(pilot, "enter")
        assert reader.asked[-1].output_dir == "out/x"
        await go(pilot, "r")
        assert reader.asked[-1].output_dir is None and reader.asked[-1].overrides == {}


async def test_q_is_a_letter_in_an_editor_and_a_paste_of_a_megabyte_is_cut():
    async with frozen() as (app, pilot):
        await to_field(pilot, "name")
        await type_into(pilot, "q1")
        entry = app.screen.query_one(Input)
        assert entry.value == "q1"
        entry.insert_text_at_cursor("x" * 1_000_000)
        await pilot.pause()
        assert len(entry.value) <= 4096
        await go(pilot, "escape", "q")
    assert app.return_value == 0


async def test_one_click_of_a_real_mouse_opens_a_row_below_the_focused_one():
    """Its button comes up later than it goes down, and the row with the focus has more lines than without."""
    async with frozen() as (app, pilot):
        await to_field(pilot, "precision")
        below = pilot.app.screen.query_one("#field-attention", FieldRow)
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


async def test_quitting_asks_only_where_something_would_be_lost():
    async with frozen() as (app, pilot):
        await Typist(pilot).change("Seed", "7")
        await go(pilot, "q")
        assert isinstance(app.screen, Chooser) and "1 chosen value is not saved" in shown(app)
        await go(pilot, "escape")
        assert isinstance(app.screen, PlanScreen) and app.return_code is None
        # Who presses q twice and enter means it.
        await pilot.press("q", "q", "enter")
    assert app.return_code == 0


async def test_a_step_that_was_seen_is_gone_to_by_g_and_by_a_click():
    async with frozen(size=(60, 20)) as (app, pilot):
        rail = app.screen.query_one("#rail")
        await pilot.click("#rail", offset=(str(rail.render()).index("3"), 0))
        await settled(pilot)
        assert (app.screen.state.step, app.screen.state.reached) == (HARDWARE, HARDWARE), "not seen yet"
        await go(pilot, "enter", "enter", "g")
        assert [offer.label for offer in app.screen._shown] == ["Hardware", "Model", "Data"]
        await pilot.press(*"hard")
        await go(pilot, "enter")
        assert app.screen.state.step == HARDWARE and app.screen.state.reached == DATA
        await pilot.click("#rail", offset=(str(rail.render()).index("Mod"), 0))
        await settled(pilot)
        assert app.screen.state.step == MODEL
