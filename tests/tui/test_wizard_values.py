"""Values in the wizard, over a frozen world: typed, chosen from lists, taken back; what cannot be read says why."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from textual import events
from textual.widgets import Input
from trainwiz.core.config.request import PlanRequest
from trainwiz.tui.screens.plan_fields import FIELD_BY_ID, TRAINING, parse_field
from trainwiz.tui.widgets.buttons import ActionButton
from trainwiz.tui.widgets.chooser import Chooser
from trainwiz.tui.widgets.field_row import FieldRow

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


async def test_a_typed_number_changes_the_plan_before_enter():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await to_field(pilot, "micro_batch")
        await type_into(pilot, "9")
        await settled(pilot)
        assert app.screen.state.plan.batch.micro_batch == 9
        assert "✗ does not fit" in shown(app)
        await go(pilot, "enter")
        assert app.screen.state.request.overrides == {"batch.micro_batch_size": 9}
        row = app.focused
        assert row.view.changed and row.view.origin == "you"
        assert "1 value changed" in shown(app)
        await go(pilot, "r")
        assert app.screen.state.request.overrides == {}
        assert app.screen.state.plan.batch.micro_batch == 6


async def test_escape_in_the_editor_brings_the_old_value_back():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await to_field(pilot, "micro_batch")
        await type_into(pilot, "9")
        await settled(pilot)
        await go(pilot, "escape")
        assert app.screen.state.request.overrides == {}
        assert app.screen.state.step == TRAINING
        assert app.screen.state.plan.batch.micro_batch == 6


async def test_what_cannot_be_read_says_why_beside_the_field():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        row = await to_field(pilot, "micro_batch")
        await type_into(pilot, "many")
        await settled(pilot)
        assert "✗ Type a number" in shown(app)
        assert app.screen.state.plan.batch.micro_batch == 6
        await go(pilot, "enter")
        assert row.editing, "enter leaves the editor only with a readable text"
        await go(pilot, "escape")
        assert not row.editing and app.screen.state.invalid == {}


async def test_units_choose_between_steps_and_epochs():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await to_field(pilot, "steps")
        await type_into(pilot, "2.5 epochs")
        await go(pilot, "enter")
        assert app.screen.state.request.overrides == {"training.epochs": 2.5}
        await type_into(pilot, "2k steps")
        await go(pilot, "enter")
        assert app.screen.state.request.overrides == {"training.max_steps": 2000}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("200k real tokens", "batch.target_real_tokens"),
        ("200k tokens", "batch.target_tokens"),
        ("200k sequences", "batch.target_samples"),
    ],
)
async def test_a_target_is_in_tokens_real_tokens_or_sequences(text, key):
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await to_field(pilot, "target")
        await type_into(pilot, text)
        await go(pilot, "enter")
        assert app.screen.state.request.overrides == {key: 200_000}


async def test_slash_finds_a_field_on_another_step_even_a_hidden_one():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await pilot.press("slash")
        await pilot.pause()
        await pilot.press(*"seed")
        await go(pilot, "enter")
        assert app.focused.spec.id == "seed" and app.screen.state.step == TRAINING


async def test_a_list_of_values_is_searched_and_taken():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await to_field(pilot, "attention")
        await pilot.press("space")
        await pilot.pause()
        assert isinstance(app.screen, Chooser)
        await pilot.press(*"eag")
        await go(pilot, "enter")
        assert app.screen.state.request.overrides == {"engine.attention": "eager"}
        await go(pilot, "right")
        assert app.screen.state.request.overrides == {"engine.attention": "flash_attention_2"}
        await go(pilot, "left", "left")
        assert app.screen.state.request.overrides == {"engine.attention": "sdpa"}


async def test_a_path_is_taken_as_it_was_typed_and_forgets_the_old_columns():
    app = frozen_app(request=PlanRequest(profile="p", overrides={"data.sources.0.text_column": "old"}))
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await to_field(pilot, "data")
        await pilot.press("space")
        await pilot.pause()
        await pilot.press(*"my")
        await pilot.press("slash", "x", "full_stop", "c", "s", "v")
        await go(pilot, "enter")
        assert app.screen.state.request.overrides == {"data.sources.0.name": "my/x.csv"}


async def test_columns_and_first_rows_are_shown_as_plain_text():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await go(pilot, "enter", "enter")
        text = shown(app)
        assert "10,000" in text and re.search(r"sequence +id +length", text)
        assert re.search(r"MKVLA\[red\]TT +ab +12", text) and re.search(r"MSSQ +\(empty\) +4", text)
        assert re.search(r"\[/\] +\(no value\) +3", text)
        assert "\x1b" not in text


async def test_q_is_a_letter_in_an_editor_and_quits_elsewhere():
    app = frozen_app(at_review=True)
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await to_field(pilot, "name")
        await type_into(pilot, "q1")
        assert app.screen.query_one(Input).value == "q1"
        await go(pilot, "escape", "q")
    assert app.return_value == 0


async def test_a_paste_of_a_megabyte_is_cut():
    app = frozen_app(at_review=True)
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await to_field(pilot, "name")
        await pilot.press("space")
        await pilot.pause()
        entry = app.screen.query_one(Input)
        entry.insert_text_at_cursor("x" * 1_000_000)
        await pilot.pause()
        assert len(entry.value) <= 4096


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


async def test_the_key_bar_says_what_enter_does_where_the_focus_is():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await go(pilot, "enter", "enter")
        assert "enter next" in shown(app)
        await go(pilot, "down")
        assert isinstance(app.focused, ActionButton)
        assert "enter press" in shown(app)
        await to_field(pilot, "name")
        assert "enter next" in shown(app)


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
