"""Importing in the wizard, by keys and pastes: what is shown, what is refused, what the wizard takes."""

from __future__ import annotations

from pathlib import Path

from textual.events import Paste
from trainwiz.core.profile.store import load_profile, user_folder
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens import import_card
from trainwiz.tui.screens.import_card import ImportCard
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.widgets.field_row import ActionButton
from trainwiz.tui.widgets.file_picker import FilePicker, FileTree

from tests.tui.test_import_command import ACCELERATE, _here  # noqa: F401 - the fixture holds for this file too
from tests.tui.wizard_parts import frozen, go, shown, to_field, type_into, until


async def opened(pilot) -> ImportCard:
    """The window, by its key."""
    await go(pilot, "i")
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


async def test_a_paste_shows_what_became_of_each_setting_and_fills_the_wizard():
    async with frozen() as (app, pilot):
        assert "[ Import a file or a command ]" in shown(app) and "i import" in shown(app)
        await go(pilot, "down", "down", "enter")
        assert isinstance(app.screen, ImportCard)
        await go(pilot, "escape")
        assert app.screen is plan_screen(app) and isinstance(app.focused, ActionButton)
        await opened(pilot)
        await paste(pilot, ACCELERATE)
        text = shown(app)
        for piece in ("accelerate file", "Mapped: 3", "→ engine.precision", "Unknown: 1", "surprise"):
            assert piece in text
        assert not user_folder().exists(), "nothing is kept before it is asked for"
        await go(pilot, "tab", "tab", "enter")
        assert app.screen is plan_screen(app)
        assert plan_screen(app).state.request.profile == "imported"
        assert load_profile("imported").values["engine.processes"] == 2
        # Values of one's own give way, and that is said before.
        await to_field(pilot, "learning_rate")
        await type_into(pilot, "1e-3")
        await go(pilot, "enter")
        await opened(pilot)
        await paste(pilot, "accelerate launch train.py --learning_rate 5e-5")
        assert "discards 1 value chosen in the wizard" in shown(app)
        assert app.screen.query_one("#problem").has_class("-warning")
        await go(pilot, "tab", "tab", "enter")
        request = plan_screen(app).state.request
        assert (request.profile, request.overrides) == ("train", {})
        assert load_profile("train").values["training.learning_rate"] == 5e-5


async def test_what_cannot_be_read_is_one_sentence_in_place_and_the_text_stays():
    """Which sentence for which text: tests/core/importing/test_gather.py."""
    text = "args = TrainingArguments(\r  learning_rate=1e-4,"
    async with frozen(size=(100, 30)) as (app, pilot):
        card = await opened(pilot)
        before = plan_screen(app).state.request
        await paste(pilot, "")
        await paste(pilot, " \r \r")
        assert "Supported input" in shown(app) and card._merged is None
        await pilot.press("enter")
        await pilot.pause()
        assert app.focused is card.box
        card.box.text = ""
        await paste(pilot, text)
        assert "not valid Python" in shown(app) and card._merged is None
        assert card.box.text == text.replace("\r", "\n")
        await pilot.press("enter", "tab", "enter")
        await pilot.pause()
        assert app.screen is card
        card.box.focus()
        card.box.text = ""
        await paste(pilot, ACCELERATE)
        for pasted, said in (("x" * 2**21, "larger than 1 MiB"), ("\x7fELF\0\0\x01", "cannot be imported")):
            app.post_message(Paste(pasted))
            await pilot.pause()
            await pilot.pause()
            assert said in shown(app) and card.box.text == ACCELERATE
            assert card._merged is not None, "what was read before can still be used"
        await go(pilot, "escape")
        assert plan_screen(app).state.request is before and not user_folder().exists()


async def test_keys_files_and_long_reports(monkeypatch):
    # On a busy machine the keys of the test come slower than those of a terminal.
    monkeypatch.setattr(import_card, "PAUSE_S", 2.0)
    Path("ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    async with frozen(size=(80, 24)) as (app, pilot):
        card = await opened(pilot)
        # A terminal types a paste key by key; its lines stay.
        await pilot.press(*"fp16: true", "enter", *"max_steps: 10", "enter")
        await was_read(pilot)
        assert card.box.text == "fp16: true\nmax_steps: 10\n"
        assert "training.max_steps" in shown(app) and app.screen is card
        monkeypatch.setattr(import_card, "PAUSE_S", 0.15)
        card.box.text = ""
        for name in ("ds.json", "a.yaml"):
            await pilot.press("f3")
            await pilot.pause()
            picker = app.screen
            assert isinstance(picker, FilePicker)
            nodes = picker.query_one(FileTree).root.children
            await until(pilot, lambda nodes=nodes: bool(nodes))
            picker.query_one(FileTree).move_cursor(next(node for node in nodes if str(node.label) == name))
            await pilot.press("enter")
            await pilot.pause()
        await was_read(pilot)
        assert card.box.text == "a.yaml\nds.json\n" and app.focused is card.box
        assert "a.yaml (accelerate file), ds.json (DeepSpeed JSON)" in shown(app)
        card.box.text = ""
        await paste(pilot, ACCELERATE + "".join(f"surprise_{n}: '[red]\x1b[31m{n}'\n" for n in range(80)))
        assert "\x1b" not in shown(app) and "surprise_79  [red]79" not in shown(app)
        for _ in range(40):
            await pilot.press("pagedown")
        await pilot.pause()
        assert "surprise_79  [red]79" in shown(app) and app.focused is card.box
