"""Pictures of the wizard over a frozen world. Made with the pinned textual; another version draws a little differently."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version

import pytest
from trainwiz.core.language import use_language
from trainwiz.tui.screens.plan_fields import DATA, HARDWARE, MODEL, REVIEW, TRAINING

from tests.conftest import REPOSITORY
from tests.tui.wizard_parts import FrozenReader, frozen_app, settled

PINNED = re.search(r"^textual==(\S+)", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE)
pytestmark = pytest.mark.skipif(
    PINNED is None or version("textual") != PINNED.group(1),
    reason="the pictures were made with the textual of constraints.txt",
)

VIEWS = {"60x20-dark": ((60, 20), "dark"), "80x24-light": ((80, 24), "light"), "120x40-dark": ((120, 40), "dark")}
STEPS = {HARDWARE: "hardware", MODEL: "model", DATA: "data", TRAINING: "training", REVIEW: "review"}


def prepare(step: int, theme: str, *more: str):
    """Go to a step in a theme, wait for the plan, then press more keys."""

    async def run(pilot):
        pilot.app.theme = theme
        await settled(pilot)
        for _ in range(step):
            await pilot.press("enter")
        for key in more:
            await pilot.press(key)
            await settled(pilot)
        await pilot.pause()
        await pilot.pause()

    return run


@pytest.fixture
def _chinese() -> Iterator[None]:
    use_language("zh")
    yield
    use_language("en")


@pytest.mark.parametrize(("size", "theme"), VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("step", STEPS, ids=STEPS.get)
def test_step(snap_compare, step, size, theme):
    assert snap_compare(frozen_app(), terminal_size=size, run_before=prepare(step, theme))


@pytest.mark.usefixtures("_chinese")
@pytest.mark.parametrize(("step", "size"), [(TRAINING, (80, 24)), (REVIEW, (120, 40))], ids=["training", "review"])
def test_chinese(snap_compare, step, size):
    assert snap_compare(frozen_app(), terminal_size=size, run_before=prepare(step, "dark"))


def test_without_colours(snap_compare, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(frozen_app(), terminal_size=(120, 40), run_before=prepare(TRAINING, "dark"))


def test_high_contrast(snap_compare):
    assert snap_compare(frozen_app(), terminal_size=(120, 40), run_before=prepare(TRAINING, "high-contrast"))


def test_ascii(snap_compare):
    app = frozen_app()
    app.ascii_only = True
    assert snap_compare(app, terminal_size=(80, 24), run_before=prepare(TRAINING, "dark"))


def test_list_of_values(snap_compare):
    run = prepare(MODEL, "dark", "space")
    assert snap_compare(frozen_app(), terminal_size=(80, 24), run_before=run)


def test_help(snap_compare):
    run = prepare(TRAINING, "light", "f1")
    assert snap_compare(frozen_app(FrozenReader(findings=())), terminal_size=(80, 24), run_before=run)
