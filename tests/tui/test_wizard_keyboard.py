"""Every profile by keyboard alone: the same RunConfig, byte for byte, as the headless command, and the same numbers as its plan."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import Finding
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan import gather
from trainwiz.core.plan.gather import probe_here
from trainwiz.core.plan.result import MemoryPlan
from trainwiz.core.profile.store import list_profiles
from trainwiz.tui import cli
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.commands.wizard import wizard_request
from trainwiz.tui.plan_words import finish_words
from trainwiz.tui.screens import plan_reader
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.screens.plan_fields import HARDWARE, REVIEW, on_screen
from trainwiz.tui.screens.plan_reader import PlanReader
from trainwiz.tui.text import count, duration_range, gib
from trainwiz.tui.widgets.field_row import ActionButton
from trainwiz.tui.widgets.lists import TextLines

from tests.tui.wizard_keys import Typist
from tests.tui.wizard_parts import settled

PROFILES = list_profiles()
SIZE = (140, 60)
FOLDER = "out"
"""The run folder, in the working folder of each of the two."""
OF_A_FOLDER = {"accelerate.yaml", "launch.sh", "plan.json", "run.yaml", "state.json"}
Changes = tuple[tuple[str, str, str], ...]
CHANGES: dict[str, Changes] = {
    # Profile -> (the field's name, what a person types or chooses there, the same for --set).
    "cpu-demo": (
        ("Micro-batch", "16", "batch.micro_batch_size=16"),
        ("Max input length", "48 tokens", "batch.sequence_length=48"),
        ("Seed", "7", "training.seed=7"),
    ),
    "2080super": (
        ("Grad. checkpointing", "off", "engine.checkpointing=false"),
        ("Peak learning rate", "2e-4", "training.learning_rate=0.0002"),
    ),
    "a6000": (
        ("Precision", "fp16", "engine.precision=fp16"),
        ("Target batch", "64 sequences", "batch.target_samples=64"),
    ),
    "4080s": (("Label smoothing", "0.2", "training.label_smoothing=0.2"),),
    "lora-r64-3090": (("LoRA rank", "32", "peft.rank=32"), ("Optimizer", "adafactor", "engine.optimizer=adafactor")),
}


@pytest.fixture(scope="module")
def here() -> Machine:
    return probe_here(PlanRequest())


@pytest.fixture(autouse=True)
def _one_machine(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Free memory and disk change while a test runs; both sides plan for the machine as it was once."""
    monkeypatch.setattr(gather, "probe_here", lambda request: here)
    monkeypatch.setattr(plan_reader, "free_disk", lambda path: here.disk_free_bytes)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Goes to a working folder of its own for each side."""

    def enter(side: str) -> Path:
        (tmp_path / side).mkdir()
        monkeypatch.chdir(tmp_path / side)
        return tmp_path / side

    return enter


async def by_keyboard(profile: str, changes: Changes) -> tuple[str, str, datetime]:
    """From the first screen to the folder that "Write only" writes; returns the plan's text, that of its findings and
    the time it was read."""
    request, at_review = wizard_request(PlanRequest(), Path.cwd())
    app = TrainwizApp(
        lambda: PlanScreen(request, at_review=at_review, reader=PlanReader(gather.probe_here(request))),
        ascii_only=False,
    )
    async with app.run_test(size=SIZE) as pilot:
        await settled(pilot)
        typist = Typist(pilot)
        assert typist.screen.state.step == HARDWARE
        await typist.change("Profile", profile)
        await typist.to_the_end()
        for field, typed, _ in changes:
            await typist.change(field, typed)
        await typist.change("Folder", FOLDER)
        await typist.press("v")
        text, findings = plan_text(typist.screen), findings_text(typist.screen)
        read_at = typist.screen.state.reading.read_at
        assert read_at is not None
        await press_button(typist, "write")
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
    return text, findings, read_at


async def press_button(typist: Typist, action: str) -> None:
    """Walk to a button of the review with the arrow keys, and press enter."""
    for _ in range(60):
        focused = typist.pilot.app.focused
        if isinstance(focused, ActionButton) and focused.action == action:
            break
        await typist.pilot.press("down")
    else:
        raise AssertionError(f"the arrow keys do not lead to {action}")
    assert typist.screen.state.step == REVIEW
    await typist.press("enter")


def plan_text(screen: PlanScreen) -> str:
    """Batch, memory and time as they stand on the screen."""
    lines = screen.query_one("#panel-plan", TextLines).content_lines()
    return " ".join(" ".join(line.plain for line in lines).split())


def findings_text(screen: PlanScreen) -> str:
    """What stands against the plan, as it is on the screen, without spaces: a line may break anywhere."""
    shown = (one for one in screen.query("#panel-findings TextLines") if one.display)
    lines = [line.plain for one in shown for line in one.content_lines()]
    return "".join("".join(lines).split())


def verdicts_of(plan: dict[str, Any]) -> list[str]:
    """The words of judgement, in the order of the lines: the device, host RAM, disk."""
    memory = plan["memory"]
    known = plan["model"]["parameters"] is not None
    words = [{"does_not_fit": "does not fit", None: "capacity unknown"}.get(memory["verdict"], memory["verdict"])]
    for what in ("host_ram", "disk"):
        needed, capacity = memory[f"{what}_bytes"], memory[f"{what}_capacity_bytes"]
        words.append("free space unknown" if capacity is None else "fits" if needed <= capacity else "not enough")
    return words if known else []


VERDICTS = re.compile(r"does not fit|capacity unknown|fits|tight|free space unknown|not enough")


def said(text: str) -> str:
    """As the screen says it: by the labels of its fields."""
    return on_screen(Finding("", "note", "", text)).message


OFTEN = ("cpu-demo", "2080super", "4080s", "lora-r64-3090", "esm2-8xa100")
"""One of each task and engine; `make test-all` takes all profiles, as they are and changed."""
CASES = [
    pytest.param(name, changes, id=f"{name} changed" if changes else name, marks=[] if often else [pytest.mark.all])
    for name, changes, often in [
        *((profile.name, (), profile.name in OFTEN and profile.name not in CHANGES) for profile in PROFILES),
        *((name, changes, name in OFTEN) for name, changes in CHANGES.items()),
    ]
]


@pytest.mark.parametrize(("profile", "changes"), CASES)
async def test_keys_alone_give_the_config_and_the_numbers_of_the_command(profile, changes, folders, capsys):
    words = ["--profile", profile, *(word for _, _, value in changes for word in ("--set", value))]
    theirs = folders("headless")
    assert cli.main([*words, "--output-dir", FOLDER, "--dry-run"]) == 0
    capsys.readouterr()
    cli.main(["plan", *words, "--output-dir", FOLDER, "--json"])
    document = json.loads(capsys.readouterr().out)
    ours = folders("wizard")
    text, findings, read_at = await by_keyboard(profile, changes)
    written = ours / FOLDER
    assert {file.name for file in written.iterdir()} >= OF_A_FOLDER
    assert (written / "run.yaml").read_bytes() == (theirs / FOLDER / "run.yaml").read_bytes()
    for file in sorted((theirs / FOLDER).iterdir()):
        if file.name != "state.json":
            assert (written / file.name).read_bytes() == file.read_bytes(), file.name
    batch, memory = document["batch"], document["memory"]
    assert f"{count(batch['micro_batch'])} × {count(batch['accumulation'])} × {batch['world_size']} process" in text
    assert f"{count(batch['effective_samples'])} sequence" in text
    if document["model"]["parameters"] is not None:
        judged = MemoryPlan(**memory).judged_bytes
        assert f"{gib(judged)} GiB" in text and memory["peak_moment"] in text
    assert f"{count(batch['effective_tokens'])} tokens per step" in text
    assert VERDICTS.findall(text) == verdicts_of(document)
    time = document["time"]
    if time["total_low_s"] is not None:
        assert duration_range(time["total_low_s"], time["total_high_s"]) in text
        assert finish_words(time["total_low_s"], time["total_high_s"], read_at) in text
    for finding in document["findings"]:
        assert "".join(said(finding["message"]).split()) in findings, finding["message"]
    number = len(document["findings"])
    assert f"{number}finding" in findings or (number == 0 and "noproblemsfound" in findings)
    offered = [remedy for finding in document["findings"] for remedy in finding["remedies"] if remedy["changes"]]
    for place, remedy in enumerate(offered[:9], 1):
        assert "".join(f"{place} apply: {said(remedy['text'])}".split()) in findings, remedy
