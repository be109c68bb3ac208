"""Plans made by hand, for what comes after planning."""

from typing import Any

from trainwiz.core.catalog.models import load_models
from trainwiz.core.config import RunConfig
from trainwiz.core.hardware import Machine
from trainwiz.core.plan.result import BatchPlan, MemoryPlan, Plan, PlannedModel, TimePlan

from tests.core.export.solved_config import solved_config


def plan_for(config: RunConfig) -> Plan:
    """A plan around a complete config, with round numbers."""
    batch = BatchPlan(2, 3, 1, 64, 6, 384, None, None, None, None)
    memory = MemoryPlan(
        tier="analytic", allocated_bytes=1 << 28, reserved_bytes=1 << 28, device_used_bytes=1 << 28, low_bytes=1 << 27,
        high_bytes=1 << 29, breakdown={"weights": 1 << 20}, peak_moment="backward", capacity_bytes=1 << 33,
        verdict="fits", host_ram_bytes=1 << 28, host_ram_capacity_bytes=1 << 33, host_ram_parts={},
        disk_bytes=1 << 20, disk_capacity_bytes=None, device="host RAM",
    )  # fmt: skip
    pace = {"step_s": 0.2, "step_low_s": 0.1, "step_high_s": 0.5, "steps": config.training.max_steps}
    time = TimePlan(**pace, total_s=float("inf"), evaluation_s=1.0, saving_s=0.5)
    model = PlannedModel(config.model.name, "EsmForMaskedLM", 1000, 1000)
    return Plan(Machine(), config, model, batch, memory, time)


def small_plan(**changes: Any) -> Plan:
    """A real little training on sample proteins; `changes` as in solved_config."""
    values = {"model__architecture": dict(load_models()["esm2-tiny"].architecture), "batch__sequence_length": 64}
    values |= {"data__validation_rows": 8, "logging__report_to": ["none"], **changes}
    return plan_for(solved_config(**values))
