"""What there is to look at on this machine, and what a user means by a name, path, process number or GPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.telemetry.target import Target


@dataclass(frozen=True, slots=True)
class Found:
    """One thing that can be watched: a row of the list that `trainwiz monitor` shows."""

    target: Target
    status: str
    """Of a run its state; "running" for a process."""
    what: str
    """What it is, in a few words: the model of a run, the command of a process (secrets left out)."""
    started_s: float | None = None
    ended_s: float | None = None
    step: int | None = None
    max_steps: int | None = None
    loss: float | None = None
    gpus: tuple[int, ...] = ()
    """The cards on which a process computes, where NVML tells."""

    @property
    def runs_now(self) -> bool:
        return self.status in ("starting", "running", "stopping")

    def to_json(self) -> dict[str, Any]:
        """The row of `trainwiz monitor --json` where there is more than one thing to watch."""
        return {
            "source": self.target.kind,
            "name": self.target.name,
            "path": str(self.target.path),
            "pid": self.target.pid,
            "status": self.status,
            "what": self.what,
            "started_s": self.started_s,
            "ended_s": self.ended_s,
            "step": self.step,
            "max_steps": self.max_steps,
            "loss": self.loss,
            "gpus": list(self.gpus),
        }


def find_target(text: str | None) -> Target:
    """What `text` means: a run's name, a path, a process number, "gpu" or "gpu:0"; None what is running or newest.

    Raises UsageError in one sentence, with the nearest names.
    """
    from trainwiz.core.run.listing import find_run

    return Target.of_run(find_run(text or ""))


def list_targets() -> list[Found]:
    """All that can be watched: what is running first, then the newest."""
    from trainwiz.core.run.folder import RunFolder
    from trainwiz.core.run.listing import list_runs

    return [
        Found(
            target=Target.of_run(RunFolder(Path(run.path))),
            status=run.status,
            what=run.model or "",
            started_s=run.started_s,
            ended_s=run.ended_s,
            step=run.step,
            max_steps=run.max_steps,
            loss=run.loss,
        )
        for run in list_runs()
    ]


def default_target(found: Iterable[Found]) -> Target | None:
    """What opens without a choice: the one that is running, or where none is the newest run; None where it is to be asked."""
    found = list(found)
    running = [one for one in found if one.runs_now]
    if len(running) > 1:
        return None
    newest = sorted((one for one in found if one.target.kind == "run"), key=lambda one: one.started_s or 0.0)
    chosen = running or newest[-1:]
    return chosen[0].target if chosen else None
