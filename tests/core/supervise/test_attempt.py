"""What a new start finds: the folder of a run that was killed, another process that keeps it, another engine than planned."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.files import ROWS
from trainwiz.core.run.folder import ADAPTER, BASE_MODEL, FINAL_MODEL, GENERATIONS, PARTIAL, TOKENIZER, TRACE, RunFolder
from trainwiz.core.run.lost import LOCK_FILE
from trainwiz.core.run.state import RunState, read_state, write_state
from trainwiz.core.supervise import by_hand
from trainwiz.core.supervise.attempt import (
    CannotStart,
    begin_attempt,
    choose_checkpoint,
    engine_findings,
    put_away_last_attempt,
    take_engine,
)
from trainwiz.core.supervise.by_hand import KeptByHand, refuse_active
from trainwiz.core.telemetry.run_source import RunSource

from tests.core.run.checkpoint_files import cut, write_adapter
from tests.each import each

WHOLE = (TOKENIZER, BASE_MODEL, ROWS, TRACE)


def killed(folder: Path) -> RunFolder:
    """Killed while it wrote its final model, its adapter and a checkpoint."""
    for name in (*WHOLE, f"{FINAL_MODEL}{PARTIAL}", f"{ADAPTER}{PARTIAL}"):
        (folder / name).mkdir()
        (folder / name / "file").write_text(name)
    (folder / GENERATIONS).write_text("{}\n")
    (folder / "outcome.json").write_text("{}")
    write_adapter(folder, 4)
    cut(write_adapter(folder, 8) / "adapter_model.safetensors")
    return RunFolder(folder)


def test_what_is_whole_stays_and_what_is_not_is_put_away(tmp_path: Path) -> None:
    run = killed(tmp_path)
    state = RunState(status="lost")
    checkpoint = begin_attempt(run, state, "auto", "mark")
    assert checkpoint == tmp_path / "checkpoint-4"
    assert all((tmp_path / name / "file").read_text() == name for name in WHOLE)
    assert run.generations_jsonl.read_text() == "{}\n"
    assert not list(tmp_path.glob(f"*{PARTIAL}"))
    away = tmp_path / "attempts" / "0"
    assert sorted(path.name for path in away.iterdir()) == ["adapter.partial", "final_model.partial", "outcome.json"]
    assert (tmp_path / "broken-checkpoint-8" / "adapter_config.json").is_file()
    assert "adapter_model.safetensors is incomplete" in state.attempts[0].set_aside[0]


def test_the_same_thing_twice_loses_neither(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for text in ("first", "second"):
        (tmp_path / f"{FINAL_MODEL}{PARTIAL}").mkdir()
        (tmp_path / f"{FINAL_MODEL}{PARTIAL}" / "file").write_text(text)
        put_away_last_attempt(run, 1)
    found = sorted(path.read_text() for path in (tmp_path / "attempts" / "1").glob("*/file"))
    assert found == ["first", "second"]


def test_a_checkpoint_by_name_is_refused_where_it_is_not_complete(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for step in (4, 8, 12):
        write_adapter(tmp_path, step)
    cut(tmp_path / "checkpoint-12" / "optimizer.pt")
    for name in ("checkpoint-12", "checkpoint-77"):
        with pytest.raises(CannotStart, match="complete checkpoints: checkpoint-4, checkpoint-8"):
            choose_checkpoint(run, name)
    assert (tmp_path / "checkpoint-12").exists()
    chosen, said = choose_checkpoint(run, "checkpoint-4")
    assert chosen.step == 4 and len(said) == 2
    assert (tmp_path / "broken-checkpoint-12").exists() and (tmp_path / "later-checkpoint-8").exists()


# The engine that runs, against the one that was planned.


PLANNED = {
    "planned": "zero2+offload",
    "planned_values": {
        "device": "cuda", "precision": "bf16", "optimizer": "adamw_torch", "attention": "sdpa", "world_size": 2,
        "compile": False, "adapter": "lora",
    },
}  # fmt: skip
ACTUAL = {
    "actual": "zero2+offload", "device": "cuda:1", "precision": "bf16", "optimizer": "DeepSpeedCPUAdam",
    "attention": "sdpa", "world_size": 2, "compile": False, "adapter": "lora", "zero_stage": 2,
}  # fmt: skip


@each(("key", "value", "message"), [
    ("actual", "ddp", "The engine is ddp but was planned as zero2+offload."),
    ("device", "cpu", "The device is cpu but was planned as cuda."),
    ("precision", "fp32", "The precision is fp32 but was planned as bf16."),
    ("attention", "eager", "The attention is eager but was planned as sdpa."),
    ("world_size", 1, "The number of processes is 1 but was planned as 2."),
    ("compile", True, "torch.compile is on but was planned as off."),
])  # fmt: skip
def test_each_difference_is_one_sentence(key: str, value: Any, message: str) -> None:
    (finding,) = engine_findings({**PLANNED, **ACTUAL, key: value})
    assert (finding.message, finding.severity, finding.code) == (message, "warning", "engine_not_as_planned")


@each(("planned", "actual", "stage", "differs"), [
    ("bf16-true", "bf16", 2, False), ("bf16-true", "bf16", None, True), ("tf32", "fp32", None, True), ("fp16", "bf16", 2, True),
])  # fmt: skip
def test_deepspeed_calls_bf16_true_bf16(planned: str, actual: str, stage: int | None, differs: bool) -> None:
    engine = {"planned_values": {"precision": planned}, "precision": actual, "zero_stage": stage}
    assert bool(engine_findings(engine)) is differs


def test_nothing_planned_is_no_difference() -> None:
    assert engine_findings({**PLANNED, **ACTUAL}) == ()
    assert engine_findings(ACTUAL) == ()
    assert engine_findings({**ACTUAL, "planned": "zero2+offload", "planned_values": "broken"}) == ()


def test_the_state_carries_the_findings_and_the_monitor_shows_them(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    state = RunState(status="finished", max_steps=129, engine=dict(PLANNED))
    assert not take_engine(state, run)
    # The steps of the process replace the planned ones, where they are some.
    for said, known in (("many", 129), (0, 129), (90, 90)):
        run.engine_json.write_text(json.dumps({"actual": "ddp", "max_steps": said}))
        assert take_engine(state, run) and state.max_steps == known
    run.engine_json.write_text(json.dumps({**ACTUAL, "actual": "ddp", "planned": "forged"}))
    assert take_engine(state, run)
    assert state.engine["planned"] == "zero2+offload"
    write_state(run, state)
    (finding,) = read_state(run).engine["findings"]
    advice = [item for item in RunSource(run).poll().advice if item.code == "engine_not_as_planned"]
    assert [(item.level, item.text) for item in advice] == [("warning", finding["message"])]
    assert "planned as zero2+offload" in finding["message"]


# Several processes of one launch.sh: who keeps the run, and who is another run.


RANK_0 = """
import os, sys, time
from pathlib import Path
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.lost import RunLock
from trainwiz.core.run.lost import identify, machine_identity
from trainwiz.core.run.state import RunState, write_state
run = RunFolder(Path(sys.argv[1]))
lock = RunLock.take(run.path)
print("held", flush=True)
time.sleep(0.3)
if sys.argv[2] == "writes":
    me = identify(os.getpid())
    write_state(run, RunState(status="starting", machine=machine_identity(), supervisor=me, heartbeat_s=time.time()))
time.sleep(600)
"""


@pytest.mark.parametrize("writes", ["writes", "never writes"])
def test_rank_0_of_this_launcher_is_no_other_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: str) -> None:
    command = [sys.executable, "-c", RANK_0, str(tmp_path), writes]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        assert read_state(RunFolder(tmp_path)).is_active
        with monkeypatch.context() as patch:
            patch.setattr(os, "getppid", os.getpid)
            if writes == "writes":
                refuse_active(tmp_path, patience_s=100.0)
            else:
                with pytest.raises(UsageError, match="is already running"):
                    refuse_active(tmp_path, patience_s=0.5)
        # The run of another launcher is another run.
        with pytest.raises(UsageError, match="is already running"):
            refuse_active(tmp_path, patience_s=0.1)
        process.kill()


def test_somebody_who_looks_at_the_lock_does_not_prevent_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_hand, "READER_S", 600.0)
    descriptor = os.open(tmp_path / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    threading.Timer(0.1, os.close, (descriptor,)).start()
    before = signal.getsignal(signal.SIGUSR1)
    try:
        kept = KeptByHand(tmp_path, None, lambda: False)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert read_state(RunFolder(tmp_path)).status == "starting"
    kept.end(1)
    assert read_state(RunFolder(tmp_path)).status == "failed"
