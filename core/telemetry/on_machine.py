"""What is known of a job's machine, laid over what its files tell: one snapshot of both."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from trainwiz.core.language import tr
from trainwiz.core.run.advice import Advice
from trainwiz.core.telemetry.advice import LEVELS, advise
from trainwiz.core.telemetry.machine_history import MachineHistory
from trainwiz.core.telemetry.metrics import Pace
from trainwiz.core.telemetry.snapshot import Planned, Snapshot

CPU_ENGINE = {"device": "cpu"}
"""What a snapshot's engine says of a job that has no graphics card open: the cards of the machine are not its own."""


def while_it_runs(snapshot: Snapshot) -> Snapshot:
    """`snapshot` of files whose writer is alive: they may rest, as in a long step, and the job does not.

    One that has reached its last step stays finished: its processes save, or wait in a notebook.
    """
    if snapshot.status == "finished":
        return snapshot
    step_s = snapshot.pace.wall_step_s or snapshot.pace.step_s
    known = snapshot.step is not None and snapshot.max_steps and step_s is not None
    left_s = max(0, (snapshot.max_steps or 0) - (snapshot.step or 0)) * (step_s or 0.0)
    return dataclasses.replace(
        snapshot, status="running", ending=None, ended_s=None, eta_s=left_s if known else snapshot.eta_s
    )


def with_machine(
    snapshot: Snapshot, machine: MachineHistory, *, uses_gpu: bool | None, checkpoint_bytes: int | None = None
) -> Snapshot:
    """`snapshot` with the readings of `machine`, their reasons and their advice added to its own.

    `uses_gpu`: whether the job has a card open; None where that is not known. `checkpoint_bytes`: what its
    next checkpoint takes.
    """
    gpus, host = machine.gpus(), machine.host()
    own_gpu = uses_gpu is not False or any(gpu.job_memory_bytes for gpu in gpus)
    reasons = machine.unavailable()
    if uses_gpu and gpus and not any(gpu.job_memory_bytes for gpu in gpus):
        reasons["job_gpu_memory"] = tr(
            "The driver names no process of this job on any card (in a container it uses the host's process numbers), "
            "so its own share of the memory is not known."
        )
    return dataclasses.replace(
        snapshot,
        gpus=gpus,
        host=host,
        processes=machine.processes(),
        job_cpu_history=machine.job_cpu_history(),
        unavailable={**snapshot.unavailable, **reasons},
        engine=snapshot.engine if own_gpu else {**snapshot.engine, **CPU_ENGINE},
        advice=joined(
            snapshot.advice,
            advise(
                status=snapshot.status,
                metrics={},
                non_finite_steps={},
                pace=Pace(None, None, None, None, None),
                gpus=gpus if own_gpu else (),
                host=host,
                planned=Planned(),
                peak_memory_bytes=None,
                checkpoint_bytes=checkpoint_bytes,
                now_s=snapshot.time_s,
            ),
        ),
    )


def with_reasons(snapshot: Snapshot, reasons: Mapping[str, str]) -> Snapshot:
    """`snapshot` with sentences that say why something is not shown: beside the value, and as notes to read."""
    notes = tuple(Advice(f"no_{what}", "note", reason) for what, reason in reasons.items())
    return dataclasses.replace(
        snapshot, unavailable={**snapshot.unavailable, **reasons}, advice=joined(snapshot.advice, notes)
    )


def joined(*advice: tuple[Advice, ...]) -> tuple[Advice, ...]:
    """All of it once, worst first."""
    every = dict.fromkeys(item for some in advice for item in some)
    return tuple(sorted(every, key=lambda item: LEVELS[item.level]))
