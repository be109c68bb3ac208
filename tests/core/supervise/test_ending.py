"""How a run ends, saves that outlast a stop, and whether GPU memory was given back (a fake driver under nvidia-ml-py)."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.hardware import nvml as nvml_module
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.supervise import ending
from trainwiz.core.supervise import recorder as gpu_ledger
from trainwiz.core.supervise.ending import Facts, GpuLedger, SaveProgress, how_it_ended, verified_words
from trainwiz.core.supervise.ties import run_processes
from trainwiz.core.telemetry.gpu import GpuSampler

from tests.each import each
from tests.fakes.nvml import GIB, MIB, FakeGpu, FakeNvml


@each(
    ("exit_code", "asked_by", "status"), [(0, None, "finished"), (-15, "you", "finished"), (-15, None, "failed")]
)  # fmt: skip
def test_a_stop_after_the_last_word_of_the_training_takes_nothing_back(
    tmp_path: Path, exit_code: int, asked_by: str | None, status: str
) -> None:
    run = RunFolder(tmp_path)
    run.file("outcome.json").write_text(json.dumps({"outcome": "finished", "step": 9, "max_steps": 9}))
    facts = Facts(exit_code, asked_by, 1.0 if asked_by else None, False, False, True, 0, 0)
    assert how_it_ended(run, facts).status == status


RANK_INTERRUPTED = "failed (exitcode: -2) local_rank: 1 (pid: 28593) of binary: /usr/bin/python\n"
INTERRUPTED = "step 7/16  loss 3.1\nTraceback (most recent call last):\n  x\nKeyboardInterrupt\n"


@each(
    ("log", "exit_code", "begun", "ended", "said"),
    [
        # Before a process listened it is a stop; to the launcher it ends the training with it and may be tried again.
        (RANK_INTERRUPTED, 1, False, ("stopped", "user_stop", None), "by a signal from outside trainwiz before the"),
        (INTERRUPTED, -2, True, ("failed", "unknown", "SIGINT"), "The launcher was terminated by an external SIGINT"),
    ],
)
def test_an_interrupt_from_outside(
    tmp_path: Path, log: str, exit_code: int, begun: bool, ended: tuple[str, str, str | None], said: str
) -> None:
    run = RunFolder(tmp_path)
    run.train_log.write_text(log)
    found = how_it_ended(run, Facts(exit_code, None, None, False, False, begun, 0, 0))
    assert (found.status, found.exit.cause, found.killed_by) == ended
    assert said in found.exit.message


def test_a_save_that_hangs_is_cut_after_a_while(tmp_path: Path) -> None:
    now = 0.0
    progress = SaveProgress(tmp_path, lambda: now)
    assert not progress.moves()
    (tmp_path / "checkpoint-7").mkdir()
    assert progress.moves()
    now = ending.STALLED_AFTER_S
    assert progress.moves()
    now += 1
    assert not progress.moves()
    (tmp_path / "checkpoint-7" / "optimizer.pt").write_bytes(b"0")
    assert progress.moves()
    (tmp_path / "checkpoint-7" / "trainer_state.json").write_text("{}")
    # Whole: only its processes have still to end.
    assert progress.moves()
    now += ending.ENDS_WITHIN_S + 1
    assert not progress.moves()
    (tmp_path / "final_model.partial").mkdir()
    assert progress.moves()


OURS, ANOTHER = 4_000_001, 4_000_002
DESKTOP = 300 * MIB


@pytest.fixture
def nvml(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake_nvml.load_here(monkeypatch)
    return fake_nvml


def card(used: int = DESKTOP, processes: dict[int, int] | None = None, **more: Any) -> FakeGpu:
    return FakeGpu(uuid="GPU-one", memory_used=used, processes=processes or {}, **more)


def noted(nvml: FakeNvml, *cards: FakeGpu) -> tuple[GpuLedger, GpuSampler]:
    """A ledger that was told of the cards as they were one after the other."""
    ledger, sampler = GpuLedger(), GpuSampler()
    for one in cards:
        nvml.write([one])
        gpus, _ = sampler.sample()
        ledger.note({"gpus": gpus, "processes": [{"pid": OURS}]})
    return ledger, sampler


def test_memory_that_is_given_back_late_is_waited_for(nvml: FakeNvml) -> None:
    # What was held is remembered when samples go on.
    ledger, sampler = noted(nvml, card(), card(7 * GIB + DESKTOP, {OURS: 7 * GIB, ANOTHER: 100 * MIB}), card())
    nvml.write([card(7 * GIB + DESKTOP, {OURS: 7 * GIB, ANOTHER: 100 * MIB})])
    assert ledger.held == {"GPU-one": 7 * GIB}
    threading.Timer(0.7, lambda: nvml.write([card(processes={ANOTHER: 100 * MIB})])).start()
    began = time.monotonic()
    found = ledger.check(sampler.sample, patience_s=60.0)
    assert (found.verdict, found.held_bytes) == ("free", 7 * GIB)
    assert time.monotonic() - began > 0.5
    assert (
        verified_words([], found) == "All processes of the run have ended, and its 7.0 GiB of GPU memory is free again."
    )


def test_a_process_that_stays_on_the_card_is_named(nvml: FakeNvml) -> None:
    ledger, sampler = noted(nvml, card(), card(7 * GIB, {OURS: 6 * GIB}))
    found = ledger.check(sampler.sample, patience_s=0.0)
    assert (found.verdict, found.pids_left) == ("held", (OURS,))
    assert f"Process {OURS} is still listed on a GPU, with 6.0 GiB" in verified_words([], found)


def test_where_the_driver_names_no_process_of_ours_the_card_is_compared_with_before(nvml: FakeNvml) -> None:
    ledger, sampler = noted(nvml, card(), card(5 * GIB + DESKTOP, {ANOTHER: 5 * GIB}))
    assert ledger.held == {"GPU-one": 5 * GIB}
    found = ledger.check(sampler.sample, patience_s=0.0)
    assert found.verdict == "unclear" and "GPU 0 has 5.0 GiB more in use than before the run" in found.reason
    nvml.write([card()])
    assert ledger.check(sampler.sample, patience_s=0.0).verdict == "free"


def test_a_driver_without_an_answer_is_no_free_memory(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, _ = noted(nvml, card(), card(7 * GIB, {OURS: 6 * GIB}))
    monkeypatch.setattr(nvml_module, "_hangs", False)
    monkeypatch.setattr(gpu_ledger, "DRIVER_ANSWERS_WITHIN_S", 0.1)
    found = ledger.check(lambda: (time.sleep(1.0), ([], {}))[1], patience_s=0.0)
    assert found.verdict == "not_checked" and "did not respond in time" in found.reason


def test_where_nothing_was_held_nothing_is_looked_for_and_what_hangs_in_the_kernel_is_told(nvml: FakeNvml) -> None:
    ledger, sampler = noted(nvml, card(), card(DESKTOP + 100 * MIB, {ANOTHER: 100 * MIB}))
    assert ledger.check(sampler.sample) is None
    assert verified_words([], None) == "All processes of the run have ended."
    assert "could not be ended: 12, 13. They end when their driver or disk responds" in verified_words([12, 13], None)


def test_a_child_that_has_ended_is_no_process_of_the_run_before_it_is_waited_for() -> None:
    """Else a keeper that reaps late would take a run that is gone for one that hangs."""
    ended, living = (subprocess.Popen(["sleep", seconds], env={}) for seconds in ("0", "60"))
    try:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        below = run_processes("no-such-mark", os.getpid())
        assert living.pid in below and ended.pid not in below
    finally:
        living.kill()
        for child in (ended, living):
            child.wait()
