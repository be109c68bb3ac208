"""The measurement that a finished run is: from what its folder says. Reads files only; no training library."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainwiz.core.hardware import host
from trainwiz.core.history.device import cpu_key
from trainwiz.core.history.measurement import Measurement, measurement_of
from trainwiz.core.history.pace import steps_of
from trainwiz.core.json_text import parse_json
from trainwiz.core.numbers import finite
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.state import RunState
from trainwiz.core.small_file import open_file
from trainwiz.core.telemetry.so_far import SoFar

PLANNED = "planned_measurement"
"""Key in plan.json: the fields of the measurement that the plan knows."""
FEWEST_STEPS = 5
"""Of a run that was stopped; the first line, which has the first step in it, is not counted."""
MOST_LINES = 20_000
"""Of metrics.jsonl and of system.jsonl, the last ones."""
TAIL_BYTES = 8 * 1024**2
STALLS = 0.02
"""Of the lines of a run, those of its longest waits for data."""


def run_measurement(run: RunFolder, state: RunState) -> Measurement | None:
    """None for a run that says too little: it failed, was too short, or is not what was planned here."""
    planned = (read_json(run.plan_json) or {}).get(PLANNED)
    if not isinstance(planned, dict) or state.status not in ("finished", "stopped") or not _is_here(planned, state):
        return None
    if state.attempts and state.attempts[-1].changes:
        # With a smaller batch or fewer loader processes it is not what was planned.
        return None
    known, whole = _rows(run.metrics_jsonl)
    rows = [row for row in known if (finite(row.get("time_s")) or 0.0) >= _started_s(state)]
    lines = [row for row in rows if "loss" in row]
    steps = steps_of(_timed(lines))
    if steps is None or (state.status == "stopped" and steps.count < FEWEST_STEPS):
        return None
    ended = datetime.datetime.fromtimestamp(state.ended_s or 0.0).astimezone()
    return measurement_of(
        planned,
        {
            "measured_at": ended.isoformat(timespec="seconds"),
            "source": "run",
            "steps": steps.count,
            "step_s": steps.median_s,
            "step_low_s": steps.low_s,
            "step_high_s": steps.high_s,
            "tokens_per_step": _tokens_per_step(lines),
            "data_wait_s": _data_wait_s(lines),
            **({"start_s": _start_s(state, rows, lines), **_peaks(rows)} if whole else {}),
            "host_rss_bytes": _host_rss(run),
        },
    )


def record_run(run: RunFolder, state: RunState) -> None:
    """Add the run to the history where it says something. Raises OSError where the history cannot be written."""
    measurement = run_measurement(run, state)
    if measurement is not None:
        from trainwiz.core.history.store import append

        append(measurement)


def _is_here(planned: Mapping[str, Any], state: RunState) -> bool:
    """A folder may have been planned on another machine, and an engine may differ from its plan."""
    key, engine = str(planned.get("machine")), state.engine
    actual = str(engine.get("device") or "").split(":")[0]
    if not key.startswith(f"{actual}:") or engine.get("world_size") != planned.get("world_size"):
        return False
    same = all(engine.get(name) == planned.get(wanted) for name, wanted in _SIZES.items() if name in engine)
    if actual == "cpu":
        return same and key == cpu_key(host.cpu_model(), host.count_cores())
    return same and (engine.get("device_name") is None or f":{engine['device_name']}:" in key)


_SIZES = {"micro_batch_size": "micro_batch", "gradient_accumulation_steps": "accumulation"}


def _started_s(state: RunState) -> float:
    return state.attempts[-1].started_s if state.attempts else 0.0


def _timed(lines: list[dict[str, Any]]) -> list[tuple[float, int]]:
    """(seconds a step, steps) of each line but the first, which holds what every start holds."""
    timed = []
    for before, line in itertools.pairwise(lines):
        seconds = finite(line.get("step_s"))
        count = (finite(line.get("step")) or 0.0) - (finite(before.get("step")) or 0.0)
        if seconds and count > 0:
            timed.append((seconds, int(count)))
    return timed


def _data_wait_s(lines: list[dict[str, Any]]) -> float | None:
    """Mean over the counted steps, without the longest waits of a fiftieth of the lines.

    A mean, for what workers prepare comes in bursts: most steps wait for nothing, and some for several. One stall of a
    network drive is not what more workers would help against.
    """
    waits = []
    for before, line in itertools.pairwise(lines):
        wait_s = finite(line.get("data_wait_s"))
        count = (finite(line.get("step")) or 0.0) - (finite(before.get("step")) or 0.0)
        if wait_s is not None and count > 0:
            waits.append((wait_s, count))
    counted = sorted(waits)[: len(waits) - round(STALLS * len(waits))]
    steps = sum(count for _, count in counted)
    return sum(wait_s * count for wait_s, count in counted) / steps if steps else None


def _tokens_per_step(lines: list[dict[str, Any]]) -> float | None:
    """Mean over the counted steps of all processes."""
    if len(lines) < 2:
        return None
    tokens = (finite(lines[-1].get("tokens")) or 0.0) - (finite(lines[0].get("tokens")) or 0.0)
    steps = (finite(lines[-1].get("step")) or 0.0) - (finite(lines[0].get("step")) or 0.0)
    return tokens / steps if steps > 0 and tokens > 0 else None


def _start_s(state: RunState, rows: list[dict[str, Any]], lines: list[dict[str, Any]]) -> float | None:
    """From the launcher's start to the first step, and from the last line to the end.

    None where rows were evaluated before the first line, which says nothing of that time.
    """
    first, step_s = finite(lines[0].get("time_s")), finite(lines[0].get("step_s"))
    last = max((finite(row.get("time_s")) or 0.0 for row in rows), default=0.0)
    evaluated = any(name.startswith("eval_") for row in rows[: rows.index(lines[0])] for name in row)
    if first is None or step_s is None or evaluated or not state.attempts or state.ended_s is None:
        return None
    resumed = next((finite(row.get("resumed_from")) for row in rows if "resumed_from" in row), 0.0)
    done = max(1.0, (finite(lines[0].get("step")) or 1.0) - (resumed or 0.0))
    seconds = (first - done * step_s - _started_s(state)) + max(0.0, state.ended_s - last)
    return seconds if seconds > 0 else None


def _peaks(rows: Iterable[Mapping[str, Any]]) -> dict[str, int | None]:
    """The GPU's peaks only grow: what grew between two lines with an evaluation between them is the evaluation's."""
    training: int | None = None
    reserved: int | None = None
    seen = 0
    evaluated = False
    for row in rows:
        if any(name.startswith("eval_") for name in row):
            evaluated = True
        allocated = finite(row.get("peak_allocated_bytes"))
        if allocated is None:
            continue
        reserved = max(reserved or 0, int(finite(row.get("peak_reserved_bytes")) or 0))
        if int(allocated) > seen and not evaluated:
            training = int(allocated)
        seen, evaluated = max(seen, int(allocated)), False
    grew = training is not None and seen > training
    return {
        "peak_allocated_bytes": training,
        "peak_reserved_bytes": None if grew else reserved,
        "evaluation_peak_bytes": seen if grew else None,
    }


def _host_rss(run: RunFolder) -> int | None:
    """The fullest training process at its most, as the keeper sampled it."""
    so_far = SoFar()
    for row in _rows(run.system_jsonl)[0]:
        so_far.add(row)
    return so_far.peak_trainer_rss_bytes or None


def known_rows(path: Path) -> list[dict[str, Any]]:
    """The last JSON objects of a file of lines; broken ones are left out."""
    return _rows(path)[0]


def _rows(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """The last JSON objects of a file of lines (broken ones are left out), and whether these are all of them."""
    try:
        with open_file(path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return [], True
    rows = []
    for line in lines[-MOST_LINES:]:
        try:
            row = parse_json(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows, size <= TAIL_BYTES and len(lines) <= MOST_LINES
