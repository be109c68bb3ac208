"""A finished run as a measurement, and as a benchmark of its plan."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.files import is_file
from trainwiz.core.hardware import host
from trainwiz.core.history.measurement import Measurement, cpu_key, measurement_of, steps_of
from trainwiz.core.lines import objects_from_the_end
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.state import RunState
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


def run_measurement(run: RunFolder, state: RunState) -> Measurement | None:
    """None for a run that says too little: it failed, was too short, or is not what was planned here."""
    planned = (read_json(run.plan_json) or {}).get(PLANNED)
    if not isinstance(planned, dict) or state.status not in ("finished", "stopped") or not _is_here(planned, state):
        return None
    if state.attempts and state.attempts[-1].changes:
        # With a smaller batch or fewer loader processes it is not what was planned.
        return None
    known, whole = _rows(run.metrics_jsonl)
    started_s = state.attempts[-1].started_s if state.attempts else 0.0
    rows = [row for row in known if _number(row, "time_s") >= started_s]
    lines = [row for row in rows if "loss" in row]
    steps = steps_of([(_number(line, "step_s"), int(count)) for line, count in _counted(lines)])
    if steps is None or (state.status == "stopped" and steps.count < FEWEST_STEPS):
        return None
    own = steps_of([(_number(line, "own_s"), int(count)) for line, count in _counted(lines)])
    ended = datetime.datetime.fromtimestamp(state.ended_s or 0.0).astimezone()
    return measurement_of(
        planned,
        {
            "measured_at": ended.isoformat(timespec="seconds"),
            "source": "run",
            **steps.to_json(),
            "tokens_per_step": _tokens_per_step(lines),
            "data_wait_s": _data_wait_s(lines),
            "own_step_s": own.median_s if own is not None else None,
            **({"start_s": _start_s(state, rows, lines), **_peaks(rows)} if whole else {}),
            # The fullest training process at its most, as the keeper sampled it.
            "host_rss_bytes": _sampled(run).peak_trainer_rss_bytes or None,
        },
    )


def record_run(run: RunFolder, state: RunState) -> None:
    """Add the run to the history where it says something. Raises OSError where the history cannot be written."""
    measurement = run_measurement(run, state)
    if measurement is not None:
        from trainwiz.core.history.measurement import append

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


def _number(row: Mapping[str, Any], name: str) -> float:
    return numbers_finite(row.get(name)) or 0.0


def _counted(lines: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], float]]:
    """Each line and how many steps it is of, but the first, which holds what every start holds."""
    for before, line in itertools.pairwise(lines):
        count = _number(line, "step") - _number(before, "step")
        if count > 0:
            yield line, count


def _data_wait_s(lines: list[dict[str, Any]]) -> float | None:
    """Mean over the counted steps, without the longest waits of a fiftieth of the lines.

    A mean, for what workers prepare comes in bursts: most steps wait for nothing, and some for several. One stall of a
    network drive is not what more workers would help against.
    """
    said = ((numbers_finite(line.get("data_wait_s")), count) for line, count in _counted(lines))
    waits = sorted((wait_s, count) for wait_s, count in said if wait_s is not None)
    counted = waits[: len(waits) - round(STALLS * len(waits))]
    steps = sum(count for _, count in counted)
    return sum(wait_s * count for wait_s, count in counted) / steps if steps else None


def _tokens_per_step(lines: list[dict[str, Any]]) -> float | None:
    """Mean over the counted steps of all processes."""
    if len(lines) < 2:
        return None
    tokens, steps = (_number(lines[-1], name) - _number(lines[0], name) for name in ("tokens", "step"))
    return tokens / steps if steps > 0 and tokens > 0 else None


def _start_s(state: RunState, rows: list[dict[str, Any]], lines: list[dict[str, Any]]) -> float | None:
    """From the launcher's start to the first step, and from the last line to the end.

    None where rows were evaluated before the first line, which says nothing of that time.
    """
    first, step_s = numbers_finite(lines[0].get("time_s")), numbers_finite(lines[0].get("step_s"))
    evaluated = any(name.startswith("eval_") for row in rows[: rows.index(lines[0])] for name in row)
    if first is None or step_s is None or evaluated or not state.attempts or state.ended_s is None:
        return None
    last = max(_number(row, "time_s") for row in rows)
    resumed = next((_number(row, "resumed_from") for row in rows if "resumed_from" in row), 0.0)
    done = max(1.0, (_number(lines[0], "step") or 1.0) - resumed)
    seconds = (first - done * step_s - state.attempts[-1].started_s) + max(0.0, state.ended_s - last)
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
        allocated = numbers_finite(row.get("peak_allocated_bytes"))
        if allocated is None:
            continue
        reserved = max(reserved or 0, int(_number(row, "peak_reserved_bytes")))
        if int(allocated) > seen and not evaluated:
            training = int(allocated)
        seen, evaluated = max(seen, int(allocated)), False
    grew = training is not None and seen > training
    return {
        "peak_allocated_bytes": training,
        "peak_reserved_bytes": None if grew else reserved,
        "evaluation_peak_bytes": seen if grew else None,
    }


def _sampled(run: RunFolder) -> Peaks:
    """The most of what the keeper sampled."""
    peaks = Peaks()
    for row in _rows(run.system_jsonl)[0]:
        peaks.add(row)
    return peaks


def _rows(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """The last JSON objects of a file of lines (broken ones are left out), and whether these are all of them."""
    rows = [*objects_from_the_end(path, TAIL_BYTES)]
    return rows[::-1], not is_file(path) or path.stat().st_size <= TAIL_BYTES


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The measured steps; None is what could not be read. `planned_` figures are those of plan.json."""

    steps: int
    step_s: float
    """Median seconds of an optimizer step."""
    step_low_s: float
    step_high_s: float
    """10 and 90 % of the steps."""
    tokens_per_s: float | None
    """Of the inputs of all processes, padding included; of all measured steps together, as the one below."""
    real_tokens_per_s: float | None
    data_wait_share: float | None
    """Of the time of the steps, 0 to 1: the first process had no batch ready."""
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    """On the fullest device."""
    device_used_bytes: int | None
    """Of the run on the fullest card, by the driver's count."""
    host_ram_bytes: int | None
    """Resident memory of all processes of the run together, at its most; pages that they share count for each."""
    planned_step_s: float | None
    planned_step_low_s: float | None
    planned_step_high_s: float | None
    planned_tokens_per_s: float | None
    planned_basis: str | None
    planned_allocated_bytes: int | None
    planned_device_used_bytes: int | None
    planned_host_ram_bytes: int | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def is_benchmark(run: RunFolder) -> bool:
    """Whether the run was started to measure its steps."""
    choices = objects_in((read_json(run.plan_json) or {}).get("choices"))
    return any(choice.get("key") == "mode.benchmark_steps" for choice in choices)


def benchmark_of(run: RunFolder) -> Benchmark | None:
    """None for a run that has no step beyond those that warm up."""
    from trainwiz.core.config.modes import BENCHMARK_WARM_STEPS

    lines = [row for row in _rows(run.metrics_jsonl)[0] if "loss" in row]
    measured = [line for line in lines if _number(line, "step") > BENCHMARK_WARM_STEPS]
    timed = [(seconds, 1) for line in measured if (seconds := numbers_finite(line.get("step_s")))]
    steps = steps_of(timed)
    if steps is None:
        return None
    whole_s = sum(seconds for seconds, _ in timed)
    waits = [wait for line in measured if (wait := numbers_finite(line.get("data_wait_s"))) is not None]
    peaks = _sampled(run)
    before: dict[str, Any] = next((line for line in reversed(lines) if line not in measured), {})
    return Benchmark(
        **steps.to_json(),
        tokens_per_s=_rate("tokens", before, measured[-1], whole_s),
        real_tokens_per_s=_rate("real_tokens", before, measured[-1], whole_s),
        data_wait_share=min(1.0, sum(waits) / whole_s) if waits else None,
        peak_allocated_bytes=whole_in(measured[-1].get("peak_allocated_bytes")),
        peak_reserved_bytes=whole_in(measured[-1].get("peak_reserved_bytes")),
        device_used_bytes=max(peaks.peak_job_gpu_bytes.values(), default=None),
        host_ram_bytes=peaks.peak_job_rss_bytes or None,
        **_planned(read_json(run.plan_json) or {}),
    )


def _rate(name: str, before: dict[str, Any], last: dict[str, Any], seconds: float) -> float | None:
    """Counts of metrics.jsonl are those since the start of the run."""
    end = numbers_finite(last.get(name))
    return None if end is None or seconds <= 0 else (end - _number(before, name)) / seconds


def _planned(plan: dict[str, Any]) -> dict[str, Any]:
    time, memory = object_in(plan.get("time")), object_in(plan.get("memory"))
    sizes, basis = ("allocated_bytes", "device_used_bytes", "host_ram_bytes"), time.get("basis")
    figures = ("step_s", "step_low_s", "step_high_s", "tokens_per_s")
    return {
        **{f"planned_{name}": numbers_finite(time.get(name)) for name in figures},
        "planned_basis": basis if isinstance(basis, str) else None,
        **{f"planned_{name}": whole_in(memory.get(name)) for name in sizes},
    }
