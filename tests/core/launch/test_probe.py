"""Real probes: processes that train, and nothing that stays."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.hardware.read import probe_machine
from trainwiz.core.history.measurement import append, load
from trainwiz.core.launch.probe import Probe, clear_up
from trainwiz.core.plan.gather import gather, plan_gathered
from trainwiz.core.plan.refine import Refiner
from trainwiz.core.run.folder import RUN_MARK_VARIABLE

from tests.fakes.marked import marked_pids

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

SMALL = {"batch.sequence_length": 32, "batch.micro_batch_size": 4, "batch.target_samples": 32}
LIMIT_S = 120.0


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where probes put their folders."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def test_what_a_probe_started_has_a_moment_to_end_by_itself(scratch: Path) -> None:
    """A trainer that is killed at once leaves what it holds: memory of a card, segments of shared memory."""
    folder = scratch / "trainwiz-bench-x"
    folder.mkdir()
    polite = "import signal, sys, time; signal.signal(15, lambda *_: (time.sleep(0.2), open(sys.argv[1], 'w'), sys.exit())); print(flush=True); time.sleep(60)"
    command = [sys.executable, "-c", polite, str(scratch / "ended")]
    child = subprocess.Popen(command, env={**os.environ, RUN_MARK_VARIABLE: "gentle"}, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline()
    clear_up(str(folder), "gentle")
    child.communicate()
    assert (scratch / "ended").is_file() and not folder.exists()
    (scratch / "ended").unlink()


def processes_below(folder: Path) -> list[int]:
    """Whose environment names the folder: the probe's own have their TMPDIR in it."""
    return marked_pids(f"{folder}/trainwiz-bench", "TMPDIR")


def until_quiet(folder: Path) -> None:
    deadline = time.monotonic() + 120
    while (processes_below(folder) or list(folder.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_below(folder) == []
    assert list(folder.iterdir()) == []


def request(**overrides: Any) -> PlanRequest:
    return PlanRequest(profile="cpu-demo", overrides={**SMALL, **overrides})


def test_a_probe_measures_and_the_next_plan_knows_it(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwiz.core.launch.probe_order.MEASURED_SHARE", 0.04)
    gathered = gather(request())
    plan = plan_gathered(gathered)
    seen: list[str] = []
    with Probe(plan, gathered.data, limit_s=LIMIT_S, search=False) as probe:
        result = probe.run(lambda line: seen.append(str(line["event"])))
    until_quiet(scratch)
    one = result.measurement
    assert one is not None
    assert seen[0] == "ready" and seen[-1] == "end" and "memory" in seen
    assert (one.micro_batch, one.accumulation, result.rows) == (4, 8, "data")
    assert one.steps >= 3 and one.step_low_s <= one.step_s <= one.step_high_s
    assert one.host_rss_bytes is not None and one.host_rss_bytes > 200 * 1024**2
    # Made by the process itself, and a part of what a step takes.
    assert one.workers == 0 and one.loading_s is not None and 0 < 8 * one.loading_s < one.step_s
    # 8 micro-batches of 4 rows, of which most are longer than 32.
    assert one.tokens_per_step == pytest.approx(1024, rel=0.05)
    append(one)
    measured = Refiner(None, load).plan(gathered)
    assert measured.time.basis == "probe"
    assert measured.time.basis_text == f"measured on this machine, {one.day} (probe)"
    assert measured.time.step_s == pytest.approx(one.step_s, rel=0.01)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGKILL, -9), (signal.SIGHUP, 130)],
)
@pytest.mark.all
def test_a_probe_that_is_ended_leaves_nothing(scratch: Path, number: signal.Signals, code: int) -> None:
    started = subprocess.Popen(
        [sys.executable, "-m", "trainwiz.tui.cli", "bench", "--profile", "cpu-demo", "--length", "32"],
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 600
    while len(processes_below(scratch)) < 2:
        assert started.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    started.send_signal(number)
    assert started.wait(300) == code
    until_quiet(scratch)
    assert load(probe_machine()) == ()


CHAT = {"name": "sample-chat", "text_column": "prompt", "target_column": "response"}
PAIRS = {"name": "sample-pairs", "text_column": "source", "target_column": "target"}


@pytest.mark.all
@pytest.mark.parametrize(
    "overrides",
    [
        {"engine.strategy": "ddp", "engine.processes": 2},
        {"engine.precision": "bf16", "engine.checkpointing": True, "training.loss_chunk": 16},
        {"data.sources": [{"name": "/nowhere/rows.parquet"}]},
        {"model.name": "gpt2-tiny", "data.sources": [{"name": "sample-text"}]},
        {"model.name": "gpt2-tiny", "data.sources": [CHAT], "peft.method": "lora", "peft.rank": 4},
        {"model.name": "t5-chat-tiny", "data.sources": [PAIRS]},
    ],
)
def test_probes_of_other_settings_and_models(scratch: Path, overrides: dict[str, Any]) -> None:
    text = "model.name" in overrides
    more = {**SMALL, **overrides, "training.max_steps": 100}
    gathered = gather(PlanRequest(overrides=more) if text else request(**overrides))
    with Probe(plan_gathered(gathered), gathered.data, limit_s=LIMIT_S) as probe:
        result = probe.run()
    until_quiet(scratch)
    assert result.measurement is not None and result.problem == ""
    assert result.rows == "data" or not text
    assert not result.searched
