"""Measurement: the pace and the peak of real steps on this machine, with all that they depend on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any, Literal

MOST = 1 << 60
"""Of bytes, tokens or seconds: a file that says more is broken, and arithmetic with it may overflow."""


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
    """Of one training process, the fullest, at its most; its loader workers, which share pages with it, are not in it."""
    largest_micro_batch: int | None = None
    """The largest that fit, where it was looked for."""
    versions: dict[str, str] = field(default_factory=dict)
    threads: int | None = None
    """CPU threads of one process, where the CPU computes; None on a GPU."""
    usual_length: int | None = None
    """Tokens of a usual batch's rows, as the plan's time was computed with; None: `length`."""
    usual_target_length: int | None = None
    evaluation_peak_bytes: int | None = None
    """Allocated at most while held-out rows were evaluated or text was generated, where that was more than training."""
    largest_note: str = ""
    """What ended the search for the largest micro-batch."""
    padded: bool | None = None
    """As in a Workload, like the three below it; None in lines that say nothing of it, which match either."""
    lora_dropout: bool | None = None
    label_smoothing: bool | None = None
    clipping: bool | None = None
    tf32: bool | None = None
    """TF32 matrix products on a GPU for what is in fp32."""
    packed: bool | None = None
    """Rows end to end (data.packing); lines that say nothing of it are of rows that were padded."""
    data: str = ""
    """Digest of the sources of the rows; "" in lines that say nothing of them."""
    workers: int | None = None
    """Loader workers of each process."""
    prefetch: int | None = None
    """Batches that each worker keeps ready."""
    data_wait_s: float | None = None
    """Mean seconds of a step in which the first process had no batch; of a run alone, for the steps of a probe begin
    with full buffers."""
    loading_s: float | None = None
    """Mean seconds in which one process makes one micro-batch, where a probe measured it."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def day(self) -> str:
        """ "2026-11-21"."""
        return self.measured_at[:10]

    def is_sound(self) -> bool:
        """Every value has its type, and the numbers are those of a step: what a file says may be anything."""
        counts = (self.micro_batch, self.accumulation, self.world_size, self.length, self.steps)
        optional_counts = (self.loss_chunk, self.largest_micro_batch, self.threads, self.workers, self.prefetch)
        lengths = (self.usual_length, self.usual_target_length)
        sizes = (self.peak_allocated_bytes, self.peak_reserved_bytes, self.device_used_bytes)
        more_sizes = (self.host_rss_bytes, self.evaluation_peak_bytes)
        known = [one for one in (*optional_counts, *lengths, *sizes, *more_sizes) if one is not None]
        choices = (self.padded, self.lora_dropout, self.label_smoothing, self.clipping, self.tf32, self.packed)
        seconds = (self.tokens_per_step, self.start_s, self.data_wait_s, self.loading_s)
        words = (self.machine, self.model, self.task, self.precision, self.attention, self.strategy, self.data)
        return (
            all(_is_count(value) and value > 0 for value in counts)
            and all(_is_count(value) for value in (self.target_length, self.lora_rank, *known))
            and all(is_number(value) and value > 0 for value in (self.step_s, self.step_low_s, self.step_high_s))
            and self.step_low_s <= self.step_s <= self.step_high_s
            and all(value is None or is_number(value) for value in seconds)
            and all(isinstance(value, bool) for value in (self.checkpointing, self.compiled))
            and all(value is None or isinstance(value, bool) for value in choices)
            and all(isinstance(value, str) for value in (*words, self.optimizer, self.offload, self.model_name))
            and all(isinstance(value, str) for value in self.lora_targets)
            and self.source in ("probe", "run")
            and is_date(self.measured_at)
        )

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Measurement:
        """Unknown keys of a newer version are left out. TypeError or KeyError for what is no measurement."""
        known = {one.name for one in fields(cls)}
        kept = {key: value for key, value in values.items() if key in known}
        return cls(**{**kept, "lora_targets": tuple(kept["lora_targets"])})


def measurement_of(planned: dict[str, Any], measured: dict[str, Any]) -> Measurement | None:
    """Both put together; None where they do not make a sound measurement."""
    known = {one.name for one in fields(Measurement)}
    try:
        found = Measurement.from_json({key: value for key, value in {**planned, **measured}.items() if key in known})
    except (TypeError, KeyError):
        return None
    return found if found.is_sound() else None


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MOST


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and is_number(value)


def is_date(value: Any) -> bool:
    """It is shown, so no escape code may stand where ISO 8601 lets any character separate date and time."""
    try:
        datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return str(value).isprintable()
