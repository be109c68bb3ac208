"""Pictures of the window in which the wizard imports. Made with the pinned textual, as those of the wizard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.events import Paste
from trainwiz.core.language import use_language
from trainwiz.tui.screens.import_card import ImportCard

from tests.tui.test_wizard_snapshots import VIEWS, pytestmark  # noqa: F401 -- the mark holds for this file too
from tests.tui.wizard_parts import frozen_app, settled

SCRIPT = """from transformers import TrainingArguments

args = TrainingArguments(
    output_dir="out", evaluation_strategy="epoch", per_gpu_train_batch_size=4, gradient_accumulation_steps=8,
    learning_rate=5e-5, fp16=True, sharded_ddp="simple", push_to_hub=True, hub_model_id="a/b", surprise="[red]3",
    warmup_ratio=0.1, lr_scheduler_type="cosine", num_train_epochs=3, run_name=NAME,
)
"""
TEXTS = {"empty": "", "read": SCRIPT, "refused": SCRIPT[:200]}


def prepare(text: str, theme: str, *more: str):
    """Open the window, paste, wait until it was read, then press more keys."""

    async def run(pilot):
        pilot.app.theme = theme
        await settled(pilot)
        await pilot.press("i")
        await pilot.pause()
        card = pilot.app.screen
        assert isinstance(card, ImportCard)
        if text:
            pilot.app.post_message(Paste(text))
            await pilot.pause()
        for _ in range(500):
            await pilot.pause(0.01)
            if card._read_text == card.box.text:
                break
        for key in more:
            await pilot.press(key)
            await pilot.pause()
        await pilot.pause()
        await pilot.pause()

    return run


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def _chinese() -> Iterator[None]:
    use_language("zh")
    yield
    use_language("en")


PICTURES = [("read", "60x20-dark"), ("read", "80x24-light"), ("empty", "80x24-light"), ("refused", "120x40-dark")]


@pytest.mark.parametrize(("text", "view"), PICTURES)
def test_import(snap_compare, text, view):
    size, theme = VIEWS[view]
    assert snap_compare(frozen_app(), terminal_size=size, run_before=prepare(TEXTS[text], theme))


@pytest.mark.usefixtures("_chinese")
def test_chinese(snap_compare):
    assert snap_compare(frozen_app(), terminal_size=(100, 30), run_before=prepare(SCRIPT, "dark", "enter"))


def test_ascii_and_high_contrast(snap_compare):
    app = frozen_app()
    app.ascii_only = True
    assert snap_compare(app, terminal_size=(80, 24), run_before=prepare(SCRIPT, "high-contrast", "enter"))


def test_the_rest_of_the_report(snap_compare):
    assert snap_compare(
        frozen_app(), terminal_size=(80, 24), run_before=prepare(SCRIPT, "dark", "pagedown", "pagedown")
    )
