"""`trainwiz diagnose` as a user types it: runs in every state, logs, folders, pipes, and what is none of these."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from pathlib import Path

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.launch.prepare import prepare_run
from trainwiz.core.run.attempts import ADVICE_JSONL, Recovery, write_phase, write_recoveries
from trainwiz.core.run.folder import RunFolder, write_json_atomic
from trainwiz.core.run.lost import machine_identity, this_process
from trainwiz.core.run.state import Attempt, RunExit, read_state, write_state
from trainwiz.tui.commands.diagnose import look, run_diagnose

from tests.core.launch.plans import small_plan

pytestmark = pytest.mark.usefixtures("here")
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n'


@pytest.fixture
def run() -> RunFolder:
    return prepare_run(small_plan(name="demo"))


def put(run: RunFolder, status: str, ending: RunExit | None = None, **changes: object) -> None:
    state = read_state(run)
    state.status = status  # type: ignore[assignment]
    state.started_s = time.time() - 60
    state.attempts = [Attempt(1, state.started_s, launcher_exit_code=1, log_offset=0)]
    state.exit = ending
    for key, value in changes.items():
        setattr(state, key, value)
    write_state(run, state)


def test_a_failed_run_has_the_cause_the_line_and_a_command(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run.train_log.write_text("step 6/40  loss 2.9\n" + TRACE + OOM + "\n", encoding="utf-8")
    put(run, "failed", RunExit(1, "cuda_oom", "The GPU ran out of memory at step 7.", "x", ("y",)))
    run_diagnose(run.path.name, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert (document["source"], document["status"], document["cause"]) == ("run", "failed", "cuda_oom")
    assert document["evidence"][0] == {"line": 4, "text": OOM, "source": "train.log"}
    batch = json.loads(run.plan_json.read_text())["batch"]
    half = batch["micro_batch"] // 2
    assert f"--micro-batch {half} --accumulation {batch['accumulation'] * 2}" in document["remedies"][0]["command"]
    run_diagnose(str(run.train_log), as_json=False)
    said = capsys.readouterr().out
    assert "cuda_oom" in said and "train.log:4" in said and f"--micro-batch {half}" in said


def test_a_run_anew_begins_where_recovery_had_come_to(run: RunFolder) -> None:
    run.train_log.write_text(TRACE + OOM + "\n", encoding="utf-8")
    put(run, "failed", RunExit(1, "cuda_oom", "The GPU ran out of memory.", "x", ("y",)))
    write_json_atomic(run.plan_json, {**json.loads(run.plan_json.read_text()), "profile": "cpu-demo"})
    changes = {"batch.micro_batch_size": 1, "batch.gradient_accumulation_steps": 64}
    write_recoveries(run, [Recovery(2, "cuda_oom", 3, time.time(), changes)])
    commands = [remedy.command for remedy in look(run.path.name)[3].remedies]
    assert not any("--micro-batch" in (command or "") for command in commands)
    assert commands[0] is not None and commands[0].endswith("--checkpointing --yes")
    assert "batch.micro_batch_size=1 --set batch.gradient_accumulation_steps=64" in commands[0]


def test_the_newest_attempt_counts_and_what_the_keeper_saw_of_the_kernel_stands(run: RunFolder) -> None:
    first = TRACE + OOM + "\n"
    run.train_log.write_text(first + TRACE + "ValueError: no column seq\n", encoding="utf-8")
    put(run, "failed", attempts=[Attempt(2, time.time(), log_offset=len(first), launcher_exit_code=1)])
    found = look(run.path.name)[3]
    assert (found.cause, found.evidence[0].line) == ("python_error", 6)
    run.train_log.write_text("  exitcode  : -9 (pid: 7)\n", encoding="utf-8")
    ending = RunExit(1, "host_oom", "The node ran out of RAM.", None, ("the kernel killed 1 process(es)",))
    put(run, "failed", ending)
    found = look(run.path.name)[3]
    assert (found.cause, found.evidence[0].source) == ("host_oom", "state.json")
    # What did not fail has no failure.
    run.train_log.write_text("step 6/40  loss 2.9\nfinished at step 40 of 40\n", encoding="utf-8")
    for status, cause in (("prepared", None), ("finished", None), ("stopped", "user_stop")):
        put(run, status, RunExit(0, cause, "As it was said."))
        _, _, said, found = look(run.path.name)
        assert (said, found.cause) == (status, cause)


def test_a_live_run_goes_on_waits_for_the_disk_or_lost_its_loss(run: RunFolder) -> None:
    run.train_log.write_text("step 5/40  loss 2.95\nstep 6/40  loss 2.9\n", encoding="utf-8")
    put(run, "running", supervisor=this_process(), machine=machine_identity(), heartbeat_s=time.time())
    _, _, status, found = look(run.path.name)
    assert (status, found.cause, found.step) == ("running", None, 6)
    assert "in progress" in found.message
    line = {"code": "stall", "severity": "warning", "text": "No step for 9 minutes.", "time_s": 1.0}
    run.file(ADVICE_JSONL).write_text(json.dumps(line) + "\n")
    assert "No step for 9 minutes." in [proof.text for proof in look(run.path.name)[3].evidence]
    write_phase(run, "paused", 7, "needs 3 GiB")
    assert look(run.path.name)[3].cause == "disk_full"
    write_phase(run, "training", 7)
    run.train_log.write_text("step 5/40  loss 2.95\nstep 6/40  loss nan\n", encoding="utf-8")
    assert look(run.path.name)[3].cause == "nan_loss"
    # The next attempt has not lost it.
    state = read_state(run)
    state.attempts.append(Attempt(2, time.time(), log_offset=run.train_log.stat().st_size))
    write_state(run, state)
    assert look(run.path.name)[3].cause is None


def test_a_lost_run_is_lost_and_nothing_is_invented(run: RunFolder) -> None:
    run.train_log.write_text("step 6/40  loss 2.9\n", encoding="utf-8")
    put(run, "running", heartbeat_s=1000.0, machine="another")
    os.utime(run.state_json, (1000.0, 1000.0))
    _, _, status, found = look(run.path.name)
    assert (status, found.cause, found.confidence) == ("lost", "unknown", "low")
    assert "disappeared without a final record" in found.message and "restarted" in found.message
    assert any("runs resume" in (remedy.command or "") for remedy in found.remedies)
    # One whose files are garbage is diagnosed all the same.
    put(run, "failed", RunExit(1, "unknown", "It ended."))
    run.plan_json.write_text("{", encoding="utf-8")
    run.train_log.write_bytes(os.urandom(5000))
    write_json_atomic(run.failure_json(0), {"type": 3, "traceback": [1], "findings": "x", "time_s": "y"})
    assert look(run.path.name)[3].cause == "python_error"


def test_the_output_of_a_trainer(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    (folder / "checkpoint-50").mkdir(parents=True)

    def cause(step: int, **last: float) -> str | None:
        document = {"global_step": step, "max_steps": 100, "log_history": [{**last, "step": step}]}
        (folder / "checkpoint-50" / "trainer_state.json").write_text(json.dumps(document))
        return look(str(folder))[3].cause

    assert cause(50, loss=2.0) == "unknown"
    assert cause(50, loss=0.0, grad_norm=float("nan")) == "nan_loss"
    assert cause(100, loss=2.0) is None
    (folder / "train.err").write_text(TRACE + OOM)
    assert cause(100, loss=2.0) == "cuda_oom"


def test_logs_of_ranks_a_pipe_and_an_empty_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank, text in enumerate(("RuntimeError: [pair.cc:547] Connection closed by peer [1]", OOM, "")):
        log = tmp_path / "id" / "attempt_0" / str(rank) / "stderr.log"
        log.parent.mkdir(parents=True)
        log.write_text(TRACE + text)
    assert look(str(tmp_path))[3].cause == "cuda_oom", "the rank that failed first"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((TRACE + OOM).encode())))
    run_diagnose("-", as_json=True)
    assert json.loads(capsys.readouterr().out)["evidence"][0]["source"] == "stdin"
    (tmp_path / "a.log").write_text("")
    found = look(str(tmp_path / "a.log"))[3]
    assert (found.cause, found.confidence) == ("unknown", "low") and "empty" in found.message


def test_what_cannot_be_diagnosed_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "a.gz").write_bytes(b"\x1f\x8b\x08" + b"text" * 100)
    (tmp_path / "empty").mkdir()
    for what in ("weights.bin", "a.gz", "empty", "nothing", "no/where.log", "/dev/zero", "", "a\0b"):
        with pytest.raises(UsageError) as refused:
            look(what)
        assert refused.value.exit_code == 2
        assert len(refused.value.findings) == 1
