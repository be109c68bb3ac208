"""The config of a probe, and what its processes are told: the plan's own settings without all that is not a step."""

from __future__ import annotations

from pathlib import Path

from trainwiz.core.config import RunConfig
from trainwiz.core.data.formats import format_of
from trainwiz.core.data.samples import sample_path
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.launch.probe_order import ProbeOrder, Rows
from trainwiz.core.plan.result import Plan

MOST_ACCUMULATION = 4
"""Micro-batches of a measured step; further ones only repeat."""
PATIENT_S = 4.0
"""A micro-batch that may take longer is accumulated twice only."""
NEVER = 1_000_000_000
MOST_ROWS = 200_000
MOST_BYTES = 256 * 1024**2
"""Of data that the probe reads whole, as training does; of more it takes the lengths."""
MEASURED_SHARE = 0.25
RAM_KEPT_FREE = 0.1


def measured_accumulation(plan: Plan) -> int:
    """Micro-batches of a measured step. A DeepSpeed file of the user's says its own number, which stays."""
    if plan.config.engine.deepspeed_file is not None:
        return plan.batch.accumulation
    batch, time = plan.batch, plan.time
    each = (time.step_high_s or 0.0) / batch.accumulation
    return min(batch.accumulation, MOST_ACCUMULATION if each < PATIENT_S else 2)


def probe_config(plan: Plan) -> RunConfig:
    """Weights from scratch, no evaluation, no checkpoint, no reports, and a run that ends only when it is told to."""
    values = {
        "model.init": "scratch",
        "batch.gradient_accumulation_steps": measured_accumulation(plan),
        "training.max_steps": NEVER,
        "checkpoint.every_steps": NEVER,
        "checkpoint.keep_best": False,
        "evaluation.every_steps": NEVER,
        "evaluation.every_epoch": False,
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


def in_turns(config: RunConfig) -> RunConfig:
    """The config of a probe whose losses are compared with another's: its first steps already move the weights."""
    return config.with_values({"training.warmup": 0, "training.schedule": "constant"}, "solved", {})


def probe_order(plan: Plan, data: DataSummary | None, *, ends_s: float, limit_s: float, search: bool) -> ProbeOrder:
    """`data` is what the plan was made from; None gives rows of full length."""
    work = plan.work
    assert work is not None
    pairs = work.architecture.kind == "encoder-decoder"
    free = plan.machine.ram_available_bytes - int(RAM_KEPT_FREE * plan.machine.ram_total_bytes)
    return ProbeOrder(
        ends_s=ends_s,
        accumulation=work.accumulation,
        micro_batch=work.micro_batch,
        length=work.length,
        target_length=work.target_length if pairs else 0,
        rows=rows_of(plan.config, data),
        lengths=data.lengths if data is not None else (),
        target_lengths=data.target_lengths if data is not None else (),
        measured_s=MEASURED_SHARE * limit_s,
        # Metal takes from the RAM of all programs, and does not say when it has enough.
        search=search and plan.config.engine.device != "mps",
        host_free_bytes=max(0, free) // max(1, work.world_size),
    )


def rows_of(config: RunConfig, data: DataSummary | None) -> Rows:
    """Small local data are read as they are; else their lengths are drawn from, where they are known."""
    if data is None or not data.rows:
        return "longest"
    small = max(data.rows + data.validation_rows, data.texts) <= MOST_ROWS and data.bytes_on_disk <= MOST_BYTES
    local = all(_is_local(source.name) for source in config.data.sources)
    if small and local:
        return "data"
    return "lengths" if data.lengths else "longest"


def _is_local(name: str) -> bool:
    return sample_path(name) is not None or format_of(Path(name)) is not None or Path(name).expanduser().exists()
