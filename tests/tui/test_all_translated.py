"""No English is left on any screen: driven in a language in which each translated letter can be told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from trainwiz.core import language
from trainwiz.core.catalog.gpus import load_gpus
from trainwiz.core.config.keys import settable_keys
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.config.settings import SETTINGS
from trainwiz.core.hardware.doctor import check_machine
from trainwiz.core.hardware.read import find_tools, probe_machine
from trainwiz.tui.cli import main
from trainwiz.tui.command import app
from trainwiz.tui.options import OPTIONS
from trainwiz.tui.screens.plan_fields import STEPS
from typer.main import get_command

from tests.conftest import REPOSITORY
from tests.each import each
from tests.tui.pseudo import Pseudo, english_left, screen_lines, words_in
from tests.tui.test_monitor_snapshots import _frozen_world, app_for, drawn  # noqa: F401 -- the fixture holds for this file too
from tests.tui.wizard_parts import FrozenReader, frozen_app, settled

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


def always_known() -> set[str]:
    """Names, units, keys, the parts of key paths and of options."""
    options = words_in([option.synopsis for option in OPTIONS])
    values = words_in(word for key in settable_keys() for word in SETTINGS[key].values)
    cards = words_in(load_gpus())
    return set(f"{NAMES} {UNITS} {KEYS} {JSON}".split()) | words_in(settable_keys()) | options | values | cards


@pytest.fixture(autouse=True)
def _nobodys_language(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(language, "_catalogue", Pseudo())
    monkeypatch.setattr(language, "_language", "xx")
    yield


async def test_steps_of_the_wizard() -> None:
    reader = FrozenReader()
    known = always_known() | words_in(reader.read(PlanRequest(profile="2080super"), lambda: False))
    wizard, left = frozen_app(reader), list[str]()
    async with wizard.run_test(size=SIZE) as pilot:
        for _ in STEPS:
            await settled(pilot)
            left += english_left(screen_lines(wizard), known)
            await pilot.press("f1")
            await pilot.pause()
            left += english_left(screen_lines(wizard), known)
            await pilot.press("escape", "enter")
    assert not left, "\n".join(dict.fromkeys(left))


DIALOGS = (("tab", "f1"), ("l",), ("s",), ("e",), ("m",), ("t",), ("p",))
"""Keys to each dialog and card of the monitor, from its screen."""


@pytest.mark.parametrize("state", ["running", "given-up", "paused", "no-gpu", "tensorboard", "process"])
async def test_states_of_the_monitor(state: str, tmp_path: Path) -> None:
    monitor = app_for(state, "dark")
    data = [path for path in tmp_path.rglob("*") if path.is_file()]
    known = always_known() | words_in([*data, *(path.read_text(errors="replace") for path in data)])
    async with monitor.run_test(size=SIZE) as pilot:
        await drawn(pilot)
        screen, left = monitor.screen, list[str]()
        for keys in ((), *(DIALOGS if state == "running" else ())):
            await pilot.press(*keys)
            await pilot.pause(0.2)
            left += english_left(screen_lines(monitor), known)
            for _ in range(3):
                if monitor.screen is not screen:
                    await pilot.press("escape")
    assert not left, "\n".join(dict.fromkeys(left))


COMMANDS = (
    "--help",
    "plan --help",
    "monitor --help",
    "profiles --help",
    "doctor",
    "profiles list",
    "profiles show 2080super-guide",
    "profiles diff 3080-10g 3080-12g",
    "runs list",
    "plan --profile 2080super --tier analytic --verbose",
    "plan --profile lora-r64-3090 --tier analytic --gpu A100 --num-gpus 2",
    "bench --seconds x",
    "runs show nothing",
    "monitor nothing",
    "plan --epochs -1 --task nothing --set a",
)


def commands_of(*group: str) -> list[str]:
    """Names of the commands, or of those of a group."""
    command = get_command(app)
    for name in group:
        command = command.commands[name]  # type: ignore[attr-defined]
    return list(command.commands)  # type: ignore[attr-defined]


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
    names = [name for group in ((), ("profiles",), ("runs",)) for name in commands_of(*group)]
    own = [tmp_path, machine.cpu_model, machine.libraries.versions, "SPEED", "hf download"]
    data = [*own, *line.split(), *FILES, *names, *pasted]
    known = always_known() | words_in(data) | words_in(path.stem for path in FILES)
    left = english_left([*said.out.splitlines(), *said.err.splitlines()], known)
    assert not left, "\n".join(dict.fromkeys(left))
