"""No English is left on any screen: driven in a language in which each translated letter can be told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from trainwiz.core import language
from trainwiz.core.config.keys import settable_keys
from trainwiz.core.plan.request import PlanRequest
from trainwiz.tui.options import OPTIONS
from trainwiz.tui.screens.plan_fields import DATA, HARDWARE, MODEL, REVIEW, TRAINING

from tests.tui.monitor_states import STATES
from tests.tui.pseudo import Pseudo, english_left, screen_lines, words_in
from tests.tui.test_monitor_snapshots import _frozen_world, app_for, drawn  # noqa: F401 -- the fixture holds for this file too
from tests.tui.wizard_parts import FrozenReader, frozen_app, settled

NAMES = (
    "trainwiz nvidia smi cuda torch flash attn deepspeed tensorboard wandb python json yaml nccl gloo sdpa eager zero "
    "adamw adam fused lora bleu esm bert gpt qwen rtx super gpu cpu ram hub pid xorg loss eval"
)
"""Products, formats and names that no language translates."""
UNITS = "gib mib kib mhz kwh eur tokens token min"
KEYS = "enter esc tab ctrl shift space home end pgup pgdn pageup pagedown del backspace up down left right"
SIZES = [(120, 40), (80, 24)]


def always_known() -> set[str]:
    """Names, units, keys, the parts of key paths and of options."""
    options = words_in([option.flag for option in OPTIONS] + [value for option in OPTIONS for value in option.values])
    return set(f"{NAMES} {UNITS} {KEYS}".split()) | words_in(settable_keys()) | options


@pytest.fixture(autouse=True)
def _nobodys_language(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(language, "_catalogue", Pseudo())
    monkeypatch.setattr(language, "_language", "xx")
    yield


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("step", [HARDWARE, MODEL, DATA, TRAINING, REVIEW])
async def test_steps_of_the_wizard(step: int, size: tuple[int, int]) -> None:
    reader = FrozenReader()
    app = frozen_app(reader)
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        for _ in range(step):
            await pilot.press("enter")
            await settled(pilot)
        readings = list(reader.read(PlanRequest(profile="2080super"), lambda: False))
        known = always_known() | words_in(readings)
        left = english_left(screen_lines(app), known)
        await pilot.press("f1")
        await pilot.pause()
        left += english_left(screen_lines(app), known)
    assert not left, "\n".join(dict.fromkeys(left))


DIALOGS = (("tab", "f1"), ("l",), ("s",), ("e",), ("m",), ("t",), ("p",))
"""Keys to each dialog and card of the monitor, from its screen."""


@pytest.mark.parametrize(
    ("state", "keys"),
    [*((state, ()) for state in STATES), *(("running", keys) for keys in DIALOGS)],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
async def test_states_of_the_monitor(state: str, keys: tuple[str, ...], tmp_path: Path) -> None:
    app = app_for(state, "dark")
    data = [path for path in tmp_path.rglob("*") if path.is_file()]
    known = always_known() | words_in([*data, *(path.read_text(errors="replace") for path in data)])
    async with app.run_test(size=(120, 40)) as pilot:
        await drawn(pilot)
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        await pilot.pause(0.1)
        left = english_left(screen_lines(app), known)
    assert not left, "\n".join(dict.fromkeys(left))
