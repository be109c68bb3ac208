"""The plan follows every key: at once, in one thread, without a pile of stale work; better figures come beside it."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest
from textual.widgets import Input
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import CannotRunError, Finding
from trainwiz.core.hardware.machine import Machine, Rates
from trainwiz.core.history import rates as rates_module
from trainwiz.core.history.measurement import append, cpu_key, load
from trainwiz.core.history.rates import METHOD
from trainwiz.core.plan import gather
from trainwiz.core.plan.gather import probe_here
from trainwiz.tui.screens import plan_command as plan_starter
from trainwiz.tui.screens import plan_threads
from trainwiz.tui.screens.plan_command import Started
from trainwiz.tui.screens.plan_reader import PlanReader, when_changed
from trainwiz.tui.widgets.lists import TextLines
from trainwiz.tui.widgets.plan_panel import panel_lines, parts_bar

from tests.core.history.measurements import measurement
from tests.tui.tracers import Kept, fixed_worker, hung_worker
from tests.tui.wizard_parts import (
    GIB,
    FrozenReader,
    frozen,
    make_frozen_plan,
    plain,
    real,
    settled,
    shown,
    to_field,
    type_into,
    until,
)


class CountingReader(FrozenReader):
    """Counts how many requests it works on at once."""

    _at_once = most_at_once = 0

    def read(self, request, is_cancelled):
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            yield from super().read(request, is_cancelled)
        finally:
            self._at_once -= 1


async def test_twelve_fast_keys_are_a_few_plans_and_the_first_and_the_last_one_always(monkeypatch):
    burst, pause = plan_threads.BURST_S, plan_threads.TYPING_PAUSE_S
    reader = CountingReader(findings=())
    async with frozen(reader) as (app, pilot):
        await to_field(pilot, "steps")
        # The first key does not wait for a second one.
        monkeypatch.setattr(plan_threads, "TYPING_PAUSE_S", 30.0)
        await asyncio.sleep(burst)
        await pilot.press("space", "backspace")
        await settled(pilot)
        # Ten times slower than they are, and so are keys that a busy machine takes ten times as long for.
        monkeypatch.setattr(plan_threads, "BURST_S", 10 * burst)
        monkeypatch.setattr(plan_threads, "TYPING_PAUSE_S", 10 * pause)
        before = len(reader.asked)
        # As a fast typist's.
        for letter in "123456789012":
            app.screen.query_one(Input).insert_text_at_cursor(letter)
            await asyncio.sleep(0.03)
        await settled(pilot)
        assert reader.asked[-1].overrides == {"training.max_steps": 123456789012}
        assert app.screen.state.plan.config.training.max_steps == reader.asked[-1].overrides["training.max_steps"]
        assert len(reader.asked) - before <= 4
        assert reader.most_at_once == 1, "nothing piles up"


def test_values_are_planned_while_the_data_is_still_being_read(machine, monkeypatch):
    """A large file takes minutes; nobody waits for it to see what another micro-batch costs."""
    go_on, reads = threading.Event(), []
    real = gather.gather_data

    def slow(config):
        reads.append(config)
        assert go_on.wait(300)
        return real(config)

    monkeypatch.setattr(gather, "gather_data", slow)
    reader = PlanReader(machine)
    try:
        for micro in (8, 16):
            request = PlanRequest(profile="cpu-demo", overrides={"batch.micro_batch_size": micro})
            plans, seen = [], []
            for reading in reader.read(request, lambda seen=seen: bool(seen)):
                if reading.plan is not None:
                    plans.append(reading)
                    seen.append(reading)
            assert plans[-1].plan.batch.micro_batch == micro and plans[-1].waits_for
        go_on.set()
        (*_, last) = reader.read(request, lambda: False)
        assert last.plan.batch.real_tokens is not None and not last.waits_for
        assert len(reads) == 1, "what was begun for an older request is not begun again"
    finally:
        go_on.set()
        reader.close()


def is_dimmed(app) -> bool:
    """Every line of the plan is in the quiet colour."""
    lines = app.screen.query_one("#panel-plan", TextLines).content_lines()
    return all(any(span.style == "$muted" and span.end == len(line) for span in line.spans) for line in lines if line)


class Improving(FrozenReader):
    """Improves for as long as it may."""

    def __init__(self) -> None:
        super().__init__(findings=())
        self.improves, self.ended = threading.Event(), threading.Event()

    def improve(self, request, is_cancelled, on_reading):
        self.improves.set()
        while not is_cancelled():
            time.sleep(0.005)
        self.ended.set()


async def test_an_old_plan_is_dimmed_and_never_blank():
    reader = Improving()
    async with frozen(reader, (160, 60)) as (app, pilot):
        await to_field(pilot, "micro_batch")
        assert await asyncio.to_thread(reader.improves.wait, 100) and not reader.ended.is_set()
        reader.may_answer.clear()
        await type_into(pilot, "7")
        while not app.screen.state.slow:
            await pilot.pause(0.01)
            assert "sequences" in shown(app) and "GiB" in shown(app)
        await pilot.pause()
        assert "updating" in shown(app) and is_dimmed(app)
        # Better figures wait for another process, which the new request needs too.
        assert await asyncio.to_thread(reader.ended.wait, 100)
        reader.may_answer.set()
        await settled(pilot)
        assert "updating" not in shown(app) and not is_dimmed(app)
        assert "4,557 sequences" in shown(app)


def test_the_parts_of_the_peak_are_a_bar_with_a_legend():
    parts = {"gradients": 2 * GIB, "weights": 4 * GIB, "activations": 2 * GIB, "context": 1}
    assert parts_bar(parts, 40) == "█" * 20 + "▓" * 10 + "▒" * 10 and parts_bar({}, 40) == ""
    plan = make_frozen_plan(PlanRequest())
    text = " ".join(plain(panel_lines(replace(plan, memory=replace(plan.memory, breakdown=parts)), 60)).split())
    assert "█ weights 4.0 GiB, ▓ gradients 2.0 GiB, ▒ activations 2.0 GiB" in text


DEMO = PlanRequest(profile="cpu-demo")


@pytest.fixture(scope="module")
def machine() -> Machine:
    return probe_here(PlanRequest())


@pytest.fixture(autouse=True)
def asked_rates(here, monkeypatch):
    """What is measured of this machine: nothing, and what was asked for is noted."""
    asked = []

    def measure(machine, device, gpus, threads, **how):
        asked.append((device, threads, how["niceness"]))
        raise CannotRunError(Finding("no_rates", "error", "hardware", "GPU 0 is busy."))

    monkeypatch.setattr(rates_module, "measure_rates", measure)
    return asked


def wizard(machine: Machine, tracer: Kept) -> AbstractAsyncContextManager[Any]:
    return real(DEMO, (120, 50), at_review=True, reader=PlanReader(machine, "full", tracer))


async def test_better_figures_arrive_by_themselves_and_then_this_machine_is_measured_once(machine, monkeypatch):
    begun, ended = [], threading.Event()
    some = Rates(
        cpu_key(machine.cpu_model, machine.cpu_cores), machine.cpu_cores, (), (), 1e10, 4e-6, 1e9, "2026-11-26",
        {"torch": machine.libraries.versions["torch"], "method": METHOD},
    )  # fmt: skip

    def measure(machine, device, gpus, threads, *, niceness, is_cancelled):
        begun.append((device, threads, niceness))
        assert ended.wait(10) and not is_cancelled()
        return some

    monkeypatch.setattr(rates_module, "measure_rates", measure)
    tracer = Kept(lambda: fixed_worker(3 * GIB))
    async with wizard(machine, tracer) as (app, pilot):
        screen = app.screen
        await until(pilot, lambda: "full" in screen.state.plan.memory.basis and not screen.state.plan.memory.waiting)
        assert screen.state.plan.memory.allocated_bytes == 3 * GIB and not screen.state.updating
        assert f'"allocated_bytes": {3 * GIB}' in screen.state.reading.files["plan.json"], "the preview is of this plan"
        shown = plain(panel_lines(screen.state.plan, 60))
        assert "full trace" in shown and "as set in a test" in shown
        await until(pilot, lambda: begun)
        assert screen.state.plan.evidence.rates is None
        ended.set()
        await until(pilot, lambda: screen.state.plan.evidence.rates == some)
        screen._change_request(PlanRequest("cpu-demo", {"training.max_steps": 10}))
        await settled(pilot)
        assert screen.state.plan.evidence.rates == some
    assert begun == [("cpu", machine.cpu_cores, 19)] and rates_module.kept_rates(machine) == (some,)
    assert [worker.state for worker in tracer] == ["dead"], "leaving ends the tracer"


async def test_why_this_machine_is_not_measured_is_said_once(machine, asked_rates):
    async with wizard(machine, Kept(lambda: fixed_worker(GIB))) as (app, pilot):
        await until(pilot, lambda: [note.message for note in app._notifications] == ["GPU 0 is busy."])
        assert not app.screen.reader.measure() and len(asked_rates) == 1


async def test_with_a_hung_tracer_values_are_planned_and_a_start_takes_the_plan_on_the_screen(machine, monkeypatch):
    started = []
    monkeypatch.setattr(
        plan_starter,
        "start_plan",
        lambda kind, plan, request, said: started.append(plan) or Started(kind, problem="no"),
    )
    tracer = Kept(hung_worker)
    async with wizard(machine, tracer) as (app, pilot):
        screen = app.screen
        await until(pilot, lambda: "whole model" in screen.state.plan.memory.waiting)
        for steps in (10, 20):
            screen._change_request(PlanRequest("cpu-demo", {"training.max_steps": steps}))
            await settled(pilot)
            assert screen.state.plan.time.steps == steps
        await until(pilot, lambda: bool(screen.state.plan.memory.waiting))
        shown = screen.state.plan
        await pilot.press("f5")
        await until(pilot, lambda: screen.state.problem == "no")
        assert started == [shown]
        assert tracer[0].state != "dead", "a start that failed leaves the screen as it was"
        began = time.monotonic()
    assert time.monotonic() - began < 10
    assert [worker.state for worker in tracer] == ["dead"]


def test_formulas_alone_start_nothing_and_what_is_closed_begins_anew(machine):
    tracer = Kept(hung_worker)
    reader = PlanReader(machine, "analytic", tracer)
    (*_, last) = reader.read(DEMO, lambda: False)
    reader.improve(DEMO, lambda: False, lambda reading: pytest.fail("nothing is better"))
    assert last.plan is not None and tracer == []
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
            assert [worker.state for worker in tracer] == ["dead"] * turn
    finally:
        reader.close()


def test_the_history_is_read_again_when_it_has_changed_and_only_then(machine):
    reads = []
    history = when_changed(lambda wanted: reads.append(wanted) or load(wanted))
    assert history(machine) == () and reads == []
    append(measurement(machine=cpu_key(machine.cpu_model, machine.cpu_cores)))
    assert len(history(machine)) == 1
    assert history(machine) is history(machine) and len(reads) == 1
    append(measurement(machine=cpu_key(machine.cpu_model, machine.cpu_cores)))
    assert len(history(machine)) == 2 and len(reads) == 2
    assert history(replace(machine, hypothetical=True)) == (), "another machine has a history of its own"
