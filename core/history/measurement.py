"""Measurement: the pace and the peak of real steps on this machine, with all that they depend on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Measurement:
    """One probe or one finished run. Sizes as in a plan; None is what could not be read."""

    measured_at: str
    """Date and time, ISO 8601 with offset."""
    source: Literal["probe", "run"]
    machine: str
    """Key of the device: GPU name and memory, or processor and threads."""
    model: str
    """Digest of the architecture config."""
    model_name: str
    task: str
    micro_batch: int
    accumulation: int
    world_size: int
    length: int
    """Longest input in tokens that the plan counted with."""
    target_length: int
    precision: str
    attention: str
    checkpointing: bool
    optimizer: str
    strategy: str
    offload: str
    lora_rank: int
    lora_targets: tuple[str, ...]
    loss_chunk: int | None
    compiled: bool
    steps: int
    """Measured ones, the first ones left out."""
    step_s: float
    """Median seconds of an optimizer step."""
    step_low_s: float
    step_high_s: float
    """10 and 90 % of the steps."""
    tokens_per_step: float | None = None
    """Tokens a step that were computed, padding included: the mean of the measured steps."""
    start_s: float | None = None
    """Seconds of a run that no step took: imports, model, data, closing."""
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    device_used_bytes: int | None = None
    """By nvidia-smi's count, of this process."""
    host_rss_bytes: int | None = None
    """Of one training process and its loader workers, at its most."""
    largest_micro_batch: int | None = None
    """The largest that fit, where it was looked for."""
    versions: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Measurement:
        """Unknown keys of a newer version are left out. TypeError or KeyError for what is no measurement."""
        known = {one.name for one in fields(cls)}
        kept = {key: value for key, value in values.items() if key in known}
        return cls(**{**kept, "lora_targets": tuple(kept["lora_targets"])})
