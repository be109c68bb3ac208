"""What the processes of a probe are told, and what their lines say."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from trainwiz.core.config import RunConfig
from trainwiz.core.data.sources import is_of_the_hub
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.files import read_small
from trainwiz.core.history.measurement import Measurement, measurement_of, steps_of
from trainwiz.core.plan.result import Plan

# ProbeOrder: what the processes of a probe are told, and the lines that they answer with.

ORDER_JSON = "probe.json"
ANSWERS_JSONL = "probe.jsonl"
"""One JSON object a line, with its kind under `event`: see core/training/probe.py."""
TURN = "turn"
"""How many steps may be done in all, as a number: what a probe that is measured in turns waits for."""
ON_THE_LONGEST = 2
"""Steps of a probe before the clock starts: the first makes the optimizer's states, the second peaks with them."""

Rows = Literal["data", "lengths", "longest"]
"""Real rows; generated ones with the lengths of the data; generated ones, all of full length."""


@dataclass(frozen=True, slots=True)
class ProbeOrder:
    """Sizes in sequences, lengths in tokens."""

    ends_s: float
    """On the monotonic clock, which all processes of a machine share: when the probe must be over."""
    accumulation: int
    """Micro-batches of a step of the plan. The probe's own steps may have fewer."""
    micro_batch: int
    length: int
    """Of the longest batch, which memory is measured with."""
    target_length: int
    """0 where there is no text of its own to predict."""
    rows: Rows
    lengths: Sequence[int] = ()
    target_lengths: Sequence[int] = ()
    measured_s: float = 15.0
    """How long the clock runs on usual steps, at most."""
    search: bool = True
    """Look for the largest micro-batch."""
    in_turns: bool = False
    """Each step waits until the file TURN allows it; all steps are done at the plan's micro-batch, and none is the last."""

    def write(self, folder: Path) -> None:
        (folder / ORDER_JSON).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> ProbeOrder:
        """Raises OSError, ValueError or TypeError for what is no order."""
        return cls(**json.loads(read_small(folder / ORDER_JSON).decode()))


# The config of a probe, and what its processes are told: the plan's own settings without all that is not a step.

MOST_ACCUMULATION = 4
"""Micro-batches of a measured step; further ones only repeat."""
PATIENT_S = 4.0
"""A micro-batch that may take longer is accumulated twice only."""
NEVER = 1_000_000_000
MOST_ROWS = 200_000
MOST_BYTES = 256 * 1024**2
"""Of data that the probe reads whole, as training does; of more it takes the lengths."""
MEASURED_SHARE = 0.25


def measured_accumulation(plan: Plan) -> int:
    """Micro-batches of a measured step. A DeepSpeed file of the user's says its own number, which stays."""
    if plan.config.engine.deepspeed_file is not None:
        return plan.batch.accumulation
    batch = plan.batch
    each = (plan.time.step_high_s or 0.0) / batch.accumulation
    return min(batch.accumulation, MOST_ACCUMULATION if each < PATIENT_S else 2)


def probe_config(plan: Plan) -> RunConfig:
    """Weights from scratch (in 4 or 8 bits the model's own), no evaluation, no checkpoint, no reports, and a run that ends
    only when it is told to."""
    in_few_bits = plan.config.engine.base_precision in ("nf4", "int8")
    values = {
        "model.init": plan.config.model.init if in_few_bits else "scratch",
        "batch.gradient_accumulation_steps": measured_accumulation(plan),
        "training.max_steps": NEVER,
        "checkpoint.every_steps": NEVER,
        "checkpoint.keep_best": False,
        "evaluation.every_steps": NEVER,
        "evaluation.every_epoch": False,
        "evaluation.at_start": False,
        "evaluation.generate": False,
        "evaluation.metric": None,
        "logging.every_steps": NEVER,
        "logging.memory_every_steps": None,
        "logging.report_to": ["none"],
        "mode.kind": "train",
        "mode.overfit_batches": None,
        "mode.trace_steps": None,
    }
    return plan.config.with_values(values, "solved", {})


def probe_order(
    plan: Plan, data: DataSummary | None, seconds: float, *, search: bool = True, in_turns: bool = False
) -> ProbeOrder:
    """For a probe that begins now and takes `seconds`. `data` is what the plan was made from; None gives rows of full
    length."""
    work = plan.work
    assert work is not None
    pairs = work.architecture.kind == "encoder-decoder"
    return ProbeOrder(
        ends_s=time.monotonic() + seconds,
        accumulation=work.accumulation,
        micro_batch=work.micro_batch,
        length=work.length,
        target_length=work.target_length if pairs else 0,
        rows=rows_of(plan.config, data),
        lengths=list(data.lengths) if data is not None else [],
        target_lengths=list(data.target_lengths) if data is not None else [],
        measured_s=MEASURED_SHARE * seconds,
        # A CPU and Metal take from the RAM of all programs, and do not say when they have enough.
        search=search and not in_turns and plan.config.engine.device == "cuda",
        in_turns=in_turns,
    )


def rows_of(config: RunConfig, data: DataSummary | None) -> Rows:
    """Small local data are read as they are; else their lengths are drawn from, where they are known."""
    if data is None or not data.rows:
        return "longest"
    small = max(data.rows + data.validation_rows, data.texts) <= MOST_ROWS and data.bytes_on_disk <= MOST_BYTES
    if small and not any(is_of_the_hub(source.name, Path()) for source in config.data.sources):
        return "data"
    return "lengths" if data.lengths else "longest"


# ProbeResult: what the lines of a probe say.

OF_A_TRIAL = ("micro_batch", "fits", "allocated_bytes", "seconds")


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One probe. `measurement` is None where no step was measured."""

    measurement: Measurement | None
    rows: Rows
    """What the batches were made from."""
    rows_note: str
    """Why that is not what was asked for."""
    trials: tuple[Mapping[str, Any], ...]
    """Each micro-batch that was tried, by OF_A_TRIAL; its seconds are those of up to two micro-batches of full length
    and a step of the optimizer."""
    searched: bool
    problem: str
    """What ended the probe before its time; empty where nothing did."""
    seconds: float
    """The whole probe, its start included."""

    def to_json(self) -> dict[str, Any]:
        # The steps are those of the plan's own micro-batch.
        return {**asdict(self), "planned_fits": self.measurement is not None}


def probe_result(
    order: ProbeOrder,
    planned: Mapping[str, Any],
    lines: Iterable[Mapping[str, Any]],
    started_s: float,
    problem: str = "",
) -> ProbeResult:
    """`lines` of probe.jsonl, `planned` the fields of the measurement that the plan knows; times on the monotonic clock."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        kinds.setdefault(line["event"], []).append(line)
    last = {kind: found[-1] for kind, found in kinds.items()}
    rows, largest = last.get("rows", {}), last.get("largest", {})
    measured = {
        "measured_at": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "source": "probe",
        "micro_batch": order.micro_batch,
        **_pace(kinds.get("step", [])),
        **last.get("memory", {}),
        **last.get("loading", {}),
        "start_s": last["ready"]["time_s"] - started_s if "ready" in last else None,
        "largest_micro_batch": largest.get("micro_batch"),
        "largest_note": largest.get("why", ""),
    }
    return ProbeResult(
        measurement=measurement_of(dict(planned), measured),
        rows=rows.get("rows", order.rows),
        rows_note=rows.get("why", ""),
        trials=tuple({name: line.get(name) for name in OF_A_TRIAL} for line in kinds.get("trial", [])),
        searched=bool(largest),
        problem=problem,
        seconds=time.monotonic() - started_s,
    )


def _pace(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found = steps_of([(line["seconds"], 1) for line in steps])
    if not found:
        return {}
    own = steps_of([(line["own_s"], 1) for line in steps if "own_s" in line])
    tokens = sum(line["tokens"] for line in steps) / len(steps)
    return {**found, "tokens_per_step": tokens, "own_step_s": own.get("step_s")}
