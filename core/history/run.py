"""A finished run as a measurement, and as a benchmark of its plan."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.hardware import host
from trainwiz.core.history.measurement import Measurement, append, cpu_key, measurement_of, steps_of
from trainwiz.core.lines import objects_from_the_end
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.state import RunState, read_object
from trainwiz.core.telemetry.machine import Peaks
from trainwiz.core.text import numbers_finite, object_in, objects_in, whole_in

# The measurement that a finished run is: from what its folder says. Reads files only; no training library.

PLANNED = "planned_measurement"
"""Key in plan.json: the fields of the measurement that the plan knows."""
FEWEST_STEPS = 5
"""Of a run that was stopped; the first line, which has the first step in it, is not counted."""
TAIL_BYTES = 8 * 1024**2
"""Of metrics.jsonl and of system.jsonl, the last ones."""
STALLS = 0.02
"""Of the lines of a run, those of its longest waits for data."""

Row = Mapping[str, Any]
Counted = list[tuple[Row, int]]
"""Lines of metrics.jsonl, and how many steps each is of."""


def run_measurement(run: RunFolder, state: RunState) -> Measurement | None:
    """None for a run that says too little: it failed, was too short, or is not what was planned here."""
    planned = object_in((read_json(run.plan_json) or {}).get(PLANNED))
    newest = state.newest
    if not planned or newest is None or state.status not in ("finished", "stopped"):
        return None
    # With a smaller batch or fewer loader processes it is not what was planned.
    if newest.changes or not _is_as_planned(planned, state.engine):
        return None
    rows = [row for row in _rows(run.metrics_jsonl) if _number(row, "time_s") >= newest.started_s]
    lines = [row for row in rows if "loss" in row]
    counted = _counted(lines)
    steps = steps_of([(_number(line, "step_s"), count) for line, count in counted])
    if not steps or (state.status == "stopped" and steps["steps"] < FEWEST_STEPS):
        return None
    own = steps_of([(_number(line, "own_s"), count) for line, count in counted])
    tokens = _number(lines[-1], "tokens") - _number(lines[0], "tokens")
    measured = {
        "measured_at": datetime.datetime.fromtimestamp(state.ended_s or 0.0).astimezone().isoformat(timespec="seconds"),
        "source": "run",
        **steps,
        "tokens_per_step": tokens / sum(count for _, count in counted) if tokens > 0 else None,
        "data_wait_s": _data_wait_s(counted),
        "own_step_s": own.get("step_s"),
        # The fullest training process at its most, as the keeper sampled it.
        "host_rss_bytes": _sampled(run).peak_trainer_rss_bytes or None,
    }
    if run.metrics_jsonl.stat().st_size <= TAIL_BYTES:
        # Only what comes before the first line of a run tells its start and what its steps held at most.
        start_s = _start_s(lines[0], newest.started_s) if rows[0] is lines[0] else None
        measured |= {"start_s": start_s, **_peaks(rows)}
    return measurement_of(dict(planned), measured)


def record_run(run: RunFolder, state: RunState) -> None:
    """Add the run to the history where it says something. Raises OSError where the history cannot be written."""
    measurement = run_measurement(run, state)
    if measurement is not None:
        append(measurement)


def _is_as_planned(planned: Row, engine: Row) -> bool:
    """A folder may have been planned on another machine, and an engine may differ from its plan."""
    key, device = str(planned.get("machine")), str(engine.get("device") or "").split(":")[0]
    sizes = {
        "world_size": planned.get("world_size"),
        "micro_batch_size": planned.get("micro_batch"),
        "gradient_accumulation_steps": planned.get("accumulation"),
    }
    if any(engine.get(name, size) != size for name, size in sizes.items()):
        return False
    if device == "cpu":
        return key == cpu_key(host.cpu_model(), host.count_cores())
    card = engine.get("device_name")
    return key.startswith(f"{device}:") and (card is None or f":{card}:" in key)


def _number(row: Row, name: str) -> float:
    return numbers_finite(row.get(name)) or 0.0


def _counted(lines: list[dict[str, Any]]) -> Counted:
    """All but the first line, which holds what every start holds."""
    pairs = ((line, int(_number(line, "step") - _number(before, "step"))) for before, line in itertools.pairwise(lines))
    return [(line, count) for line, count in pairs if count > 0]


def _data_wait_s(counted: Counted) -> float | None:
    """Mean over the counted steps, without the longest waits of a fiftieth of the lines.

    A mean, for what workers prepare comes in bursts: most steps wait for nothing, and some for several. One stall of a
    network drive is not what more workers would help against.
    """
    said = ((numbers_finite(line.get("data_wait_s")), count) for line, count in counted)
    waits = sorted((wait_s, count) for wait_s, count in said if wait_s is not None)
    usual = waits[: len(waits) - round(STALLS * len(waits))]
    steps = sum(count for _, count in usual)
    return sum(wait_s * count for wait_s, count in usual) / steps if steps else None


def _start_s(first: Row, started_s: float) -> float | None:
    """From the launcher's start to the first step; None where the first line does not say when that was."""
    step_s = _number(first, "step_s")
    seconds = _number(first, "time_s") - started_s - max(1.0, _number(first, "step")) * step_s
    return seconds if step_s and seconds > 0 else None


def _peaks(rows: Iterable[Row]) -> dict[str, int | None]:
    """The GPU's peaks only grow: what grew between two lines with an evaluation between them is the evaluation's."""
    training: int | None = None
    reserved: int | None = None
    seen, evaluated = 0, False
    for row in rows:
        evaluated = evaluated or any(name.startswith("eval_") for name in row)
        allocated = whole_in(row.get("peak_allocated_bytes"))
        if allocated is None:
            continue
        if allocated > seen and not evaluated:
            training = allocated
        reserved = whole_in(row.get("peak_reserved_bytes"))
        seen, evaluated = max(seen, allocated), False
    return {"peak_allocated_bytes": training, "peak_reserved_bytes": reserved if training == seen else None}


def _sampled(run: RunFolder) -> Peaks:
    """The most of what the keeper sampled."""
    peaks = Peaks()
    for row in _rows(run.system_jsonl):
        peaks.add(row)
    return peaks


def _rows(path: Path) -> list[dict[str, Any]]:
    """The last JSON objects of a file of lines; broken ones are left out."""
    return [*objects_from_the_end(path, TAIL_BYTES)][::-1]


# A benchmark: the steps of a run that was started to measure them, beside its plan.


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The measured steps; None is what could not be read. `planned_` figures are those of plan.json."""

    steps: int
    step_s: float
    """Median seconds of an optimizer step."""
    step_low_s: float
    step_high_s: float
    """10 and 90 % of the steps."""
    tokens_per_s: float | None = None
    """Of the inputs of all processes, padding included; of all measured steps together, as the one below."""
    real_tokens_per_s: float | None = None
    data_wait_share: float | None = None
    """Of the time of the steps, 0 to 1: the first process had no batch ready."""
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    """On the fullest device."""
    device_used_bytes: int | None = None
    """Of the run on the fullest card, by the driver's count."""
    host_ram_bytes: int | None = None
    """Resident memory of all processes of the run together, at its most; pages that they share count for each."""
    planned_step_s: float | None = None
    planned_step_low_s: float | None = None
    planned_step_high_s: float | None = None
    planned_tokens_per_s: float | None = None
    planned_basis: str | None = None
    planned_allocated_bytes: int | None = None
    planned_device_used_bytes: int | None = None
    planned_host_ram_bytes: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def is_benchmark(run: RunFolder) -> bool:
    """Whether the run was started to measure its steps."""
    choices = objects_in((read_json(run.plan_json) or {}).get("choices"))
    return any(choice.get("key") == "mode.benchmark_steps" for choice in choices)


def benchmark_of(run: RunFolder) -> Benchmark | None:
    """None for a run that has no step beyond those that warm up."""
    from trainwiz.core.config.modes import BENCHMARK_WARM_STEPS

    lines = [row for row in _rows(run.metrics_jsonl) if "loss" in row]
    warm = [line for line in lines if _number(line, "step") <= BENCHMARK_WARM_STEPS]
    measured = lines[len(warm) :]
    steps = steps_of([(_number(line, "step_s"), 1) for line in measured])
    if not steps:
        return None
    seconds = sum(_number(line, "step_s") for line in measured)
    waits = [wait for line in measured if (wait := numbers_finite(line.get("data_wait_s"))) is not None]
    before, last, peaks, plan = warm[-1] if warm else {}, measured[-1], _sampled(run), read_json(run.plan_json) or {}
    # Counts of metrics.jsonl are those since the start of the run.
    rates = {name: (_number(last, name) - _number(before, name)) / seconds for name in ("tokens", "real_tokens")}
    figures = {
        **{
            f"planned_{name}": value for part in ("memory", "time") for name, value in object_in(plan.get(part)).items()
        },
        **steps,
        **{f"{name}_per_s": rate for name, rate in rates.items()},
        "data_wait_share": min(1.0, sum(waits) / seconds) if waits else None,
        "peak_allocated_bytes": last.get("peak_allocated_bytes"),
        "peak_reserved_bytes": last.get("peak_reserved_bytes"),
        "device_used_bytes": max(peaks.peak_job_gpu_bytes.values(), default=None),
        "host_ram_bytes": peaks.peak_job_rss_bytes or None,
    }
    return read_object(Benchmark, figures)
