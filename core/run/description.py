"""RunDescription: one run with all that its folder says of it, for `trainwiz runs show`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainwiz.core.run.checkpoints import Checkpoint, list_checkpoints
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.listing import RunSummary, summarize_run
from trainwiz.core.run.phase import PhaseNow, read_phase
from trainwiz.core.run.recovery import Recovery, read_recoveries
from trainwiz.core.run.state import RunState, read_state

SET_ASIDE_NAME = re.compile(r"(broken|later)-checkpoint-(\d+)(-\d+)?")


@dataclass(frozen=True, slots=True)
class SetAside:
    """A checkpoint that was renamed out of the way; it is not deleted by anybody but the user."""

    name: str
    why: str
    """broken: it was not complete. later: the training went on from an earlier one."""
    step: int


@dataclass(frozen=True, slots=True)
class RunDescription:
    summary: RunSummary
    state: RunState
    checkpoints: tuple[Checkpoint, ...]
    set_aside: tuple[SetAside, ...]
    phase: PhaseNow | None
    """What the training does now; None for a run that is not active."""
    advice: tuple[Mapping[str, Any], ...]
    """What watchers recorded and did not take back, as lines of advice.jsonl."""
    recoveries: tuple[Recovery, ...]
    """The starts that trainwiz made by itself."""
    batch: Mapping[str, Any]
    """That of plan.json: what the changes of an attempt are compared with."""

    def to_json(self) -> dict[str, Any]:
        """The document of `trainwiz runs show --json`."""
        return {
            **self.summary.to_json(),
            "state": self.state.to_json(),
            "checkpoints": [{**asdict(found), "path": found.path.name} for found in self.checkpoints],
            "set_aside": [asdict(found) for found in self.set_aside],
            "phase": asdict(self.phase) if self.phase else None,
            "advice": list(self.advice),
            "recoveries": [asdict(recovery) for recovery in self.recoveries],
        }


def describe_run(folder: RunFolder) -> RunDescription:
    """Reads only; what cannot be read is absent."""
    state = read_state(folder)
    batch = (read_json(folder.plan_json) or {}).get("batch")
    return RunDescription(
        summary=summarize_run(folder),
        state=state,
        checkpoints=tuple(list_checkpoints(folder)),
        set_aside=tuple(list_set_aside(folder)),
        phase=read_phase(folder) if state.is_active else None,
        advice=tuple(_standing_advice(folder)),
        recoveries=tuple(read_recoveries(folder)),
        batch=batch if isinstance(batch, dict) else {},
    )


def list_set_aside(folder: RunFolder) -> list[SetAside]:
    """The checkpoints that were renamed, by step."""
    try:
        names = sorted(path.name for path in folder.path.iterdir())
    except OSError:
        return []
    matches = [match for match in map(SET_ASIDE_NAME.fullmatch, names) if match]
    found = [SetAside(match[0], match[1], int(match[2])) for match in matches]
    return sorted(found, key=lambda one: (one.step, one.name))


def _standing_advice(folder: RunFolder) -> list[Mapping[str, Any]]:
    # Readers of growing files load what `runs list` and the keeper do not need.
    from trainwiz.core.telemetry.recorded_advice import ADVICE_JSONL, AdviceFile
    from trainwiz.core.telemetry.tail import JsonLinesTail

    return AdviceFile(JsonLinesTail(folder.file(ADVICE_JSONL))).read()
