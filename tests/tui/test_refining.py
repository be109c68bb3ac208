"""Tiers on the command line: which one is taken, what the user sees meanwhile, and what stops a start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import UsageError
from trainwiz.core.hardware.machine import Libraries
from trainwiz.core.plan.gather import Gathered, gather
from trainwiz.core.plan.refine import Refiner
from trainwiz.core.tracing import worker as tracing
from trainwiz.core.tracing.worker import TraceWorker
from trainwiz.tui.cli import main
from trainwiz.tui.commands.plan import best_plan, improved, refining
from trainwiz.tui.headless import run as headless
from trainwiz.tui.options import ENVIRONMENT, wanted_tier

from tests.each import each
from tests.tui.tracers import GIB, Kept, fixed_worker, hung_worker
from tests.tui.wizard_parts import MACHINE

pytestmark = pytest.mark.usefixtures("here")
DEMO = PlanRequest(profile="cpu-demo")
READY = replace(MACHINE, torch_cuda="13.0", libraries=Libraries({"torch": "2.13.0", "deepspeed": "0.19.8"}))


@pytest.fixture(scope="module")
def demo() -> Gathered:
    return gather(DEMO)


@pytest.fixture
def made() -> Iterator[Callable[[TraceWorker], Refiner]]:
    workers: list[TraceWorker] = []

    def refiner(worker: TraceWorker) -> Refiner:
        workers.append(worker)
        worker.start()
        return Refiner(worker)

    yield refiner
    for worker in workers:
        worker.close()


@pytest.fixture
def tracer(monkeypatch) -> Callable[[Callable[[], TraceWorker]], Kept]:
    """Commands get their tracer from here."""

    def use(make: Callable[[], TraceWorker]) -> Kept:
        used = Kept(make)
        monkeypatch.setattr(tracing, "TraceWorker", used)
        return used

    return use


@each(
    ("asked", "environment", "taken"),
    [(None, "layers", "layers"), ("analytic", "layers", "analytic"), (None, "", "full")],
)
def test_the_option_wins_over_the_environment(monkeypatch, asked, environment, taken):
    monkeypatch.setenv(ENVIRONMENT, environment)
    assert wanted_tier(asked, "full") == taken


def test_an_unknown_tier_in_the_environment_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setenv(ENVIRONMENT, "\x1b[31mexact")
    with pytest.raises(UsageError):
        wanted_tier(None, "full")
    assert main(["plan", "--profile", "cpu-demo"]) == 2
    said = capsys.readouterr().err
    assert "TRAINWIZ_TIER" in said and "analytic or layers or full" in said and "\x1b" not in said


def test_a_better_tier_replaces_the_formulas_and_its_tracer_ends(tracer, demo):
    used = tracer(lambda: fixed_worker(3 * GIB))
    with refining("full") as refiner:
        plan = improved(refiner, demo, "full")
    assert plan.memory.tier == "traced" and plan.memory.allocated_bytes == 3 * GIB
    assert "full" in plan.memory.basis and plan.memory.waiting == ""
    assert main(["plan", "--profile", "no-such-profile", "--tier", "full"]) == 2
    assert [worker.state for worker in used] == ["dead", "dead"]


def test_ctrl_c_ends_the_command(made, demo):
    refiner = made(hung_worker())
    presser = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    try:
        with pytest.raises(KeyboardInterrupt):
            presser.start()
            improved(refiner, demo, "full")
    finally:
        presser.cancel()


def test_ctrl_c_at_a_plan_takes_the_formulas(monkeypatch):
    def pressed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Refiner, "improve", pressed)
    assert best_plan(DEMO, "analytic").memory.tier == "analytic"


def test_what_is_under_way_is_said_on_a_terminal_and_a_start_waits_no_longer_than_its_limit(
    made, demo, monkeypatch, capsys
):
    monkeypatch.setattr("trainwiz.tui.output.is_terminal", lambda stream: stream is sys.stderr)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    began = time.monotonic()
    plan = improved(made(hung_worker()), demo, "layers", limit_s=0.5)
    assert time.monotonic() - began < 10
    assert plan.memory.tier == "analytic" and "not ready in time" in plan.memory.waiting
    captured = capsys.readouterr()
    assert "tracing the whole model…" in captured.err and captured.out == ""
    assert captured.err.endswith("\x1b[2K"), "the line is wiped"


def test_a_better_figure_that_does_not_fit_stops_a_start(tracer, monkeypatch, tmp_path, capsys):
    """On a machine with the card of the profile, which only the trace says is too small."""
    monkeypatch.delenv(ENVIRONMENT)
    monkeypatch.setattr("trainwiz.core.plan.gather.probe_here", lambda request: READY)
    monkeypatch.setattr(headless, "start_run", lambda *_, **__: pytest.fail("started"))
    used = tracer(lambda: fixed_worker(300 * GIB))
    words = ["--profile", "2080super", "--dataset", "sample-proteins", "--yes", "--plain"]
    assert main([*words, "--tier", "analytic", "--dry-run", "--output-dir", "dry"]) == 0
    assert used == []
    assert main(words) == 3
    said = capsys.readouterr()
    assert "Doesn't fit" in said.out + said.err
    assert len(used) == 1 and [path.name for path in tmp_path.iterdir()] == ["dry"]


@each(
    ("machine", "words"),
    [
        (READY, "2080super --dataset sample-proteins --smoke"),
        (replace(MACHINE, gpus=(), accelerator="cpu"), "cpu-demo"),
    ],
)
def test_what_only_tries_and_a_cpu_run_are_not_traced(tracer, monkeypatch, machine, words):
    monkeypatch.delenv(ENVIRONMENT)
    monkeypatch.setattr("trainwiz.core.plan.gather.probe_here", lambda request: machine)
    used = tracer(hung_worker)
    assert main(["--profile", *words.split(), "--dry-run", "--plain"]) == 0 and used == []


@pytest.mark.real
@pytest.mark.all
def test_the_command_traces_the_demo_without_torch_of_its_own():
    code = (
        "import sys\nfrom trainwiz.tui.cli import main\n"
        "assert main(['plan', '--profile', 'cpu-demo', '--tier', 'layers', '--json']) == 0\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    memory = json.loads(done.stdout)["memory"]
    assert memory["tier"] == "traced" and memory["basis"] and memory["waiting"] == ""
    assert memory["low_bytes"] < memory["device_used_bytes"] < memory["high_bytes"]
