"""No English is left on any screen, which is driven in a language whose letters can be told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from trainwiz.core import language
from trainwiz.core.catalog.gpus import load_gpus
from trainwiz.core.config.keys import NOT_SETTABLE
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.config.settings import SETTINGS
from trainwiz.core.hardware.doctor import check_machine
from trainwiz.core.hardware.read import find_tools, probe_machine
from trainwiz.tui.cli import main
from trainwiz.tui.options import OPTIONS
from trainwiz.tui.screens.plan_fields import STEPS, TRAINING
from trainwiz.tui.subcommands import BY_WORDS

from tests.conftest import REPOSITORY
from tests.each import each
from tests.tui.pseudo import Pseudo, english_left, screen_lines, words_in
from tests.tui.test_monitor_snapshots import _frozen_world, app_for, drawn  # noqa: F401 -- the fixture holds for this file too
from tests.tui.wizard_parts import FrozenReader, frozen, go, running

NAMES = (
    "trainwiz nvidia smi cuda torch flash attn deepspeed tensorboard wandb python json yaml nccl gloo sdpa eager zero "
    "adamw adam fused lora bleu esm bert gpt qwen rtx super gpu cpu ram hub pid xorg loss eval "
    "diagnose"
)
"""Products, formats, commands and names that no language translates."""
UNITS = "gib mib kib mhz kwh eur tokens token min"
JSON = "true false null split train linux"
"""Values as files have them, and what a system calls itself."""
KEYS = "enter esc tab ctrl shift space home end pgup pgdn pageup pagedown del backspace up down left right"
FILES = sorted((REPOSITORY / "profiles").rglob("*.yaml"))
SIZE = (120, 40)
SETTABLE = [key for key in SETTINGS if key not in NOT_SETTABLE]
Keys = tuple[tuple[str, ...], ...]


def always_known() -> set[str]:
    """Names, units, keys, the parts of key paths and of options."""
    options = words_in([option.synopsis for option in OPTIONS])
    values = words_in(word for key in SETTABLE for word in SETTINGS[key].values)
    cards = words_in(load_gpus())
    return set(f"{NAMES} {UNITS} {KEYS} {JSON}".split()) | words_in(SETTABLE) | options | values | cards


@pytest.fixture(autouse=True)
def _nobodys_language(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(language, "_catalogue", Pseudo())
    monkeypatch.setattr(language, "_language", "xx")
    yield


WINDOWS = (("f1",), ("slash", *"nothing at all"), ("colon",))


async def english_after(pilot: Pilot[Any], cases: Keys, known: set[str]) -> list[str]:
    """What is left on the screen after each of these keys; the window of the ones before is closed."""
    screen, found = pilot.app.screen, list[str]()
    for keys in cases:
        await pilot.press(*keys)
        await pilot.pause(0.3)
        found += [f"{keys}: {left}" for left in english_left(screen_lines(pilot.app), known)]
        for _ in range(4):
            if pilot.app.screen is not screen:
                await pilot.press("escape")
                await pilot.pause(0.1)
        assert pilot.app.screen is screen
    return found


async def test_steps_of_the_wizard() -> None:
    reader = FrozenReader()
    data = reader.read(PlanRequest(profile="2080super"), lambda: False)
    known = always_known() | words_in([*data, *WINDOWS, "nothing all"])
    async with frozen(reader) as (_app, pilot):
        for step in range(len(STEPS)):
            await go(pilot, *(["enter"] if step else []))
            assert pilot.app.screen.state.step == step
            found = await english_after(pilot, ((), *(WINDOWS if step == 0 else WINDOWS[:1])), known)
            if step == TRAINING:
                await pilot.press("space", *"x%", "enter")
                found += english_left(screen_lines(pilot.app), known)
                await pilot.press("escape")
            assert "\n".join(found) == ""


LOG = Pseudo().gettext("log")
MONITOR: dict[str, Keys] = {
    "running": (
        (),
        ("5",),
        ("s",),
        ("p",),
        ("c",),
        ("tab", "f1"),
        ("l", "slash", *"saved", "enter"),
        ("colon", *LOG),
        ("e",),
        ("m",),
    ),
    "eight-gpus": (("tab", "tab", "tab", "down"), ("enter",)),
    "given-up": ((), ("r",)),
    "tensorboard": ((),),
}
"""State -> keys."""


@pytest.mark.parametrize("state", MONITOR)
async def test_states_of_the_monitor(state: str, tmp_path: Path) -> None:
    monitor = app_for(state, "dark")
    data = [path for path in tmp_path.rglob("*") if path.is_file()]
    known = always_known() | words_in([*data, *(path.read_text(errors="replace") for path in data)])
    async with running(monitor, SIZE) as pilot:
        await drawn(pilot)
        assert "\n".join(await english_after(pilot, MONITOR[state], known)) == ""


COMMANDS = (
    "--help",
    "doctor",
    "profiles list",
    "profiles diff 3080-10g 3080-12g",
    "runs list",
    "plan --profile 2080super --tier analytic --verbose",
    "plan --profile lora-r64-3090 --tier analytic --gpu A100 --num-gpus 2",
    "bench --seconds x",
    "runs show nothing",
    "plan --epochs -1 --task nothing --set a",
)


@each("line", COMMANDS)
def test_what_the_commands_say(line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    language.use_language("en")
    with pytest.MonkeyPatch.context() as patch:
        # The command chooses its language anew: the one that nobody speaks stands in for Chinese.
        patch.setattr(language, "_speak", lambda name: None)
        patch.setattr(language, "_catalogue", Pseudo())
        main(line.split())
    said = capsys.readouterr()
    machine = probe_machine()
    pasted = [check.command or "" for check in check_machine(machine, find_tools())]
    names = " ".join(BY_WORDS).split()
    own = [tmp_path, machine.cpu_model, machine.libraries.versions, "SPEED", "hf download"]
    data = [*own, *line.split(), *FILES, *names, *pasted]
    known = always_known() | words_in(data) | words_in(path.stem for path in FILES)
    left = english_left([*said.out.splitlines(), *said.err.splitlines()], known)
    assert not left, "\n".join(dict.fromkeys(left))
