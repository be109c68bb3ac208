"""Values in the wizard, over a frozen world: typed, chosen from lists, taken back; what cannot be read says why."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from textual import events
from textual.widgets import Input
from trainwiz.core.config.request import PlanRequest
from trainwiz.tui.screens.plan_fields import FIELD_BY_ID, TRAINING, parse_field
from trainwiz.tui.screens.plan_state import with_values
from trainwiz.tui.widgets.chooser import Chooser
from trainwiz.tui.widgets.field_row import ActionButton, FieldRow

from tests.each import each
from tests.tui.wizard_keys import WIDE, go, shown, to_field, type_into
from tests.tui.wizard_parts import FrozenReader, frozen_app, settled


async def test_each_value_shows_its_origin_and_reason():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await go(pilot, "enter", "enter", "enter")
        lines = shown(app).splitlines()
        precision = next(index for index, line in enumerate(lines) if " Precision " in line)
        assert "fp16" in lines[precision] and "detected" in lines[precision]
        assert "the card has sm 7.5, bf16 needs 8.0" in lines[precision + 1]
        assert "profile" in next(line for line in lines if "Target batch" in line)


async def test_a_number_is_typed_planned_taken_back_and_refused():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
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


@each(
    ("name", "text", "values"),
    [
        ("steps", "2.5 epochs", {"training.epochs": 2.5}),
        ("steps", "2k steps", {"training.max_steps": 2000}),
        ("target", "200k real tokens", {"batch.target_real_tokens": 200_000}),
        ("target", "200k tokens", {"batch.target_tokens": 200_000}),
        ("target", "200k sequences", {"batch.target_samples": 200_000}),
    ],
)
def test_units_choose_the_key(name, text, values):
    assert parse_field(FIELD_BY_ID[name], text, None) == values
    request = with_values(PlanRequest(overrides={FIELD_BY_ID[name].keys[0]: 1}), FIELD_BY_ID[name], values)
    assert request.overrides == values, "one key of a field at a time"


async def test_a_field_is_found_and_a_list_is_searched():
    app = frozen_app(request=PlanRequest(profile="p", overrides={"data.sources.0.text_column": "old"}))
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await pilot.press("slash")
        await pilot.pause()
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


async def test_rows_are_plain_text_and_the_key_bar_says_what_enter_does():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await go(pilot, "enter", "enter")
        text = shown(app)
        assert "10,000" in text and re.search(r"sequence +id +length", text)
        assert re.search(r"MKVLA\[red\]TT +ab +12", text) and re.search(r"MSSQ +\(empty\) +4", text)
        assert re.search(r"\[/\] +\(no value\) +3", text)
        assert "\x1b" not in text and "enter next" in text
        await go(pilot, "down")
        assert isinstance(app.focused, ActionButton) and "enter press" in shown(app)


async def test_q_is_a_letter_in_an_editor_and_a_paste_of_a_megabyte_is_cut():
    app = frozen_app(at_review=True)
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await to_field(pilot, "name")
        await type_into(pilot, "q1")
        entry = app.screen.query_one(Input)
        assert entry.value == "q1"
        entry.insert_text_at_cursor("x" * 1_000_000)
        await pilot.pause()
        assert len(entry.value) <= 4096
        await go(pilot, "escape", "q")
    assert app.return_value == 0


async def test_another_profile_and_another_name_are_asked_for():
    reader = FrozenReader()
    app = frozen_app(reader)
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await to_field(pilot, "profile")
        await go(pilot, "left")
        assert reader.asked[-1].profile == "cpu-demo"
        await to_field(pilot, "name")
        await type_into(pilot, "mine")
        await go(pilot, "enter")
        assert reader.asked[-1].name == "mine" and reader.asked[-1].overrides == {}
        await to_field(pilot, "folder")
        await type_into(pilot, "out/x")
        await go(pilot, "enter")
        assert reader.asked[-1].output_dir == "out/x"
        await go(pilot, "r")
        assert reader.asked[-1].output_dir is None


async def test_one_click_of_a_real_mouse_opens_a_row_below_the_focused_one():
    """Its button comes up later than it goes down, and the row with the focus has more lines than without."""
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
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


def test_a_number_with_a_word_that_is_no_unit_names_the_units():
    with pytest.raises(ValueError, match=r"Type a number.* After it may stand: .*tokens.*sequences"):
        parse_field(FIELD_BY_ID["target"], "128 seq", None)
    with pytest.raises(ValueError, match=r"4e-4\.$"):
        parse_field(FIELD_BY_ID["learning_rate"], "fast", None)
