"""Measurement: the pace and the peak of real steps, and which measurements speak for a workload."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import platformdirs
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.files import append_line, is_file
from trainwiz.core.hardware.machine import Gpu, Machine, Rates
from trainwiz.core.lines import objects_from_the_end
from trainwiz.core.run.folder import write_atomic

if TYPE_CHECKING:
    from trainwiz.core.config import RunConfig


def steps_of(timed: Sequence[tuple[float, int]]) -> dict[str, Any]:
    """`steps`, `step_s`, `step_low_s` and `step_high_s` of a Measurement, from (mean seconds of a step, how many steps it is
    the mean of); empty without any."""
    known = sorted((seconds, count) for seconds, count in timed if seconds > 0 and count > 0)
    ends = list(accumulate(count for _, count in known))
    if not ends:
        return {}

    def at(share: float) -> float:
        return known[bisect_left(ends, share * ends[-1])][0]

    return {"steps": ends[-1], "step_s": at(0.5), "step_low_s": at(0.1), "step_high_s": at(0.9)}


# Keys of devices: what a measurement was made on, and whether it counts for the devices of a plan.

GIB = 1024**3


def gpu_key(device: str, gpu: Gpu) -> str:
    """ "cuda:NVIDIA GeForce RTX 3080:10 GiB". Two cards of one kind are alike."""
    memory = "unknown memory" if gpu.memory_total_bytes is None else f"{round(gpu.memory_total_bytes / GIB)} GiB"
    return f"{device}:{gpu.name or 'unknown GPU'}:{memory}"


def cpu_key(model: str | None, cores: int) -> str:
    """ "cpu:AMD EPYC 7763:8 cores". The cores are those that trainwiz may use."""
    return f"cpu:{model or 'unknown processor'}:{cores} cores"


def device_key(machine: Machine, device: str, gpus: Sequence[Gpu] = ()) -> str | None:
    """The key of what a run computes on: `device` is "cuda", "mps" or "cpu", `gpus` the chosen cards.

    None where one key would not say it: no card, or cards of several kinds.
    """
    if device == "cpu":
        return cpu_key(machine.cpu_model, machine.cpu_cores)
    keys = {gpu_key(device, gpu) for gpu in gpus}
    return keys.pop() if len(keys) == 1 else None


def keys_of(machine: Machine) -> frozenset[str]:
    """Keys of everything that this machine can compute on; none for a machine that is only planned."""
    if machine.hypothetical:
        return frozenset()
    keys = {gpu_key(machine.accelerator, gpu) for gpu in machine.gpus}
    return frozenset({cpu_key(machine.cpu_model, machine.cpu_cores), *keys})


def short_name(key: str) -> str:
    """For a sentence: "NVIDIA GeForce RTX 3080"."""
    return key.split(":")[1]


# Measurement: the pace and the peak of real steps on this machine, with all that they depend on.

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
    """Seconds to the first step of a run: imports, model, data."""
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
    largest_note: str = ""
    """What ended the search for the largest micro-batch."""
    padded: bool | None = None
    """As in a Workload, like the three below it; None in lines that say nothing of it, which match either."""
    lora_dropout: bool | None = None
    label_smoothing: bool | None = None
    clipping: bool | None = None
    tf32: bool | None = None
    """TF32 matrix products on a GPU for what is in fp32."""
    base_precision: str = "none"
    """Of the frozen base of adapters."""
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
    own_step_s: float | None = None
    """Of a step on a CPU, the seconds in which its thread had a core: what it takes on a machine with nothing else to do."""
    config: str = ""
    """The model's config (Workload.model_config): by it other models are compared; "" in older lines."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def day(self) -> str:
        """ "2026-11-21"."""
        return self.measured_at[:10]

    def is_sound(self) -> bool:
        """The numbers are those of a step: what a file says may be anything."""
        numbers = [value for value in asdict(self).values() if isinstance(value, int | float)]
        return (
            all(0 <= value < MOST for value in numbers)
            and min(self.micro_batch, self.accumulation, self.world_size, self.length, self.steps) > 0
            and 0 < self.step_low_s <= self.step_s <= self.step_high_s
            and _is_date(self.measured_at)
        )


def measurement_of(planned: dict[str, Any], measured: dict[str, Any]) -> Measurement | None:
    """Both put together, without unknown keys of a newer version; None where they do not make a sound measurement."""
    try:
        found: Measurement = _reader().validate_json(json.dumps({**planned, **measured}), strict=True)
    except (TypeError, ValueError):
        return None
    return found if found.is_sound() else None


@cache
def _reader() -> Any:
    from pydantic import TypeAdapter  # takes a tenth of a second

    return TypeAdapter(Measurement)


def _is_date(value: str) -> bool:
    """It is shown, so no escape code may stand where ISO 8601 lets any character separate date and time."""
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return value.isprintable()


# Which measurements speak for a workload: the very same work, or the same model in another batch.

MOST_COUNTED_ACCUMULATION = 2
"""The memory of a step is the same from the second micro-batch on."""


def text_digest(text: str) -> str:
    """Name in the history of what this text describes: a model by its config (Workload.model_config), or rows."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def data_digest(config: RunConfig) -> str:
    """Name of the rows of a run, by where they come from and how they are read."""
    data, sources = config.data, [source.model_dump() for source in config.data.sources]
    known = [sources, data.min_characters, data.max_characters, data.concatenate, bool(data.streaming)]
    return text_digest(json.dumps(known, default=str))


def of_devices(
    measurements: Iterable[Measurement],
    machine: Machine,
    device: str,
    gpus: Sequence[Gpu],
    threads: int | None = None,
    tf32: bool | None = None,
) -> tuple[Measurement, ...]:
    """Those made on the devices that a plan chose; where given, with as many CPU `threads` for each process, or with
    or without `tf32` on a GPU, which are another pace. Order is kept."""
    key = device_key(machine, device, gpus)
    return tuple(
        measured
        for measured in measurements
        if measured.machine == key
        # Of a GPU no measurement has threads, of a CPU none TF32.
        and (threads is None or measured.threads in (None, threads))
        and (tf32 is None or measured.tf32 in (None, tf32))
    )


def rates_for(
    kept: Sequence[Rates], machine: Machine, device: str, gpus: Sequence[Gpu], threads: int | None
) -> Rates | None:
    """Those of the devices that a plan chose, with as many CPU threads; None where there are none."""
    wanted = device_key(machine, device, gpus), threads if device == "cpu" else None
    return next((rates for rates in kept if (rates.device, rates.threads) == wanted), None)


def same_kind(measurement: Measurement, work: Workload) -> bool:
    """Another model, or the same, by the same kernels on the same kind of device: its pace over its formula says
    something of this one's."""
    return bool(measurement.config) and _same_way(measurement, work)


def same_model(measurement: Measurement, work: Workload) -> bool:
    """The same model trained in the same way on the same kind of device; batch, lengths and checkpointing may differ."""
    return (
        bool(work.model_config)
        and measurement.model == text_digest(work.model_config)
        and _same(measurement, work, "task lora_targets")
        and _same_way(measurement, work)
    )


def same_work(measurement: Measurement, work: Workload) -> bool:
    """The very same settings, as far as memory goes: more than two accumulated micro-batches count as two."""
    accumulated = {min(each.accumulation, MOST_COUNTED_ACCUMULATION) for each in (measurement, work)}
    return (
        len(accumulated) == 1
        and measurement.target_length == (work.target_length if work.architecture.kind == "encoder-decoder" else 0)
        and _same(measurement, work, "micro_batch length checkpointing optimizer lora_rank loss_chunk")
        and _same(measurement, work, "padded lora_dropout label_smoothing clipping", may_be_silent=True)
        and same_model(measurement, work)
    )


def _same_way(measurement: Measurement, work: Workload) -> bool:
    return (
        measurement.machine.startswith(f"{work.device}:")
        and _same(measurement, work, "precision base_precision attention strategy offload world_size")
        and (measurement.lora_rank > 0) == work.lora
    )


def _same(measurement: Measurement, work: Workload, names: str, *, may_be_silent: bool = False) -> bool:
    said = ((getattr(measurement, name), getattr(work, name)) for name in names.split())
    return all(mine == its or (may_be_silent and mine is None) for mine, its in said)


def same_step(measurement: Measurement, work: Workload) -> bool:
    """The very same settings for time too: as many micro-batches in a step."""
    return measurement.accumulation == work.accumulation and same_work(measurement, work)


# The history of this user's measurements: JSON lines in the data folder.


MOST_BYTES = 2 * 1024**2
"""Beyond, the older half is dropped."""


def history_path() -> Path:
    """`~/.local/share/trainwiz/history.jsonl` on Linux; it need not exist."""
    return Path(platformdirs.user_data_dir("trainwiz")) / "history.jsonl"


def load(machine: Machine) -> tuple[Measurement, ...]:
    """What was measured on this machine, last written first; () for a machine that is only planned.

    The dates would not order them: clocks are set, and offsets change.

    A history that cannot be read counts as empty: lines that are broken or of a newer kind are left out.
    """
    keys = keys_of(machine)
    if not keys:
        return ()
    found = (measurement_of(document, {}) for document in objects_from_the_end(history_path(), 2 * MOST_BYTES))
    return tuple(one for one in found if one is not None and one.machine in keys)


def append(measurement: Measurement) -> None:
    """Add one measurement. Raises OSError where it cannot be written."""
    path = history_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    if is_file(path) and path.stat().st_size > MOST_BYTES:
        # A line that another program writes at this very moment is lost: it measures again.
        kept = list(objects_from_the_end(path, MOST_BYTES // 2))
        write_atomic(path, "".join(f"{json.dumps(document)}\n" for document in reversed(kept)))
    append_line(path, json.dumps(measurement.to_json(), ensure_ascii=False, allow_nan=False).encode())
