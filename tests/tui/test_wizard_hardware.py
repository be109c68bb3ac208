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
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.choices import parse_choices
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.screens.plan_command import command_line
from trainwiz.tui.screens.plan_fields import FIELD_BY_ID, HARDWARE, MODEL, parse_field
from trainwiz.tui.screens.plan_machine import BY_HAND, asked_gpus, toggled
from trainwiz.tui.screens.plan_reader import PlanReader
from trainwiz.tui.screens.plan_state import PlanState, start_obstacle, with_changes, with_invalid, with_values
from trainwiz.tui.theme import UNICODE_MARKS
from trainwiz.tui.widgets import gpu_choice
from trainwiz.tui.widgets.field_row import FieldRow
from trainwiz.tui.widgets.gpu_choice import GpuChoice, GpuRow, RowView, row_lines, row_views

from tests.each import each
from tests.fakes.nvml import GIB, FakeGpu, FakeMig, FakeNvml
from tests.fakes.nvml.fixtures import fake_nvml, fake_nvml_library  # noqa: F401 - fixtures
from tests.tui.wizard_keys import WIDE, go, shown, shown_in, to_field, type_into, until
from tests.tui.wizard_parts import FrozenReader, frozen, plain, settled

DEMO = PlanRequest(profile="cpu-demo")
TALL = (120, 60)


@pytest.fixture
def driver(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeNvml]:  # noqa: F811
    fake_nvml.load_here(monkeypatch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu_choice, "LOOK_S", 0.05)
    yield fake_nvml
    # A look that was under way when the wizard closed may have opened a session; the next test's driver is another one.
    with contextlib.suppress(pynvml.NVMLError):
        for _ in range(100):
            pynvml.nvmlShutdown()


def card(number: int, **changes: object) -> FakeGpu:
    values = {"name": "NVIDIA GeForce RTX 3090", "uuid": f"GPU-{number}", "memory_total": 24 * GIB}
    return FakeGpu(**{**values, **changes})  # type: ignore[arg-type]


def wizard(request: PlanRequest = DEMO) -> TrainwizApp:
    return TrainwizApp(lambda: PlanScreen(request), ascii_only=False)


def rows(pilot: Pilot) -> list[GpuRow]:
    return list(pilot.app.screen.query(GpuRow))


def chosen(pilot: Pilot) -> list[str]:
    return [str(row.view.gpu.uuid) for row in rows(pilot) if row.view.is_chosen]


def planned_gpus(pilot: Pilot) -> list[str | None]:
    return [gpu.uuid for gpu in pilot.app.screen.state.plan.machine.gpus]


def has_unknown_gpu(pilot: Pilot) -> bool:
    return any(one.code == "unknown_gpu" for one in pilot.app.screen.state.plan.findings)


async def looked(pilot: Pilot, count: int) -> None:
    await settled(pilot)
    await until(pilot, lambda: len(rows(pilot)) == count and rows(pilot)[0].view.load is not None)


async def test_eight_cards_are_chosen_by_uuid_and_the_run_gets_what_the_option_would_give(driver: FakeNvml) -> None:
    driver.write([card(n, memory_used=n * GIB, utilization=10 * n) for n in range(8)])
    app = wizard()
    async with app.run_test(size=WIDE) as pilot:
        await looked(pilot, 8)
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
        assert mine.config.engine.processes == 1 and "One of them is used for training." in shown_in(pilot)
        # All of them again is no choice of the user's.
        await go(pilot, "space", "up", "up", "space", "up", "space")
        assert app.screen.state.request.overrides == {} and len(chosen(pilot)) == 8
        # Each fast toggle starts from the request as it is by then, not from the plan on the screen.
        for row in rows(pilot)[1:]:
            row.press()
        await until(pilot, lambda: asked_gpus(app.screen.state) == ["GPU-0"])
        rows(pilot)[0].press()
        await until(pilot, lambda: "Training needs at least one GPU" in shown(app))
        assert asked_gpus(app.screen.state) == ["GPU-0"]


async def test_the_load_is_live_names_who_holds_the_card_and_is_asked_for_only_on_this_step(driver: FakeNvml) -> None:
    driver.write([card(0, name="[red]RTX[/] \x1b[31m" + "9" * 200), card(1)])
    app = wizard()
    async with app.run_test(size=(140, 45)) as pilot:
        await looked(pilot, 2)
        assert "24.0 of 24.0 GiB free" in shown(app)
        assert "\x1b" not in shown(app) and "[red]RTX" in shown(app)
        mine = os.getpid()
        driver.write([card(0), card(1, memory_used=7 * GIB, utilization=93, processes={mine: 5 * GIB, 2**22 + 3: GIB})])
        said = ("17.0 of 24.0 GiB free", "93%", f"({mine}) 5.0 GiB")
        await until(pilot, lambda: all(text in shown(app) for text in said))
        # The plan counts with what is free now, too.
        await until(pilot, lambda: app.screen.state.plan.machine.gpus[1].memory_free_bytes == 17 * GIB)
        await until(pilot, lambda: f"a process not visible from here ({2**22 + 3})" in shown_in(pilot))
        asked, reader = [], app.screen.reader
        read = reader.loads
        reader.loads = lambda: asked.append(1) or read()  # type: ignore[method-assign]
        await until(pilot, lambda: len(asked) > 2)
        await go(pilot, "enter")
        assert app.screen.state.step == MODEL
        await pilot.pause(0.2)
        before = len(asked)
        await pilot.pause(0.4)
        assert len(asked) == before
        await pilot.press("escape")
        await until(pilot, lambda: len(asked) > before)


async def test_a_driver_that_sleeps_is_asked_once_and_a_look_that_breaks_off_is_said_once(driver: FakeNvml) -> None:
    driver.write([card(0), card(1)])
    app = wizard()
    async with app.run_test(size=WIDE) as pilot:
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

        reader.loads = asleep  # type: ignore[method-assign]
        await until(pilot, lambda: under_way[0] == 1)
        choice = app.screen.query_one(GpuChoice)
        for _ in range(4):
            # Keys are answered and further looks are due while the driver sleeps.
            await pilot.press("down", "up")
            choice._look()
            await pilot.pause()
        assert (under_way[0], most[0]) == (1, 1)
        reader.loads = broken  # type: ignore[method-assign]
        awake.set()
        await until(pilot, lambda: asked[0] > 2)
        await pilot.pause()
        said = [one.message for one in app._notifications]
        assert [line for line in said if "[b]nobody[/b] foresaw it" in line] == said and len(said) == 1


async def test_a_chosen_card_that_is_lost_is_a_sentence_with_a_remedy(driver: FakeNvml) -> None:
    driver.write([card(n) for n in range(3)])
    app = wizard(replace(DEMO, overrides={"engine.gpus": ["GPU-1", "GPU-2"]}))
    async with app.run_test(size=TALL) as pilot:
        await looked(pilot, 3)
        await settled(pilot)
        assert not has_unknown_gpu(pilot)
        driver.write([card(0), card(1, lost=True), card(2)])
        await until(pilot, lambda: has_unknown_gpu(pilot))
        await settled(pilot)
        assert "This GPU can't be used: the GPU is lost" in shown_in(pilot)
        assert len(rows(pilot)) == 3 and start_obstacle(app.screen.state).startswith("No GPU GPU-1 on this machine")
        finding = next(one for one in app.screen.state.plan.findings if one.code == "unknown_gpu")
        assert finding.remedies[0].changes == {"engine.gpus": ["GPU-2"]}
        app.screen._change_request(with_changes(app.screen.state.request, finding.remedies[0].changes))
        await until(pilot, lambda: asked_gpus(app.screen.state) == ["GPU-2"])
        await settled(pilot)
        assert not has_unknown_gpu(pilot)
        # It comes back, and nothing is left of it.
        driver.write([card(n) for n in range(3)])
        await until(pilot, lambda: "can't be used" not in shown(app))


async def test_a_card_that_leaves_the_list_and_a_driver_that_goes_are_sentences(driver: FakeNvml) -> None:
    driver.write([card(0), card(1)])
    app = wizard()
    async with app.run_test(size=TALL) as pilot:
        await looked(pilot, 2)
        app.screen.reader.rest()
        driver.write([card(0)])
        await until(pilot, lambda: len(rows(pilot)) == 1)
        await settled(pilot)
        assert planned_gpus(pilot) == ["GPU-0"]
        driver.write(call_error=999)
        await until(pilot, lambda: app.screen.state.plan.machine.accelerator == "cpu")
        await settled(pilot)
        await go(pilot, "enter")
        assert app.screen.state.step == MODEL


def read_of(overrides: dict[str, object]) -> tuple[PlanState, list[RowView]]:
    """What the step would show."""
    request = replace(DEMO, overrides=overrides)
    *_, reading = PlanReader().read(request, lambda: False)
    state = PlanState(request, reading=reading, updating=False)
    assert reading.machine is not None
    return state, row_views(reading.machine, None, asked_gpus(state))


def test_mig_one_slice_trains_and_another_can_be_named(driver: FakeNvml) -> None:
    parts = [FakeMig(uuid="MIG-a"), FakeMig(uuid="MIG-b", gpu_instance=2, memory_used=GIB)]
    driver.write([card(0, name="NVIDIA A100-SXM4-40GB", compute_capability="8.0", mig=True, slices=parts)])
    state, views = read_of({})
    assert [view.is_chosen for view in views] == [False, True, False]
    assert "Split into MIG slices; a run uses one slice." in plain(
        row_lines(views[0], 100, UNICODE_MARKS, focused=False, roomy=True)
    )
    assert state.reading.machine is not None
    assert toggled(state.reading.machine, state, views[2].gpu) == ["MIG-b"]
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
    words = plain(row_lines(views[0], 100, UNICODE_MARKS, focused=False, roomy=True))
    assert "Not visible to this process (CUDA_VISIBLE_DEVICES=1,2)." in words


# Another machine.


@each(
    ("typed", "options"),
    [
        ("A100 80GB SXM", {"gpu": "A100 80GB SXM"}),
        ("RTX 3090", {"gpu": "RTX 3090", "num_gpus": "4"}),
        ("T4", {"gpu": "T4", "num_gpus": "2", "ram": "128G"}),
        (BY_HAND, {"gpu_memory": "48G", "tflops": "120.5", "capability": "9.0", "num_gpus": "2", "bandwidth": "900"}),
        ("RTX 3090", {"gpu": "RTX 3090", "fp32_tflops": "30"}),
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


WRONG = (
    ("num_gpus", "many", "Type a number"),
    ("num_gpus", "9999", "set 0 to 1024"),
    ("ram", "12 parsecs", "not a size"),
    ("gpu_memory", "-4G", "not a size"),
    ("tflops", "fast", "Type a number"),
    ("capability", "ampere", "not a compute capability"),
    ("machine", "RTX 3080", "Similar: RTX 3080 10GB"),
    ("machine", "[red]\x1b[31mcard", "by its specs"),
)


async def test_another_machine_is_planned_as_its_options_would_and_wrong_figures_are_sentences(
    driver: FakeNvml,
) -> None:
    driver.write([card(n) for n in range(3)])
    app = wizard(replace(DEMO, overrides={"engine.gpus": ["GPU-1"]}))
    async with app.run_test(size=TALL) as pilot:
        await looked(pilot, 3)
        await to_field(pilot, "machine")
        await type_into(pilot, "t4")
        await pilot.press("enter")
        await until(pilot, lambda: app.screen.state.plan.machine.hypothetical)
        await settled(pilot)
        # The GPUs of this machine are no choice of another.
        assert "engine.gpus" not in app.screen.state.request.overrides
        assert not app.screen.query_one(GpuChoice).display
        await to_field(pilot, "ram")
        await type_into(pilot, "128G")
        await go(pilot, "enter")
        mine, request = app.screen.state.plan, app.screen.state.request
        planned = plan_run(parse_choices({"profile": "cpu-demo", "gpu": "T4", "ram": "128G"}).request)
        assert mine.config.model_dump_json() == planned.config.model_dump_json()
        assert mine.machine == planned.machine and mine.memory.capacity_bytes == planned.memory.capacity_bytes
        assert "another machine" in start_obstacle(app.screen.state, "start")
        assert "another machine" in start_obstacle(replace(app.screen.state, request=replace(request, force=True)))
        assert start_obstacle(app.screen.state, "write") == ""
        for field, text, said in WRONG:
            row = await to_field(pilot, field)
            app.screen._set(row.spec, text)
            await until(pilot, lambda row=row, said=said: said in row.view.invalid)
            assert start_obstacle(app.screen.state, "write") and "\x1b" not in shown(app)
            app.screen._replace(with_invalid(app.screen.state, field, ""))
            app.screen._change_request(request)
            await settled(pilot)
            assert row.view.invalid == "" and start_obstacle(app.screen.state, "write") == ""
        await to_field(pilot, "machine")
        await go(pilot, "r")
        assert app.screen.state.request == DEMO and not app.screen.state.plan.machine.hypothetical


async def test_the_step_stays_usable_where_there_is_little_room() -> None:
    second = replace(FrozenReader().machine.gpus[0], index=1, uuid="GPU-2")
    reader = FrozenReader(machine=replace(FrozenReader().machine, gpus=(*FrozenReader().machine.gpus, second)))
    async with frozen(reader, size=(60, 20)) as (app, pilot):
        await pilot.press(*["down"] * 6)
        await pilot.pause()
        focused = app.focused
        assert isinstance(focused, GpuRow) and "GPU 1" in shown(app)
        assert focused.region.bottom <= 20 and isinstance(app.screen.query_one("#field-gpus"), FieldRow)
        assert app.screen.state.step == HARDWARE


def test_nothing_of_the_step_waits_for_what_is_slow_to_import() -> None:
    """The first frame shows this step."""
    code = (
        "import sys, trainwiz.tui.screens.plan, trainwiz.tui.widgets.gpu_choice, trainwiz.tui.widgets.facts;"
        "print([name for name in ('pydantic', 'yaml', 'psutil', 'pynvml', 'gettext') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.strip() == "[]"
