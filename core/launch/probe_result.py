"""ProbeResult: what the lines of a probe say."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainwiz.core.history.measurement import Measurement, measurement_of
from trainwiz.core.history.pace import Steps, steps_of
from trainwiz.core.language import tr
from trainwiz.core.launch.probe_order import ProbeOrder, Rows
from trainwiz.core.numbers import finite

ONLY_WARM = 2.0
"""Factor by which a step may differ that was measured once, as the first one."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One micro-batch that was tried."""

    micro_batch: int
    fits: bool
    allocated_bytes: int | None
    seconds: float | None
    """Of its trial: up to two micro-batches of full length and a step of the optimizer."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One probe. `measurement` is None where no step was measured."""

    measurement: Measurement | None
    rows: Rows
    """What the batches were made from."""
    rows_note: str
    """Why that is not what was asked for."""
    planned_fits: bool | None
    """Whether the micro-batch of the plan fitted; None where no step was done."""
    trials: tuple[Trial, ...]
    searched: bool
    problem: str
    """What ended the probe before its time; empty where nothing did."""
    seconds: float
    """The whole probe, its start included."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def probe_result(
    order: ProbeOrder,
    planned: Mapping[str, Any],
    lines: Iterable[Mapping[str, Any]],
    started_s: float,
    ended_s: float,
    problem: str = "",
) -> ProbeResult:
    """`lines` of probe.jsonl, `planned` the fields of the measurement that the plan knows; times on the monotonic clock."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        kinds.setdefault(str(line.get("event")), []).append(line)
    steps = kinds.get("step", [])
    warm = kinds.get("warm", [])
    micro_batch = next((int(line["micro_batch"]) for line in reversed([*warm, *steps])), None)
    trials = tuple(
        Trial(int(line["micro_batch"]), bool(line["fits"]), line.get("allocated_bytes"), finite(line.get("seconds")))
        for line in kinds.get("trial", [])
    )
    largest = kinds.get("largest", [_so_far(trials)])[-1]
    memory = kinds.get("memory", [{}])[-1]
    rows = kinds.get("rows", [{}])[-1]
    measured = {
        "measured_at": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "source": "probe",
        "micro_batch": micro_batch,
        **_pace(order, steps, warm),
        "start_s": _start_s(kinds.get("ready", []), started_s),
        "peak_allocated_bytes": memory.get("allocated_bytes"),
        "peak_reserved_bytes": memory.get("reserved_bytes"),
        "device_used_bytes": memory.get("used_bytes"),
        "host_rss_bytes": memory.get("rss_bytes"),
        "loading_s": finite(kinds.get("loading", [{}])[-1].get("seconds")),
        "largest_micro_batch": largest.get("micro_batch"),
        "largest_note": str(largest.get("why") or ""),
    }
    return ProbeResult(
        measurement=measurement_of(dict(planned), measured) if micro_batch is not None else None,
        rows=rows.get("rows") or order.rows,
        rows_note=str(rows.get("why") or ""),
        planned_fits=None if micro_batch is None else micro_batch == order.micro_batch,
        trials=trials,
        searched=bool(largest),
        problem=problem,
        seconds=ended_s - started_s,
    )


def _so_far(trials: tuple[Trial, ...]) -> dict[str, Any]:
    """Of a search that had no time for its last word."""
    fitting = [trial.micro_batch for trial in trials if trial.fits]
    return {"micro_batch": max(fitting), "why": tr("the time was up")} if fitting else {}


def _pace(order: ProbeOrder, steps: list[Mapping[str, Any]], warm: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Of the measured steps; of the last step on the longest batch where there was no time for others."""
    found = steps_of([(finite(line.get("seconds")) or 0.0, 1) for line in steps])
    if found is not None:
        tokens = [value for line in steps if (value := finite(line.get("tokens"))) is not None]
        return {**_of(found), "tokens_per_step": sum(tokens) / len(tokens) if tokens else None}
    seconds = finite(warm[-1].get("seconds")) if warm else None
    if seconds is None:
        return {}
    once = Steps(1, seconds, seconds / ONLY_WARM, seconds * ONLY_WARM)
    return {**_of(once), "usual_length": order.length, "usual_target_length": order.target_length or None}


def _of(steps: Steps) -> dict[str, Any]:
    return {
        "steps": steps.count,
        "step_s": steps.median_s,
        "step_low_s": steps.low_s,
        "step_high_s": steps.high_s,
    }


def _start_s(ready: list[Mapping[str, Any]], started_s: float) -> float | None:
    said = finite(ready[0].get("time_s")) if ready else None
    return None if said is None else max(0.0, said - started_s)
