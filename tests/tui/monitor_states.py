"""What the pictures of the monitor show: runs of ours in each state, and trainings that were started elsewhere."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainwiz.core.run.folder import RunFolder
from trainwiz.core.telemetry import target as targets
from trainwiz.core.telemetry.job_source import with_machine
from trainwiz.core.telemetry.machine import MachineHistory
from trainwiz.core.telemetry.snapshot import Snapshot
from trainwiz.core.telemetry.target import Source, Target

from tests.core.telemetry.written_run import GIB, NOW_S, system_row, write_lines, write_run

OUT_OF_MEMORY = {
    "code": 1,
    "cause": "cuda_oom",
    "message": "The GPU ran out of memory at step 1,600: 9.1 GiB were wanted and 7.8 GiB are there.",
    "remedy": "trainwiz --profile 2080super --micro-batch 3 --yes",
}
NOT_EVEN_ONE_ROW = {
    **OUT_OF_MEMORY,
    "remedy": "Reduce the max length to 256 tokens. trainwiz --profile 2080super --set batch.micro_batch_size=1 "
    "--set batch.gradient_accumulation_steps=3906 --length 256 --yes",
}
STOPPED = {"code": 130, "cause": "stopped", "message": "Stopped after step 1,600; checkpoint-1600 is complete."}

FIRST_ATTEMPT = {"number": 1, "started_s": NOW_S - 9_000, "ended_s": NOW_S - 7_000, "status": "failed"}
AGAIN = {
    "number": 2,
    "started_s": NOW_S - 7_000,
    "resume": "checkpoint-1200",
    "because": "cuda_oom",
    "changes": {"batch.micro_batch_size": 3, "batch.gradient_accumulation_steps": 1302},
}
GIVEN_UP = {
    **AGAIN,
    "number": 3,
    "changes": {"batch.micro_batch_size": 1, "batch.gradient_accumulation_steps": 3906},
    "ended_s": NOW_S,
    "status": "failed",
    "not_retried": "The micro-batch is already one row: it cannot be reduced, and the effective batch is not changed.",
}
FULL = {"phase": "paused", "since_s": NOW_S - 400, "step": 1600, "detail": "waiting for disk space"}
TOKENISING = {"phase": "tokenising", "since_s": NOW_S - 200, "step": 0, "detail": "12,000 of 80,000 rows"}

RUN_STATES: dict[str, dict[str, Any]] = {
    "running": {"throttled": True},
    "nan": {"nan_at": (812, 1000, 1004)},
    "no-gpu": {"gpus": 0, "max_steps": 3200, "step_s": 0.35},
    "eight-gpus": {"gpus": 8},
    "starting": {"status": "starting", "steps": 0, "gpus": 0},
    "finished": {"status": "finished", "gpus": 0, "max_steps": 1600, "step_s": 0.35},
    "failed": {"status": "failed", "exit_": OUT_OF_MEMORY},
    "stopped": {"status": "stopped", "exit_": STOPPED},
    "lost": {"status": "lost"},
    "recovered": {
        "attempts": [FIRST_ATTEMPT, AGAIN], "phase": {"phase": "evaluating", "since_s": NOW_S - 75, "step": 1600},
    },
    "paused": {"phase": FULL, "attempts": [{"number": 1, "started_s": NOW_S - 9_000}]},
    "tokenising": {
        "status": "starting", "steps": 0, "gpus": 0, "phase": TOKENISING,
        "attempts": [{"number": 1, "started_s": NOW_S - 300}],
    },
    "given-up": {"status": "failed", "exit_": NOT_EVEN_ONE_ROW, "attempts": [FIRST_ATTEMPT, GIVEN_UP]},
    "answers": {"gpus": 1, "max_steps": 3200, "step_s": 0.35},
}  # fmt: skip
ASKED = ("What should I do when the kettle will not switch off?", "Write a short reply to a late customer.")
SAID: dict[int, tuple[str, str]] = {
    0: (
        "The kettle is a kettle is a kettle is a kettle is a kettle is a kettle is a kettle is a kettle is a kettle is a",
        "Dear customer, dear customer, dear customer, dear",
    ),
    800: ("Unplug the kettle. The kettle should be unplugged and it cools.", "We are sorry. Your order comes."),
    1600: (
        "Unplug it, let it cool down, and empty it. If the switch still sticks, do not use the kettle again: have it "
        "repaired or replaced.",
        "Thank you for telling us. Your order left today and arrives on Friday.",
    ),
}
"""Step -> what a model said to each of ASKED; before the training it does not come to an end."""
FOREIGN_STATES = ("trainer", "quiet", "tensorboard", "process")
STATES = (*RUN_STATES, *FOREIGN_STATES)

TRAINER_STEPS, TRAINER_MAX_STEPS, LOG_EVERY = 1_200, 3_000, 5


def target_of(state: str, runs: Path = Path("runs"), log: str | None = None) -> Target:
    """Writes what the state needs below `runs`, and says what to watch."""
    if state in RUN_STATES:
        more = {} if log is None else {"log": log}
        folder = write_run(runs / "uniref-650m-0412", **more, **RUN_STATES[state])
        if state == "answers":
            rows = [
                {"step": step, "prompt": number, "source": ASKED[number], "generation": text, "ended": step > 0}
                for step, texts in SAID.items()
                for number, text in enumerate(texts)
            ]
            write_lines(folder / "generations.jsonl", rows)
        return Target.of_run(RunFolder(folder))
    if state == "tensorboard":
        return Target("tensorboard", _tensorboard(runs / "vision"), "vision")
    folder = _trainer(runs / "bert-finetune", age_s=7200.0 if state == "quiet" else 3.0)
    if state == "process":
        return Target("process", folder, "train.py (pid 4711)", pid=4711, started_s=NOW_S - 1_900)
    return Target("trainer", folder, "bert-finetune")


class RecordedProcess(Source):
    """A process that is not there any more, as its files and its machine told of it: pictures need the same one twice."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._files = targets.open_files_source(dataclasses.replace(target, kind="trainer"), clock=lambda: NOW_S)

    def poll(self, curves: Iterable[str] = ()) -> Snapshot:
        machine = MachineHistory()
        for index in range(120):
            row = system_row(index, 1)
            row["gpus"][0]["name"] = "NVIDIA GeForce RTX 3090"
            row["gpus"][0]["processes"] = [
                {"pid": 4711, "name": "python", "memory_used_bytes": 4 * GIB, "kind": "compute"},
                {"pid": 900, "name": "Xorg", "memory_used_bytes": GIB, "kind": "graphics"},
            ]
            row["processes"] = [{"pid": 4711, "role": "trainer", "rss_bytes": 3 * GIB, "cpu_percent": 104.0}]
            machine.add_rows([row])
        snapshot = dataclasses.replace(
            self._files.poll(curves),
            source="process",
            path=str(self._target.path),
            name=self._target.name,
            command="python train.py --output_dir bert-finetune --hub_token ***",
            started_s=self._target.started_s,
        )
        return with_machine(snapshot, machine, uses_gpu=True)


def _write_events(folder: Path, began_s: float, name: str, rows: Iterable[tuple[float, int, dict[str, float]]]) -> None:
    """An event file as a writer of TensorBoard leaves it, of (Unix time, step, scalars)."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    from tests.core.telemetry.event_writers import record

    folder.mkdir(parents=True)
    events = [Event(wall_time=began_s, file_version="brain.Event:2")]
    for time_s, step, values in rows:
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
        events.append(Event(wall_time=time_s, step=step, summary=summary))
    path = folder / f"events.out.tfevents.{began_s:.0f}.workstation.{name}"
    path.write_bytes(b"".join(record(event.SerializeToString()) for event in events))


def _trainer(folder: Path, *, age_s: float) -> Path:
    """The output folder of a Trainer: event files and a checkpoint, last written `age_s` seconds ago."""
    noise = random.Random(5)
    history: list[dict[str, float]] = []
    events: list[tuple[float, int, dict[str, float]]] = []
    for step in range(LOG_EVERY, TRAINER_STEPS + 1, LOG_EVERY):
        wall_time_s = NOW_S - age_s - (TRAINER_STEPS - step) * 1.5
        loss = 1.1 + 1.4 * math.exp(-step / 250) + noise.gauss(0, 0.06)
        epoch = step / 1000
        rate = 5e-5 * (1 - step / TRAINER_MAX_STEPS)
        row = {"loss": loss, "learning_rate": rate, "grad_norm": 1.4 + noise.random()}
        values = {f"train/{name}": value for name, value in row.items()}
        events.append((wall_time_s, step, {**values, "train/epoch": epoch}))
        history.append({**row, "epoch": epoch, "step": step})
        if step % 200 == 0:
            events.append((wall_time_s, step, {"eval/loss": loss + 0.12, "eval/accuracy": 0.4 + step / 4000}))
            history.append({"eval_loss": loss + 0.12, "epoch": epoch, "step": step})
    _write_events(folder / "runs" / "Nov21_13-30-00_workstation", NOW_S - age_s - 1_900, "4711.0", events)
    checkpoint = folder / f"checkpoint-{TRAINER_STEPS}"
    checkpoint.mkdir()
    state = {
        "global_step": TRAINER_STEPS, "max_steps": TRAINER_MAX_STEPS, "epoch": TRAINER_STEPS / 1000,
        "num_train_epochs": 3, "logging_steps": LOG_EVERY, "train_batch_size": 32, "log_history": history,
    }  # fmt: skip
    (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    _age(folder, age_s)
    return folder


def _tensorboard(folder: Path) -> Path:
    """Two runs with a training and a validation curve, as a writer of TensorBoard leaves them."""
    for place, run in enumerate(("resnet50", "vit_small")):
        noise = random.Random(place)
        events = []
        for step in range(0, 2_000, 10):
            loss = 0.5 + 1.8 * math.exp(-step / (300 + 200 * place)) + noise.gauss(0, 0.04)
            values = {"train/loss": loss, "lr": 1e-3 * (1 - step / 2_000)}
            if step % 250 == 0:
                values |= {"val/loss": loss + 0.2, "val/accuracy": 0.2 + step / 3_000}
            events.append((NOW_S - 5 - 2 * (2_000 - step), step, values))
        _write_events(folder / run, NOW_S - 4000, f"{place}.0", events)
    _age(folder, 5.0)
    return folder


def _age(folder: Path, age_s: float) -> None:
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (NOW_S - age_s, NOW_S - age_s))
