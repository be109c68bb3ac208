"""Pictures of the wizard and of its import window, over a frozen world. Another textual draws a little differently."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from textual.events import Paste
from trainwiz.core.language import use_language
from trainwiz.tui.screens.import_card import ImportCard
from trainwiz.tui.screens.plan_fields import DATA, HARDWARE, MODEL, REVIEW, TRAINING
from trainwiz.tui.theme import marks

from tests.conftest import REPOSITORY
from tests.tui.wizard_parts import FrozenReader, frozen_app, settled, shown, until

PINNED = re.search(r"^textual==(\S+)", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE)
pytestmark = pytest.mark.skipif(
    PINNED is None or version("textual") != PINNED.group(1),
    reason="the pictures were made with the textual of constraints.txt",
)

SMALL, MIDDLE, LARGE = (60, 20), (80, 24), (120, 40)
WIZARD = {
    # Name -> step, size, theme, further keys.
    "hardware": (HARDWARE, LARGE, "dark", ()),
    "data": (DATA, LARGE, "dark", ()),
    "review": (REVIEW, SMALL, "dark", ()),
    "contrast": (TRAINING, LARGE, "high-contrast", ()),
    "ascii": (TRAINING, MIDDLE, "dark", ()),
    "chinese": (REVIEW, LARGE, "dark", ()),
    # Large: in a middle one the form has two layouts that hold, with its scroll bar and without.
    "values": (MODEL, LARGE, "dark", ("space",)),
    "help": (TRAINING, MIDDLE, "light", ("f1",)),
}
SCRIPT = """from transformers import TrainingArguments

args = TrainingArguments(
    output_dir="out", evaluation_strategy="epoch", per_gpu_train_batch_size=4, gradient_accumulation_steps=8,
    learning_rate=5e-5, fp16=True, sharded_ddp="simple", push_to_hub=True, hub_model_id="a/b", surprise="[red]3",
    warmup_ratio=0.1, lr_scheduler_type="cosine", num_train_epochs=3, run_name=NAME,
)
"""


@pytest.fixture(autouse=True)
def _here(here: Path) -> Iterator[None]:
    yield
    use_language("en")
    marks.ascii_only = False


async def still(pilot) -> None:
    """Until nothing on the screen changes: heights follow what is read, and scroll bars follow heights."""
    seen, same = "", 0
    while same < 6:
        await pilot.pause(0.05)
        now = shown(pilot.app)
        same, seen = (same + 1 if now == seen else 0), now


def picture(name: str, size: tuple[int, int], theme: str, keys: tuple[str, ...], lead):
    """What `snap_compare` takes: go there in a theme, then press more keys."""

    async def run(pilot):
        pilot.app.theme = theme
        await settled(pilot)
        await lead(pilot)
        await settled(pilot)
        for key in keys:
            await pilot.press(key)
            await settled(pilot)
        await still(pilot)

    if name == "chinese":
        use_language("zh")
    app = frozen_app(FrozenReader(findings=()) if name == "help" else None, ascii_only=name == "ascii")
    # How far a scroll has come is a matter of time.
    app.animation_level = "none"
    return {"app": app, "terminal_size": size, "run_before": run}


@pytest.mark.parametrize("name", WIZARD)
def test_wizard(snap_compare, name):
    step, size, theme, keys = WIZARD[name]

    async def lead(pilot):
        for _ in range(step):
            await pilot.press("enter")
            await settled(pilot)

    assert snap_compare(**picture(name, size, theme, keys, lead))


def test_import(snap_compare):
    async def lead(pilot):
        await pilot.press("i")
        await pilot.pause()
        card = pilot.app.screen
        assert isinstance(card, ImportCard)
        pilot.app.post_message(Paste(SCRIPT))
        await pilot.pause()
        await until(pilot, lambda: card._read_text == card.box.text)

    assert snap_compare(**picture("import", MIDDLE, "light", (), lead))
