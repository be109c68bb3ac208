"""The wizard by keyboard, over a frozen world: steps, fields, remedies, errors, start."""

from __future__ import annotations

import re

import pytest
from textual.widgets import Input
from trainwiz.core.findings import Finding
from trainwiz.core.plan.request import PlanRequest
from trainwiz.core.run.folder import RunFolder
from trainwiz.tui.screens import plan_starter
from trainwiz.tui.screens.plan_field_table import FIELDS
from trainwiz.tui.screens.plan_fields import DATA, HARDWARE, MODEL, REVIEW, TRAINING
from trainwiz.tui.screens.plan_starter import Started
from trainwiz.tui.widgets.action_button import ActionButton
from trainwiz.tui.widgets.chooser import Chooser
from trainwiz.tui.widgets.field_row import FieldRow
from trainwiz.tui.widgets.help_card import HelpCard

from tests.tui.wizard_parts import MISSING, FrozenReader, frozen_app, settled

WIDE = (120, 40)


def shown(app) -> str:
    """All text that is on the screen."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def go(pilot, *keys: str) -> None:
    await pilot.press(*keys)
    await settled(pilot)
    await pilot.pause()


async def to_field(pilot, name: str) -> FieldRow:
    """Go to a field, on whichever step it is."""
    await pilot.app.screen._found(name)
    await pilot.pause()
    row = pilot.app.focused
    assert isinstance(row, FieldRow) and row.spec.id == name
    return row


async def type_into(pilot, text: str) -> None:
    names = {" ": "space", "/": "slash", ".": "full_stop", "-": "minus", "_": "underscore", ",": "comma"}
    await pilot.press("space")
    await pilot.pause()
    await pilot.press(*(names.get(letter, letter) for letter in text))


async def test_four_enters_go_through_the_steps_and_escape_goes_back():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        assert app.screen.state.step == HARDWARE
        for step in (MODEL, DATA, TRAINING, REVIEW):
            await go(pilot, "enter")
            assert app.screen.state.step == step
        assert isinstance(app.focused, ActionButton) and app.focused.action == "start"
        for step in (TRAINING, DATA, MODEL, HARDWARE, HARDWARE):
            await go(pilot, "escape")
            assert app.screen.state.step == step
        assert app.screen.state.reached == REVIEW


@pytest.mark.parametrize("pause", [True, False])
async def test_five_enters_start_the_plan_that_is_shown(monkeypatch, pause):
    """Also when they are typed before anything was read."""
    started = []
    monkeypatch.setattr(
        plan_starter, "start_plan", lambda kind, plan, request: started.append((kind, plan)) or Started(kind)
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


async def test_numbers_of_the_plan_stand_on_the_screen():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        text = shown(app)
        assert "6 × 651 × 1 process  =  3,906 sequences" in text
        assert "1,999,872 tokens a step" in text and "−0.01 % of target" in text
        assert "✓ fits" in text and "5.4 GiB" in text and "between 5.1 and 5.9" in text
        assert "21.4 of    62.7 GiB" in text
        assert "! 7.3 to 18 years" in text
        assert "2 findings" in text and "The plan takes years." in text
        # Text from outside is never markup.
        assert "[bold]here[/bold]" in text


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


async def test_fast_typing_is_planned_once(monkeypatch):
    # A second between two keys counts as fast here, so that a busy machine types fast enough.
    monkeypatch.setattr("trainwiz.tui.screens.plan_reading.TYPING_PAUSE_S", 1.0)
    reader = FrozenReader()
    app = frozen_app(reader)
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await to_field(pilot, "steps")
        before = len(reader.asked)
        await type_into(pilot, "123456789")
        await settled(pilot)
        assert app.screen.state.plan.config.training.max_steps == 123456789
        assert len(reader.asked) - before == 1


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


async def test_a_digit_applies_the_remedy_with_its_number():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await go(pilot, "2")
        assert app.screen.state.request.overrides == {"model.name": "esm2-8m"}
        await go(pilot, "1")
        assert app.screen.state.request.overrides == {"model.name": "esm2-8m", "training.max_steps": 2000}
        await go(pilot, "9")
        assert len(app.screen.state.request.overrides) == 2


async def test_a_start_that_is_not_possible_says_why_and_writes_nothing(monkeypatch):
    started = []
    monkeypatch.setattr(plan_starter, "start_plan", lambda kind, plan, request: started.append(kind) or Started(kind))
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


async def test_a_failed_start_is_a_sentence_and_the_wizard_goes_on(monkeypatch):
    monkeypatch.setattr(
        plan_starter, "start_plan", lambda kind, plan, request: Started(kind, problem="The disk is full.")
    )
    app = frozen_app(FrozenReader(findings=()), at_review=True)
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await go(pilot, "enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "✗ The disk is full." in shown(app) and app.screen.state.busy == ""


async def test_start_detached_leaves_with_the_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(
        plan_starter, "start_plan", lambda kind, plan, request: Started(kind, RunFolder(tmp_path / "run"))
    )
    app = frozen_app(FrozenReader(findings=()), at_review=True)
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
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
        await go(pilot, "down", "down", "down", "down")
        assert app.focused.id == "files"
        await go(pilot, "down")
        assert "exec accelerate" in shown(app)


@pytest.mark.parametrize("spec", FIELDS, ids=lambda spec: spec.id)
def test_every_field_has_help(spec):
    assert all(text.endswith(".") for text in (spec.help.what, spec.help.why, spec.help.safe, spec.help.cost))
    assert (
        spec.kind != "choice"
        or spec.choices
        or spec.id in {"profile", "machine", "model", "data", "validation_data", "column", "target_column"}
    )


async def test_f1_explains_the_focused_field():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await to_field(pilot, "precision")
        await pilot.press("f1")
        await pilot.pause()
        assert isinstance(app.screen, HelpCard)
        text = shown(app)
        assert "number format" in text and "the card has sm 7.5" in text and "Safe choice" in text
        await go(pilot, "escape")
        assert not isinstance(app.screen, HelpCard)


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


async def test_a_terminal_that_grows_and_shrinks_shows_the_plan_again():
    app = frozen_app()
    async with app.run_test(size=(60, 20)) as pilot:
        await settled(pilot)
        for width, height in ((120, 40), (40, 10), (80, 24), (120, 40)):
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            await pilot.pause()
            assert "fits" in shown(app), (width, height)
        assert "2 findings" in shown(app)


async def test_another_profile_and_another_name_are_asked_for():
    reader = FrozenReader()
    app = frozen_app(reader)
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
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


@pytest.mark.parametrize("size", [(120, 40), (100, 30), (80, 24), (60, 20), (40, 10), (20, 5), (200, 60)])
async def test_the_plan_is_on_the_screen_at_every_size(size):
    app = frozen_app()
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        await go(pilot, "enter", "enter", "enter")
        text = shown(app)
        assert "651" in text, "the batch"
        assert "fits" in text or size[0] < 40
        assert any(word in text for word in ("Training", "Target", "Length"))
