"""Every profile by keyboard alone: the same RunConfig, byte for byte, as the headless command, and the same numbers as its plan."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
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
from trainwiz.tui.plan_words import energy_words, finish_words, need_words, shown_words
from trainwiz.tui.screens import plan_reader
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.screens.plan_fields import HARDWARE, REVIEW, on_screen
from trainwiz.tui.screens.plan_reader import PlanReader
from trainwiz.tui.text import GIB, count, deviation, duration, duration_range, gib, percent, short_count, size
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


def figures_of(plan: dict[str, Any], now: datetime) -> list[str]:
    """Every phrase with a figure that the screen owes to the document of `plan --json`."""
    batch, memory, time = plan["batch"], plan["memory"], plan["time"]
    processes = f"{batch['world_size']} process{'' if batch['world_size'] == 1 else 'es'}"
    between = f"between {gib(memory['low_bytes'])} and {gib(memory['high_bytes'])}"
    phrases = [
        f"{count(batch['micro_batch'])} × {count(batch['accumulation'])} × {processes} = "
        f"{count(batch['effective_samples'])} sequence",
        f"{count(batch['effective_tokens'])} tokens per step",
        *([f"{gib(memory['device_used_bytes'])} GiB {between}"] if memory["device"] == "host RAM" else []),
        f"RAM {_of_capacity(memory, 'host_ram')}",
        f"Disk {_of_capacity(memory, 'disk')}",
        f"peak: {memory['peak_moment']}",
        memory["basis"],
        memory["waiting"],
        time["basis_text"],
        *(f"{name} {gib(amount)}" for name, amount in memory["breakdown"].items() if amount >= 0.005 * GIB),
    ]
    device = memory["device"] if memory["capacity_bytes"] is None else f"· {gib(memory['capacity_bytes'])} GiB"
    phrases += [memory["device"], device, *_batch_phrases(plan), *_time_phrases(plan, now)]
    if memory["host_ram_low_bytes"] is not None:
        low, high = gib(memory["host_ram_low_bytes"]), gib(memory["host_ram_high_bytes"])
        phrases.append(f"between {low} and {high}, predicted")
    if memory["evaluation_bytes"] is not None:
        phrases.append(f"{size(memory['evaluation_bytes'])} during evaluation")
    kind = next((one["value"] for one in plan["choices"] if one["key"] == "engine.device"), None)
    if memory["device"] != "host RAM":
        phrases.append(need_words(*(memory[key] for key in ("needed_bytes", "needed_high_bytes", "capacity_bytes"))))
        phrases.append(shown_words(*(memory[key] for key in ("device_used_bytes", "low_bytes", "high_bytes")), kind))
    # The longest first: no phrase is to be cut out of another one.
    return sorted({" ".join(phrase.split()) for phrase in phrases if phrase}, key=len, reverse=True)


def _of_capacity(memory: dict[str, Any], what: str) -> str:
    needed, capacity = memory[f"{what}_bytes"], memory[f"{what}_capacity_bytes"]
    return f"{gib(needed)} GiB" if capacity is None else f"{gib(needed)} of {gib(capacity)} GiB"


def _batch_phrases(plan: dict[str, Any]) -> Iterator[str]:
    batch = plan["batch"]
    if batch["deviation"]:
        yield f"{deviation(batch['deviation'])} from target"
    if batch["real_tokens"] is not None:
        yield f"{count(batch['real_tokens'])} non-padding {percent(batch['real_tokens'] / batch['effective_tokens'])}"
    if batch["padded_tokens"] is not None and batch["padding_waste"] is not None:
        yield f"{count(batch['padded_tokens'])} processed, {percent(batch['padding_waste'])} padding"
    if batch["arranged_waste"] is not None:
        yield f"{percent(batch['arranged_waste'])} if the rows of a step were grouped by length"
        yield f"{percent(batch['arranged_waste'])} padding if the rows of a step were grouped by length"
    if batch["drawn_waste"] is not None:
        yield f"{percent(batch['drawn_waste'])} if rows were not grouped by length"
    yield f"up to {batch['sequence_length']} source and"
    targets = [choice["value"] for choice in plan["choices"] if choice["key"] == "batch.target_length"]
    yield from (f"{target} target tokens each" for target in targets)


def _time_phrases(plan: dict[str, Any], now: datetime) -> Iterator[str]:
    time = plan["time"]
    step = duration_range(time["step_low_s"], time["step_high_s"])
    yield f"{step} per step"
    if time["pace_gain"] is not None:
        gain, possible = (f"{time[key]:.2f}" for key in ("pace_gain", "possible_pace_gain"))
        yield f"{gain}x faster from grouping by length ({possible}x at best)"
    if time["total_low_s"] is None:
        return
    yield duration_range(time["total_low_s"], time["total_high_s"])
    yield finish_words(time["total_low_s"], time["total_high_s"], now)
    asked = [choice["value"] for choice in plan["choices"] if choice["key"] == "training.epochs"]
    for passes in (time["epochs"], *asked):
        epochs = "" if passes is None else f" ({passes:.3g} epoch{'' if passes == 1 else 's'})"
        yield f"{count(time['steps'])} step{'' if time['steps'] == 1 else 's'}{epochs} × {step}"
    if time["fraction_of_peak"] is not None:
        yield f"{percent(time['fraction_of_peak'])} of peak TFLOP/s"
    yield from (f"{name} {duration(time[f'{name}_s'])}" for name in ("evaluation", "generation", "saving"))
    yield f"{short_count(time['total_tokens'])} tokens"
    if time["real_tokens"] is not None:
        yield f"{short_count(time['real_tokens'])} non-padding"
    keys = ("energy_low_kwh", "energy_high_kwh", "energy_cost_low", "energy_cost_high")
    yield energy_words(*(time[key] for key in keys), time["currency"])


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
    rest = text
    for phrase in figures_of(document, read_at):
        rest = rest.replace(phrase, " ")
    assert not re.search(r"\d", rest), f"figures that plan --json does not have: {rest}"
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
