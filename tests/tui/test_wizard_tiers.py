"""The wizard with a tracer beside it: better figures arrive, and a tracer that dies or hangs takes nothing away."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import CannotRunError, Finding
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.hardware.rates import Rates
from trainwiz.core.history import rates as rates_module
from trainwiz.core.history.measurement import Measurement, cpu_key
from trainwiz.core.history.rates import METHOD
from trainwiz.core.history.store import append, history_path, load
from trainwiz.core.plan.gather import probe_here
from trainwiz.core.tracing.worker import TraceWorker
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens import plan_command as plan_starter
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.screens.plan_command import Started
from trainwiz.tui.screens.plan_maker import History
from trainwiz.tui.screens.plan_reader import PlanReader
from trainwiz.tui.theme import UNICODE_MARKS
from trainwiz.tui.widgets.plan_panel import panel_lines

from tests.tui.tracers import GIB, dead_worker, fixed_worker, hung_worker
from tests.tui.wizard_keys import until
from tests.tui.wizard_parts import plain, settled

DEMO = PlanRequest(profile="cpu-demo")


@pytest.fixture(scope="module")
def machine() -> Machine:
    return probe_here(PlanRequest())


@pytest.fixture(autouse=True)
def asked_rates(tmp_path, monkeypatch):
    """What is measured of this machine: nothing, and what was asked for is noted."""
    monkeypatch.chdir(tmp_path)
    asked = []

    def measure(machine, device, gpus, threads, **how):
        asked.append((device, threads, how["niceness"]))
        raise CannotRunError(Finding("no_rates", "error", "hardware", "GPU 0 is busy."))

    monkeypatch.setattr(rates_module, "measure_rates", measure)
    return asked


class Kept:
    """Makes tracers and remembers them."""

    def __init__(self, make: Callable[[], TraceWorker]) -> None:
        self._make = make
        self.made: list[TraceWorker] = []

    def __call__(self) -> TraceWorker:
        self.made.append(self._make())
        return self.made[-1]


def wizard(machine: Machine, tracer: Kept) -> TrainwizApp:
    reader = PlanReader(machine, "full", tracer)
    return TrainwizApp(lambda: PlanScreen(DEMO, at_review=True, reader=reader), ascii_only=False)


async def test_better_figures_arrive_by_themselves_and_a_start_need_not_wait(machine):
    tracer = Kept(lambda: fixed_worker(3 * GIB))
    app = wizard(machine, tracer)
    async with app.run_test(size=(120, 50)) as pilot:
        await settled(pilot)
        screen = app.screen
        await until(pilot, lambda: "full" in screen.state.plan.memory.basis and not screen.state.plan.memory.waiting)
        assert screen.state.plan.memory.allocated_bytes == 3 * GIB and not screen.state.updating
        assert f'"allocated_bytes": {3 * GIB}' in screen.state.reading.files["plan.json"], "the preview is of this plan"
        shown = plain(panel_lines(screen.state.plan, 60, UNICODE_MARKS))
        assert "full trace" in shown and "as set in a test" in shown
    assert [worker.state for worker in tracer.made] == ["dead"], "leaving ends the tracer"


async def test_a_dead_tracer_leaves_the_preview_and_is_said(machine):
    app = wizard(machine, Kept(dead_worker))
    async with app.run_test(size=(120, 50)) as pilot:
        await settled(pilot)
        screen = app.screen
        await until(pilot, lambda: "tracing" not in (screen.state.plan.memory.waiting or "tracing"))
        memory = screen.state.plan.memory
        assert memory.tier == "analytic" and memory.verdict == "fits"
        assert memory.waiting in plain(panel_lines(screen.state.plan, 200, UNICODE_MARKS))


async def test_this_machine_is_measured_once_in_the_background_and_the_plan_follows(machine, monkeypatch, asked_rates):
    begun, ended = [], threading.Event()
    some = Rates(
        cpu_key(machine.cpu_model, machine.cpu_cores), machine.cpu_cores, (), (), 1e10, 4e-6, 1e9, None, 0.0, "2026-11-26",
        {"torch": machine.libraries.versions["torch"], "method": METHOD},
    )  # fmt: skip

    def measure(machine, device, gpus, threads, *, niceness, is_cancelled):
        begun.append((device, threads, niceness))
        assert ended.wait(10) and not is_cancelled()
        return some

    monkeypatch.setattr(rates_module, "measure_rates", measure)
    app = wizard(machine, Kept(lambda: fixed_worker(3 * GIB)))
    async with app.run_test(size=(120, 50)) as pilot:
        await settled(pilot)
        screen = app.screen
        await until(pilot, lambda: begun)
        assert screen.state.plan.evidence.rates is None
        ended.set()
        await until(pilot, lambda: screen.state.plan.evidence.rates == some)
        screen._change_request(PlanRequest("cpu-demo", {"training.max_steps": 10}))
        await settled(pilot)
        assert screen.state.plan.evidence.rates == some
    assert begun == [("cpu", machine.cpu_cores, 19)] and rates_module.kept_rates(machine) == (some,)


async def test_why_this_machine_is_not_measured_is_said_once_and_the_plan_stays(machine, asked_rates):
    app = wizard(machine, Kept(lambda: fixed_worker(3 * GIB)))
    async with app.run_test(size=(120, 50)) as pilot:
        await settled(pilot)
        await until(pilot, lambda: [note.message for note in app._notifications] == ["GPU 0 is busy."])
        app.screen._change_request(PlanRequest("cpu-demo", {"training.max_steps": 10}))
        await settled(pilot)
        assert app.screen.state.plan.time.steps == 10
    assert len(asked_rates) == 1


async def test_with_a_hung_tracer_values_are_planned_and_it_ends_with_the_screen(machine):
    tracer = Kept(hung_worker)
    app = wizard(machine, tracer)
    async with app.run_test(size=(120, 50)) as pilot:
        await settled(pilot)
        screen = app.screen
        await until(pilot, lambda: "layer by layer" in screen.state.plan.memory.waiting)
        assert not screen.state.updating
        for steps in (10, 20, 30):
            screen._change_request(PlanRequest("cpu-demo", {"training.max_steps": steps}))
            await settled(pilot)
            assert screen.state.plan.time.steps == steps
        began = time.monotonic()
    assert time.monotonic() - began < 10
    assert [worker.state for worker in tracer.made] == ["dead"]


async def test_a_start_takes_the_plan_on_the_screen(machine, monkeypatch):
    started = []
    monkeypatch.setattr(
        plan_starter,
        "start_plan",
        lambda kind, plan, request, said: started.append(plan) or Started(kind, problem="no"),
    )
    tracer = Kept(hung_worker)
    app = wizard(machine, tracer)
    async with app.run_test(size=(120, 50)) as pilot:
        await settled(pilot)
        await until(pilot, lambda: bool(tracer.made) and bool(app.screen.state.plan.memory.waiting))
        shown = app.screen.state.plan
        await pilot.press("f5")
        await until(pilot, lambda: bool(started))
        assert started == [shown]
        await until(pilot, lambda: app.screen.state.problem == "no")
        assert tracer.made[0].state != "dead", "a start that failed leaves the screen as it was"


def test_formulas_alone_start_nothing_and_what_is_closed_begins_anew(machine):
    tracer = Kept(hung_worker)
    reader = PlanReader(machine, "analytic", tracer)
    (*_, last) = reader.read(DEMO, lambda: False)
    reader.improve(DEMO, lambda: False, lambda reading: pytest.fail("nothing is better"))
    assert last.plan is not None and tracer.made == []
    tracer = Kept(lambda: fixed_worker(GIB))
    reader = PlanReader(machine, "layers", tracer)
    try:
        for turn in (1, 2):
            readings = []
            list(reader.read(DEMO, lambda: False))
            reader.improve(DEMO, lambda: False, readings.append)
            assert readings[-1].plan.memory.allocated_bytes == GIB
            reader.improve(PlanRequest("cpu-demo"), lambda: False, lambda reading: pytest.fail("of another request"))
            reader.close()
            assert [worker.state for worker in tracer.made] == ["dead"] * turn
    finally:
        reader.close()


@pytest.mark.real
@pytest.mark.all
def test_the_process_that_draws_never_loads_torch():
    code = (
        "import asyncio, sys, time\n"
        "from trainwiz.core.config.request import PlanRequest\n"
        "from trainwiz.tui.app import TrainwizApp\n"
        "from trainwiz.tui.screens.plan import PlanScreen\n"
        "async def main():\n"
        "    app = TrainwizApp(lambda: PlanScreen(PlanRequest(profile='cpu-demo'), tier='layers'))\n"
        "    async with app.run_test() as pilot:\n"
        "        end = time.monotonic() + 90\n"
        "        while time.monotonic() < end:\n"
        "            await pilot.pause(0.1)\n"
        "            plan = app.screen.state.plan\n"
        "            if plan is not None and plan.memory.tier == 'traced': break\n"
        "        else: raise SystemExit('never traced: ' + plan.memory.waiting)\n"
        "asyncio.run(main())\n"
        "assert not {'torch', 'transformers', 'datasets'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def measurement(machine: Machine) -> Measurement:
    return Measurement(
        measured_at="2026-11-21T14:02:00+00:00", source="probe", machine=cpu_key(machine.cpu_model, machine.cpu_cores),
        model="0" * 16, model_name="m", task="causal-lm", micro_batch=1, accumulation=1, world_size=1, length=16,
        target_length=0, precision="fp32", attention="sdpa", checkpointing=False, optimizer="adamw_torch",
        strategy="single", offload="none", lora_rank=0, lora_targets=(), loss_chunk=None, compiled=False, steps=5,
        step_s=1.0, step_low_s=0.9, step_high_s=1.1,
    )  # fmt: skip


def test_the_history_is_read_again_when_it_has_changed_and_only_then(machine):
    reads = []
    history = History(history_path(), lambda wanted: reads.append(wanted) or load(wanted))
    assert history(machine) == () and reads == []
    append(measurement(machine))
    assert [one.step_s for one in history(machine)] == [1.0]
    assert history(machine) is history(machine) and len(reads) == 1
    append(measurement(machine))
    assert len(history(machine)) == 2 and len(reads) == 2
    assert history(replace(machine, hypothetical=True)) == (), "another machine has a history of its own"
