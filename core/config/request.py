"""PlanRequest: what a front end asks for, before anything is detected, read or solved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

RunMode = Literal["train", "smoke", "dev-run", "overfit", "benchmark"]


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The wizard, `trainwiz --yes` and `trainwiz plan` all build one of these and get the same plan."""

    profile: str | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    """RunConfig key path -> value, as the user gave it (typed values or strings from --set)."""
    mode: RunMode = "train"
    overfit_batches: int | None = None
    benchmark_steps: int | None = None
    trace_steps: int | None = None
    gpu: str | None = None
    """Plan for another machine: a name from the GPU catalogue."""
    num_gpus: int | None = None
    ram_bytes: int | None = None
    gpu_memory_bytes: int | None = None
    tflops: float | None = None
    """Dense half-precision rate of a GPU that is not in the catalogue."""
    capability: str | None = None
    """Compute capability of a GPU that is not in the catalogue, like "8.6"."""
    output_dir: str | None = None
    name: str | None = None
    force: bool = False
