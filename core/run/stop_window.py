"""StopWindow: how long a graceful stop of a run may take, and why so long.

A stop with a checkpoint waits for the work under way and then for the save. The window is

    FLOOR_S + margin * longest recent work + SAVES * last save

in seconds, from the lines of metrics.jsonl and the files of the newest checkpoint; before anything was
measured, from the plan with wider margins. What still runs after it is killed.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.recovery import changes_now
from trainwiz.core.telemetry.tail import JsonLinesTail

if TYPE_CHECKING:
    from trainwiz.core.run.state import RunState

FLOOR_S = 60.0
"""For what nobody measures: the agreement of the processes, their end, a disk that is busy."""
MEASURED_MARGIN = 1.25
PLANNED_MARGIN = 2.0
SAVES = 2.0
"""One that may just have begun on a disk that is slower today."""
RECENT_LINES = 20
METRICS_WINDOW_BYTES = 32 * 1024

ACCUMULATION = "batch.gradient_accumulation_steps"
FIRST_FILE, LAST_FILE = "progress.json", "trainer_state.json"
"""Of a checkpoint, in the order in which the training writes them."""

Work = Literal["step", "micro_step"]
"""What is finished before the save: several processes finish the optimizer step together; a single one drops
its accumulation window after the present micro-batch."""


@dataclass(frozen=True, slots=True)
class StopWindow:
    """All in seconds."""

    window_s: float
    """After this the keeper ends what is left, with or without a checkpoint."""
    work: Work
    work_s: float | None
    """The longest time until the save begins; None where neither plan nor measurement says."""
    step_s: float | None
    """The longest recent optimizer step: what a single process computes again after it dropped one."""
    save_s: float | None
    source: Literal["measured", "planned"]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Any) -> StopWindow | None:
        """None where the document does not describe a window."""
        if not isinstance(document, dict) or _seconds(document.get("window_s")) is None:
            return None
        return cls(
            window_s=float(document["window_s"]),
            work="micro_step" if document.get("work") == "micro_step" else "step",
            work_s=_seconds(document.get("work_s")),
            step_s=_seconds(document.get("step_s")),
            save_s=_seconds(document.get("save_s")),
            source="measured" if document.get("source") == "measured" else "planned",
        )


def window_of(
    step_s: float | None, save_s: float | None, *, accumulation: int, processes: int, measured: bool
) -> StopWindow:
    """The window for the longest step and the last save of `processes` that accumulate `accumulation` micro-batches."""
    alone = processes == 1
    work_s = step_s / max(accumulation, 1) if step_s is not None and alone else step_s
    margin = MEASURED_MARGIN if measured else PLANNED_MARGIN
    seconds = FLOOR_S + margin * (work_s or 0.0) + SAVES * (save_s or 0.0)
    return StopWindow(
        seconds, "micro_step" if alone else "step", work_s, step_s, save_s, "measured" if measured else "planned"
    )


class StopWindowReader:
    """Reads the window of one run again and again; a look at nothing new costs a few system calls."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._tail = JsonLinesTail(run.metrics_jsonl, window_bytes=METRICS_WINDOW_BYTES)
        self._steps_s: deque[float] = deque(maxlen=RECENT_LINES)
        self._engine: tuple[Any, int, int] | None = None

    def read(self, world_size: Any, planned: StopWindow | None) -> StopWindow | None:
        """The window now; `planned` (with the step and the save of the plan) until a step was measured.

        `world_size` is that of the engine that runs; anything but a number counts as the planned one.
        """
        self._take_new()
        if not self._steps_s:
            return planned
        if self._engine is None or self._engine[0] != world_size:
            self._engine = (world_size, *processes_and_accumulation(self._run, world_size))
        save_s = last_save_s(self._run.path)
        planned_save_s = planned.save_s if planned is not None else None
        return window_of(
            max(self._steps_s),
            planned_save_s if save_s is None else save_s,
            accumulation=self._engine[2],
            processes=self._engine[1],
            measured=True,
        )

    def _take_new(self) -> None:
        for row in self._tail.read_new():
            if "resumed_from" in row:
                # Another attempt may have another micro-batch.
                self._steps_s.clear()
                self._engine = None
            step_s = _seconds(row.get("step_s"))
            if step_s is not None:
                self._steps_s.append(step_s)


def renew_window(state: RunState, reader: StopWindowReader) -> None:
    """Put the window as it is now into the state; it stays as it is until a step was measured."""
    window = reader.read(state.engine.get("world_size"), StopWindow.from_json(state.window))
    if window is not None:
        state.grace_s, state.window = window.window_s, window.to_json()


def processes_and_accumulation(run: RunFolder, world_size: Any) -> tuple[int, int]:
    """Of the newest attempt: as they run, else as recovery changed them, else as they were planned."""
    document = read_json(run.plan_json) or {}
    batch = document.get("batch")
    planned = batch if isinstance(batch, dict) else {}
    accumulation = _count(changes_now(run).get(ACCUMULATION)) or _count(planned.get("accumulation")) or 1
    return _count(world_size) or _count(planned.get("world_size")) or 1, accumulation


def read_window(run: RunFolder, world_size: Any, planned: StopWindow | None) -> StopWindow | None:
    """One look, for a viewer."""
    return StopWindowReader(run).read(world_size, planned)


def last_save_s(folder: Path) -> float | None:
    """How long the newest whole save of a run folder took: from its first file to its last one; None without one."""
    try:
        names = sorted((name for name in folder.iterdir() if _step_of(name) >= 0), key=_step_of, reverse=True)
    except OSError:
        return None
    for path in names:
        try:
            last = (path / LAST_FILE).stat().st_mtime
            return max(0.0, last - (path / FIRST_FILE).stat().st_mtime)
        except OSError:
            continue
    return None


def _step_of(path: Path) -> int:
    found = re.fullmatch(r"checkpoint-(\d+)", path.name)
    return int(found.group(1)) if found else -1


def _seconds(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
    return float(value) if good else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
