"""The step Hardware: GPUs of this machine over a fake driver, and plans for other machines; as the options would have it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest
from textual.pilot import Pilot
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.export.accelerate import visible_gpus
from trainwiz.core.plan.gather import plan_run
from trainwiz.tui.choices import parse_choices
from trainwiz.tui.screens.plan_command import command_line
from trainwiz.tui.screens.plan_fields import FIELD_BY_ID, MODEL, parse_field
from trainwiz.tui.screens.plan_machine import asked_gpus
from trainwiz.tui.screens.plan_reader import PlanReader
from trainwiz.tui.screens.plan_state import PlanState, start_obstacle, with_values
from trainwiz.tui.screens.plan_views import field_view
from trainwiz.tui.widgets import field_row, gpu_choice
from trainwiz.tui.widgets.gpu_choice import GpuChoice, GpuRow, RowView, row_lines, row_views
from trainwiz.tui.widgets.lists import Pressed

from tests.each import each
from tests.fakes.nvml import GIB, FakeGpu, FakeMig, FakeNvml
from tests.tui.wizard_parts import go, plain, real, settled, shown, shown_in, to_field, until

DEMO = PlanRequest(profile="cpu-demo")
TALL = (120, 60)


@pytest.fixture
def driver(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, here: Path) -> Iterator[FakeNvml]:
    fake_nvml.load_here(monkeypatch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu_choice, "LOOK_S", 0.2)
    yield fake_nvml
    # A look that was under way when the wizard closed may have opened a session; the next test's driver is another one.
    with contextlib.suppress(pynvml.NVMLError):
        for _ in range(100):
            pynvml.nvmlShutdown()


def card(number: int, **changes: object) -> FakeGpu:
    values = {"name": "NVIDIA GeForce RTX 3090", "uuid": f"GPU-{number}", "memory_total": 24 * GIB}
    return FakeGpu(**{**values, **changes})  # type: ignore[arg-type]


def rows(pilot: Pilot) -> list[GpuRow]:
    return list(pilot.app.screen.query(GpuRow))


def chosen(pilot: Pilot) -> list[str]:
    return [str(row.view.gpu.uuid) for row in rows(pilot) if row.view.is_chosen]


def has_unknown_gpu(pilot: Pilot) -> bool:
    return any(one.code == "unknown_gpu" for one in pilot.app.screen.state.plan.findings)


async def looked(pilot: Pilot, count: int) -> None:
    await settled(pilot)
    await until(pilot, lambda: len(rows(pilot)) == count and rows(pilot)[0].view.load is not None)


async def test_cards_are_chosen_as_by_the_option_and_their_load_is_live(driver: FakeNvml) -> None:
    hostile = card(0, name="[red]RTX[/] \x1b[31m" + "9" * 200)
    others = [card(n, memory_used=n * GIB, utilization=10 * n) for n in range(2, 8)]
    driver.write([hostile, card(1, memory_used=GIB), *others])
    async with real(DEMO, (140, 60)) as (app, pilot):
        await looked(pilot, 8)
        assert "\x1b" not in shown(app) and "[red]RTX" in shown(app)
        assert asked_gpus(app.screen.state) is None and len(chosen(pilot)) == 8
        await to_field(pilot, "gpus")
        await go(pilot, "down", "space", "down", "space", "down", "down", "space")
        left = [f"GPU-{n}" for n in (2, 4, 5, 6, 7)]
        assert chosen(pilot) == left and app.screen.state.request.overrides == {"engine.gpus": left}
        mine = app.screen.state.plan
        request = parse_choices({"profile": "cpu-demo", "gpus": ",".join(left)}).request
        assert f"--gpus {','.join(left)}" in command_line(app.screen.state.request)
        assert mine.config.model_dump_json() == plan_run(request).config.model_dump_json()
        assert visible_gpus(mine.config) == ",".join(left)
        # cpu-demo is one process, so of five cards that are taken one trains.
        assert mine.config.engine.processes == 1 and "1 of them used for training." in shown_in(pilot)
        # All of them again is no choice of the user's.
        await go(pilot, "space", "up", "up", "space", "up", "space")
        assert app.screen.state.request.overrides == {} and len(chosen(pilot)) == 8
        # Each fast toggle starts from the request as it is by then, not from the plan on the screen.
        for row in rows(pilot)[1:]:
            row.post_message(Pressed(row))
        await until(pilot, lambda: asked_gpus(app.screen.state) == ["GPU-0"])
        rows(pilot)[0].post_message(Pressed(rows(pilot)[0]))
        await until(pilot, lambda: "Training needs at least one GPU" in shown(app))
        assert asked_gpus(app.screen.state) == ["GPU-0"]
        busy = card(1, memory_used=7 * GIB, utilization=93, processes={os.getpid(): 5 * GIB, 2**22 + 3: GIB})
        driver.write([hostile, busy, *others])
        said = ("17.0 of 24.0 GiB free", "93%", f"({os.getpid()}) 5.0 GiB")
        await until(pilot, lambda: all(text in shown(app) for text in said))
        # The plan counts with what is free now, too.
        await until(pilot, lambda: app.screen.state.reading.machine.gpus[1].memory_free_bytes == 17 * GIB)
        await until(pilot, lambda: f"a process not visible from here ({2**22 + 3})" in shown_in(pilot))
        await pilot.resize_terminal(60, 20)
        await settled(pilot)
        rows(pilot)[7].focus()
        await pilot.pause()
        await pilot.pause()
        assert "GPU 7" in shown(app) and app.focused.region.bottom <= 20, "also where there is little room"
        app.screen._change_request(replace(DEMO, gpu="T4"))
        await settled(pilot)
        assert not app.screen.query_one(GpuChoice).display


async def test_the_driver_is_asked_once_at_a_time_on_this_step_only_and_a_failure_is_said_once(
    driver: FakeNvml,
) -> None:
    driver.write([card(0), card(1)])
    async with real(DEMO) as (app, pilot):
        await looked(pilot, 2)
        under_way, most, asked, awake = [0], [0], [0], threading.Event()
        reader = app.screen.reader
        read = reader.loads

        def asleep():  # type: ignore[no-untyped-def]
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
            awake.wait(300)
            under_way[0] -= 1
            return read()

        def broken():  # type: ignore[no-untyped-def]
            asked[0] += 1
            raise ZeroDivisionError("[b]nobody[/b] foresaw it")

        reader.loads = asleep
        await until(pilot, lambda: under_way[0] == 1)
        choice = app.screen.query_one(GpuChoice)
        for _ in range(4):
            # Keys are answered and further looks are due while the driver sleeps.
            await pilot.press("down", "up")
            choice._look()
            await pilot.pause()
        assert (under_way[0], most[0]) == (1, 1)
        reader.loads = broken
        awake.set()
        await until(pilot, lambda: asked[0] > 2)
        await pilot.pause()
        said = [one.message for one in app._notifications]
        assert [line for line in said if "[b]nobody[/b] foresaw it" in line] == said and len(said) == 1
        await go(pilot, "enter")
        assert app.screen.state.step == MODEL
        await pilot.pause(0.2)
        before = asked[0]
        await pilot.pause(0.3)
        assert asked[0] == before
        await pilot.press("escape")
        await until(pilot, lambda: asked[0] > before)


async def test_a_card_that_is_lost_or_leaves_and_a_driver_that_goes_are_sentences(driver: FakeNvml) -> None:
    driver.write([card(n) for n in range(3)])
    async with real(replace(DEMO, overrides={"engine.gpus": ["GPU-1", "GPU-2"]}), TALL) as (app, pilot):
        await looked(pilot, 3)
        assert not has_unknown_gpu(pilot)
        driver.write([card(0), card(1, lost=True), card(2)])
        await until(pilot, lambda: has_unknown_gpu(pilot))
        await settled(pilot)
        assert "This GPU can't be used: the GPU is lost" in shown_in(pilot)
        assert len(rows(pilot)) == 3 and start_obstacle(app.screen.state).startswith("No GPU GPU-1 on this machine")
        finding = next(one for one in app.screen.state.plan.findings if one.code == "unknown_gpu")
        assert finding.remedies[0].changes == {"engine.gpus": ["GPU-2"]}
        app.screen._change_request(DEMO)
        await settled(pilot)
        assert not has_unknown_gpu(pilot)
        # It comes back, and nothing is left of it.
        driver.write([card(n) for n in range(3)])
        await until(pilot, lambda: "can't be used" not in shown(app))
        app.screen.reader.rest()
        driver.write([card(0)])
        await until(pilot, lambda: len(rows(pilot)) == 1)
        await settled(pilot)
        assert [gpu.uuid for gpu in app.screen.state.plan.machine.gpus] == ["GPU-0"]
        driver.write(call_error=999)
        await until(pilot, lambda: app.screen.state.plan.machine.accelerator == "cpu")


def planned(request: PlanRequest) -> PlanState:
    """The wizard's state with its plan."""
    *_, reading = PlanReader().read(request, lambda: False)
    return PlanState(request, reading=reading, updating=False)


def read_of(overrides: dict[str, object]) -> tuple[PlanState, list[RowView]]:
    """What the step would show."""
    state = planned(replace(DEMO, overrides=overrides))
    assert state.reading.machine is not None
    return state, row_views(state.reading.machine, None, asked_gpus(state))


def test_mig_one_slice_trains_and_another_can_be_named(driver: FakeNvml) -> None:
    parts = [FakeMig(uuid="MIG-a"), FakeMig(uuid="MIG-b", gpu_instance=2, memory_used=GIB)]
    driver.write([card(0, name="NVIDIA A100-SXM4-40GB", compute_capability="8.0", mig=True, slices=parts)])
    state, views = read_of({})
    assert [view.is_chosen for view in views] == [False, True, False]
    for view in (views[0], views[2]):
        assert "A run uses one MIG slice" in plain(row_lines(view, 100, focused=False, roomy=True))
    state, views = read_of({"engine.gpus": ["MIG-b"]})
    assert [view.is_chosen for view in views] == [False, False, True]
    plan = state.plan
    assert plan is not None and visible_gpus(plan.config) == "MIG-b" and "MIG" in plan.memory.device
    assert plan.memory.capacity_bytes == parts[1].memory_total - GIB
    assert not any(one.code == "unknown_gpu" for one in plan.findings)


def test_a_visible_devices_variable_is_obeyed(driver: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    driver.write([card(n) for n in range(3)])
    _, views = read_of({})
    assert [(view.is_chosen, view.can_be_chosen) for view in views] == [(False, False), (True, True), (True, True)]
    words = plain(row_lines(views[0], 100, focused=False, roomy=True))
    assert "Not visible to this process (CUDA_VISIBLE_DEVICES)." in words


@each(
    ("typed", "options"),
    [
        ("A100 80GB SXM", {"gpu": "A100 80GB SXM"}),
        ("RTX 3090", {"gpu": "RTX 3090", "num_gpus": "4"}),
        ("T4", {"gpu": "T4", "num_gpus": "2", "ram": "128G"}),
    ],
)
def test_another_machine_is_the_request_of_its_options(typed: str, options: dict[str, str]) -> None:
    request = DEMO
    for name, text in {"machine": typed, **options}.items():
        if name != "gpu":
            request = with_values(request, FIELD_BY_ID[name], parse_field(FIELD_BY_ID[name], text, None))
    assert request == parse_choices({"profile": "cpu-demo", **options}).request
    assert command_line(request).endswith("--dry-run")
    assert with_values(request, FIELD_BY_ID["machine"], {}) == DEMO, "this machine again"


def test_another_machine_is_planned_as_its_options_would_and_starts_nothing(driver: FakeNvml) -> None:
    driver.write([card(n) for n in range(3)])
    spec = FIELD_BY_ID["machine"]
    request = with_values(replace(DEMO, overrides={"engine.gpus": ["GPU-1"]}), spec, {"gpu": "T4"})
    assert request.overrides == {}, "the GPUs of this machine are no choice of another"
    state = planned(request)
    assert state.plan is not None and state.plan.machine == plan_run(replace(DEMO, gpu="T4")).machine
    assert "another machine" in start_obstacle(state, "start")
    assert "another machine" in start_obstacle(replace(state, request=replace(request, force=True)))
    assert start_obstacle(state, "write") == ""


@each(
    ("field", "text", "said"),
    [
        ("num_gpus", "many", "Type a number"),
        ("num_gpus", "9999", "set 0 to 1024"),
        ("ram", "12 parsecs", "not a size"),
        ("machine", "RTX 3080", "RTX 3080 10GB"),
        ("machine", "[red]\x1b[31mcard", "set --gpu-memory"),
    ],
)
def test_a_machine_that_cannot_be_is_a_sentence(field: str, text: str, said: str) -> None:
    spec = FIELD_BY_ID[field]
    try:
        request = with_values(replace(DEMO, gpu="T4"), spec, parse_field(spec, text, None))
    except ValueError as error:
        assert said in str(error)
        return
    state = planned(request)
    problem = plain(field_row.row_lines(field_view(state, spec), 200, focused=True, roomy=True, editing=False))
    assert said in problem and "\x1b" not in problem and start_obstacle(state, "write")


def test_nothing_of_the_step_waits_for_what_is_slow_to_import() -> None:
    """The first frame shows this step."""
    code = (
        "import sys, trainwiz.tui.screens.plan, trainwiz.tui.widgets.gpu_choice, trainwiz.tui.widgets.facts;"
        "print([name for name in ('pydantic', 'yaml', 'psutil', 'pynvml', 'gettext') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.strip() == "[]"
