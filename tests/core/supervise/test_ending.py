"""How a run ends, saves that outlast a stop, and whether GPU memory was given back."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from trainwiz.core.hardware import nvml as nvml_module
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import RunState
from trainwiz.core.supervise import ending
from trainwiz.core.supervise import recorder as gpu_ledger
from trainwiz.core.supervise.ending import GpuLedger, SaveProgress, Stopping, how_it_ended, verified_words
from trainwiz.core.supervise.keeper import remember
from trainwiz.core.supervise.ties import run_processes

from tests.each import each
from tests.fakes.nvml import GIB, MIB


@each(("exit_code", "asked_by", "status"), [(0, None, "finished"), (-15, "you", "finished"), (-15, None, "failed")])
def test_a_late_stop_takes_nothing_back(tmp_path: Path, exit_code: int, asked_by: str | None, status: str) -> None:
    run = RunFolder(tmp_path)
    run.file("outcome.json").write_text(json.dumps({"outcome": "finished", "step": 9, "max_steps": 9}))
    stopping = Stopping(None, lambda: False)
    if asked_by:
        stopping.ask(asked_by)
    assert how_it_ended(run, exit_code, stopping, begun=True).status == status


RANK_INTERRUPTED = "failed (exitcode: -2) local_rank: 1 (pid: 28593) of binary: /usr/bin/python\n"
INTERRUPTED = "step 7/16  loss 3.1\nTraceback (most recent call last):\n  x\nKeyboardInterrupt\n"


@each(("log", "exit_code", "begun", "ended", "said"), [
    # Before a process listened it is a stop; to the launcher it ends the training with it and may be tried again.
    (RANK_INTERRUPTED, 1, False, ("stopped", "user_stop", None), "by a signal from outside trainwiz before the"),
    (INTERRUPTED, -2, True, ("failed", "unknown", "SIGINT"), "The launcher was terminated by an external SIGINT"),
])  # fmt: skip
def test_an_interrupt_from_outside(
    tmp_path: Path, log: str, exit_code: int, begun: bool, ended: tuple[str, str, str | None], said: str
) -> None:
    run = RunFolder(tmp_path)
    run.train_log.write_text(log)
    found = how_it_ended(run, exit_code, Stopping(None, lambda: False), begun=begun, oom_kills=0)
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


def test_a_history_that_cannot_be_written_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr("trainwiz.core.history.run.record_run", full)
    remember(RunFolder(tmp_path), RunState(status="finished"))
    assert full.called


OURS, ANOTHER, DESKTOP = 4_000_001, 4_000_002, 300 * MIB


def card(used: int = DESKTOP, processes: dict[int, int] | None = None) -> list[dict[str, Any]]:
    held = [{"pid": pid, "memory_used_bytes": size} for pid, size in (processes or {}).items()]
    return [{"uuid": "GPU-one", "index": 0, "memory_used_bytes": used, "processes": held}]


FULL = card(7 * GIB, {OURS: 6 * GIB})
NOT_NAMED = card(5 * GIB + DESKTOP, {ANOTHER: 5 * GIB})
FREE = "All processes of the run have ended, and its {} GiB of GPU memory is free again."
LEDGER: list[tuple[list[Any], Any, tuple[str, int] | None, str]] = [
    # What was held is remembered when samples go on, and what is given back late is waited for.
    ([FULL, card()], [FULL, card(processes={ANOTHER: 100 * MIB})], ("free", 6 * GIB), FREE.format("6.0")),
    ([FULL], [FULL], ("held", 6 * GIB), "GPU 0 still has 6.0 GiB in use that it did not have before the run"),
    # Where the driver names no process of ours the card is compared with before.
    ([NOT_NAMED], [NOT_NAMED], ("held", 5 * GIB), "GPU 0 still has 5.0 GiB in use"),
    ([NOT_NAMED], [card()], ("free", 5 * GIB), FREE.format("5.0")),
    # Where nothing was held nothing is looked for.
    ([card(DESKTOP + 100 * MIB, {ANOTHER: 100 * MIB})], [], None, "All processes of the run have ended."),
]
"""Cards as they were one after the other after the first look, and as they are at the end -> the verdict and its words."""


@each(("seen", "now", "verdict", "words"), LEDGER)
def test_whether_gpu_memory_was_given_back(
    seen: list[Any], now: list[Any], verdict: tuple[str, int] | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_ledger, "LEDGER_EVERY_S", 0.01)
    ledger, looks = GpuLedger(), iter(now)
    for gpus in (card(), *seen):
        ledger.note({"gpus": gpus, "processes": [{"pid": OURS}]})
    found = ledger.check(lambda: (next(looks, now[-1]), {}), patience_s=0.1)
    assert (found and (found.verdict, found.held_bytes)) == verdict
    assert words in verified_words([], found)


def test_a_driver_without_an_answer_is_no_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = GpuLedger()
    for gpus in (card(), FULL):
        ledger.note({"gpus": gpus, "processes": [{"pid": OURS}]})
    monkeypatch.setattr(nvml_module, "_hangs", False)
    monkeypatch.setattr(gpu_ledger, "DRIVER_ANSWERS_WITHIN_S", 0.1)
    found = ledger.check(lambda: (time.sleep(1.0), ([], {}))[1], patience_s=0.0)
    assert found.verdict == "not_checked" and "did not respond in time" in found.reason
    stuck = verified_words([12, 13], None)
    assert "could not be ended: 12, 13. They end when their driver or disk responds" in stuck


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
