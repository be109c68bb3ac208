"""Importing in the wizard, by keys and pastes: what is shown, what is refused, what the wizard takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.events import Paste
from textual.widgets import Input
from trainwiz.core.profile import load_profile, user_folder
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens import import_card
from trainwiz.tui.screens.import_card import ImportCard
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.screens.plan_fields import TRAINING
from trainwiz.tui.widgets.field_row import ActionButton
from trainwiz.tui.widgets.file_picker import FilePicker

from tests.tui.wizard_keys import WIDE, go, keys_of_text, shown, to_field, type_into, until
from tests.tui.wizard_parts import frozen, frozen_app, settled

ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
fp16: true
machine_rank: 0
num_processes: 2
surprise: 1
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(ACCELERATE)


async def opened(pilot) -> ImportCard:
    """The window, by its key."""
    await settled(pilot)
    await pilot.press("i")
    await pilot.pause()
    card = pilot.app.screen
    assert isinstance(card, ImportCard)
    return card


async def was_read(pilot) -> None:
    """Wait until what stands in the box was read."""
    card = pilot.app.screen
    await until(pilot, lambda: card._read_text == card.box.text)
    await pilot.pause()
    await pilot.pause()


async def paste(pilot, text: str) -> None:
    """As a terminal does it: the application is told, and hands it to what has the focus."""
    pilot.app.post_message(Paste(text))
    await pilot.pause()
    await was_read(pilot)


def plan_screen(app: TrainwizApp) -> PlanScreen:
    (screen,) = (one for one in app.screen_stack if isinstance(one, PlanScreen))
    return screen


async def test_the_first_step_says_so_by_a_key_and_a_line():
    async with frozen() as (app, pilot):
        text = shown(app)
        assert "[ Import a file or a command ]" in text and "i import" in text
        await go(pilot, "down", "down", "enter")
        assert isinstance(app.screen, ImportCard)
        await go(pilot, "escape")
        assert app.screen is plan_screen(app) and isinstance(app.focused, ActionButton)
        await go(pilot, "enter")
        assert isinstance(app.screen, ImportCard)


async def test_a_paste_shows_what_became_of_each_setting_and_fills_the_wizard():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await opened(pilot)
        await paste(pilot, ACCELERATE)
        text = shown(app)
        for piece in ("accelerate file", "Mapped: 3", "→ engine.precision", "Renamed: 1", "Unknown: 1", "surprise"):
            assert piece in text
        assert not user_folder().exists(), "nothing is kept before it is asked for"
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.focused, ActionButton)
        await go(pilot, "enter")
        assert app.screen is plan_screen(app)
        assert plan_screen(app).state.request.profile == "imported"
        assert load_profile("imported").values["engine.processes"] == 2


async def test_the_name_can_be_chosen_and_one_that_is_taken_is_refused_in_place():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        card = await opened(pilot)
        await paste(pilot, ACCELERATE)
        await pilot.press("tab", "tab")
        entry = app.focused
        assert isinstance(entry, Input)
        for name, said in (("2080super", "choose another"), (" ", "Type a name.")):
            entry.value = name
            await pilot.press("enter")
            await pilot.pause()
            assert app.screen is card and said in shown(app)
            assert card.box.text == ACCELERATE, "nothing is lost"
        entry.value = "mine"
        await go(pilot, "enter")
        assert plan_screen(app).state.request.profile == "mine"


async def test_values_of_ones_own_give_way_and_that_is_said_before():
    async with frozen() as (app, pilot):
        await to_field(pilot, "learning_rate")
        await type_into(pilot, "1e-3")
        await go(pilot, "enter")
        assert plan_screen(app).state.step == TRAINING
        await opened(pilot)
        await paste(pilot, "accelerate launch train.py --learning_rate 5e-5")
        assert "discards 1 value chosen in the wizard" in shown(app)
        assert app.screen.query_one("#problem").has_class("-warning")
        await go(pilot, "enter", "enter")
        request = plan_screen(app).state.request
        assert (request.profile, request.overrides) == ("train", {})
        assert load_profile("train").values["training.learning_rate"] == 5e-5


async def test_a_refusal_is_one_sentence_in_place_and_the_text_stays():
    """Which sentence for which text: tests/core/importing/test_gather.py."""
    text = "args = TrainingArguments(\r  learning_rate=1e-4,"
    app = frozen_app()
    async with app.run_test(size=(100, 30)) as pilot:
        card = await opened(pilot)
        before = plan_screen(app).state.request
        await paste(pilot, text)
        assert "not valid Python" in shown(app) and not card.has_class("-read")
        assert card.box.text == text.replace("\r", "\n")
        await pilot.press("enter", "tab", "enter")
        await pilot.pause()
        assert app.screen is card
        await go(pilot, "escape")
        assert plan_screen(app).state.request is before
        assert not user_folder().exists()


async def test_a_paste_that_cannot_be_read_leaves_the_box_as_it_was():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        card = await opened(pilot)
        await paste(pilot, "")
        await paste(pilot, " \r \r")
        assert "Supported input" in shown(app) and not card.has_class("-read")
        await pilot.press("enter")
        await pilot.pause()
        assert app.focused is card.box
        card.box.text = ""
        await paste(pilot, ACCELERATE)
        for pasted, said in (("x" * 2**21, "larger than 1 MiB"), ("\x7fELF\0\0\x01", "null bytes")):
            app.post_message(Paste(pasted))
            await pilot.pause()
            await pilot.pause()
            assert said in shown(app) and card.box.text == ACCELERATE
            assert card.has_class("-read"), "what was read before can still be used"


async def test_a_paste_that_a_terminal_types_key_by_key_keeps_its_lines(monkeypatch):
    # On a busy machine the keys of the test come slower than those of a terminal.
    monkeypatch.setattr(import_card, "PAUSE_S", 2.0)
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        card = await opened(pilot)
        keys = []
        for line in ("fp16: true", "learning_rate: 1e-4", "max_steps: 10"):
            keys += [*keys_of_text(line), "enter"]
        await pilot.press(*keys)
        await was_read(pilot)
        assert card.box.text == "fp16: true\nlearning_rate: 1e-4\nmax_steps: 10\n"
        assert "training.max_steps" in shown(app) and app.screen is card


async def test_a_file_can_be_picked_and_a_second_one_joins_it():
    Path("ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        card = await opened(pilot)
        for name in ("ds.json", "a.yaml"):
            await pilot.press("f3")
            await pilot.pause()
            picker = app.screen
            assert isinstance(picker, FilePicker)
            await pilot.press(*keys_of_text(name))
            await until(pilot, lambda picker=picker, name=name: [entry.name for entry in picker.shown] == [name])
            await pilot.press("enter")
            await pilot.pause()
        await was_read(pilot)
        assert card.box.text == "a.yaml\nds.json\n"
        assert "a.yaml (accelerate file), ds.json (DeepSpeed JSON)" in shown(app)
        assert app.focused is card.box


async def test_foreign_text_is_plain_and_a_long_report_scrolls():
    rows = "".join(f"surprise_{number}: '[red]\\x1b[31m{number}'\n" for number in range(80))
    app = frozen_app()
    async with app.run_test(size=(80, 24)) as pilot:
        card = await opened(pilot)
        await paste(pilot, ACCELERATE + rows.replace("\\x1b", "\x1b"))
        assert "\x1b" not in shown(app) and "surprise_79 [red]79" not in shown(app)
        for _ in range(40):
            await pilot.press("pagedown")
        await pilot.pause()
        assert "surprise_79 [red]79" in shown(app) and app.focused is card.box
