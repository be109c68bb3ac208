"""Time by roofline: a range, because uncalibrated runs reach 20 to 50 % of a card's peak."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from trainwiz.core.catalog.gpu import GpuSpec
from trainwiz.core.estimate.flops import forward_flops, kernels, micro_batch_flops, useful_flops
from trainwiz.core.estimate.workload import HALF, Workload
from trainwiz.core.plan.result import TimeVerdict

FAST_SHARE, SLOW_SHARE = 0.5, 0.2
"""Of the peak rate. Published runs reach 11 to 59 %; 20 to 50 % is what most of them do."""
LAUNCH_FAST_S, LAUNCH_SLOW_S = 5e-6, 12e-6
"""One kernel launch, alone and behind Python's dispatch."""
PCIE_FAST, PCIE_SLOW = 12e9, 6e9
"""Bytes a second between GPU and pinned host memory, PCIe 3.0 x16 in practice."""
HOST_ADAM_FAST, HOST_ADAM_SLOW = 1.5e9, 0.5e9
"""Parameters a second of DeepSpeed's vectorised CPU Adam on a desktop's memory bandwidth (28 bytes each)."""
CPU_CORE_PEAK = 96e9
"""fp32 FLOP/s of one core with AVX2 at 3 GHz: 2 FMA x 8 lanes x 2 = 32 a cycle (twice that with AVX-512)."""
CPU_FAST, CPU_SLOW = 60e9, 15e9
"""FLOP/s that one core reaches in training: small ESM-2 models measured 42 to 75e9 on a 2024 server core; a
hyper-thread, an older core or a busy machine does far less."""
CPU_FAST_SCALING, CPU_SLOW_SCALING = 0.9, 0.5
"""Exponent of the thread count: the matrices of small models keep few threads busy."""
CPU_STEP_FAST_S, CPU_STEP_SLOW_S = 0.004, 0.03
"""Trainer, logging and loader for one step on a CPU."""
START_FAST_S, START_SLOW_S = 6.0, 30.0
"""Launcher, imports, model and data before the first step, and closing after the last one: 7 s on a quiet machine,
17 to 24 s on one whose cores are wanted twice over."""
DEEPSPEED_FAST_S, DEEPSPEED_SLOW_S = 2.0, 20.0
"""What DeepSpeed adds: its imports and kernels (10 to 16 s where the cores are busy; their first build takes longer)."""
DISK_FAST, DISK_SLOW = 1.5e9, 0.25e9
"""Bytes a second of writing a checkpoint: NVMe and a busy SATA disk."""
IMPLAUSIBLE_SHARE, IDLE_SHARE = 0.65, 0.08


@dataclass(frozen=True, slots=True)
class Rate:
    """What the device does at best: FLOP/s in the run's format, and memory bandwidth in bytes/s."""

    flops: float
    bandwidth: float
    fast_share: float = FAST_SHARE
    slow_share: float = SLOW_SHARE


@dataclass(frozen=True, slots=True)
class Range:
    """Seconds: at best, likely, and at worst."""

    low: float
    high: float

    @property
    def likely(self) -> float:
        """The geometric mean: rates are uncertain by a factor."""
        return sqrt(self.low * self.high)

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> Range:
        return Range(self.low * factor, self.high * factor)


@dataclass(frozen=True, slots=True)
class StepTime:
    """One optimizer step; `fraction_of_peak` is what the likely time means for the device."""

    step: Range
    fraction_of_peak: float
    verdict: TimeVerdict


def gpu_rate(spec: GpuSpec, precision: str, tf32: bool) -> Rate:
    """Peak of one card in the format of the matrix products; a format that it lacks runs at its fp32 rate."""
    match precision:
        case "fp16":
            flops = spec.fp16_flops
        case "bf16" | "bf16-true":
            flops = spec.bf16_flops
        case "tf32":
            flops = spec.tf32_flops
        case _:
            flops = spec.tf32_flops if tf32 else None
    return Rate(flops or spec.fp32_flops, spec.bandwidth_bytes_per_s)


def cpu_rate(threads: int) -> Rate:
    """Of one process with this many threads."""
    threads = max(1, threads)
    fast, slow = CPU_FAST * threads**CPU_FAST_SCALING, CPU_SLOW * threads**CPU_SLOW_SCALING
    peak = CPU_CORE_PEAK * threads
    return Rate(peak, 20e9, fast / peak, slow / peak)


def step_time(work: Workload, rate: Rate) -> StepTime:
    """One optimizer step of one process (all processes work alike)."""
    on_cpu = work.device == "cpu"
    flops = micro_batch_flops(work)
    floor = Range(0.0, 0.0) if on_cpu else Range(kernels(work) * LAUNCH_FAST_S, kernels(work) * LAUNCH_SLOW_S)
    compute = Range(flops / (rate.fast_share * rate.flops), flops / (rate.slow_share * rate.flops))
    micro = Range(max(compute.low, floor.low), max(compute.high, floor.high))
    step = micro.times(work.accumulation) + _optimizer(work, rate) + _offload(work) + _communication(work)
    if on_cpu:
        step = step + Range(CPU_STEP_FAST_S, CPU_STEP_SLOW_S)
    share = useful_flops(work) * work.accumulation / (step.likely * rate.flops)
    return StepTime(step, share, verdict_of(share, on_cpu))


def verdict_of(share: float, on_cpu: bool = False) -> TimeVerdict:
    """What a share of the device's peak says about a pace."""
    if share > 1:
        return "impossible"
    if share > IMPLAUSIBLE_SHARE and not on_cpu:
        return "implausible"
    return "idle" if share < IDLE_SHARE and not on_cpu else "plausible"


def share_of_peak(work: Workload, rate: Rate, tokens_per_s: float) -> float:
    """What a claimed pace (input tokens a second over all processes) asks of each device."""
    each = useful_flops(work) / work.tokens
    return each * tokens_per_s / (rate.flops * work.world_size)


def _optimizer(work: Workload, rate: Rate) -> Range:
    """AdamW reads weight, gradient and two moments and writes three of them: about 28 bytes a parameter."""
    if work.offload != "none":
        return Range(0.0, 0.0)
    moved = 28.0 * work.trainable_parameters
    return Range(moved / rate.bandwidth, 3 * moved / rate.bandwidth)


def _offload(work: Workload) -> Range:
    """PCIe for each micro-batch, and the step on the CPU.

    DeepSpeed sends each micro-batch's gradients to the host and, when it adds them up, fetches the
    sum and sends it back; each process does so with its own shard. At best all of it hides behind
    the backward pass but the last one. The host's memory is shared: its Adam takes as long for all.
    """
    if work.offload == "none":
        return Range(0.0, 0.0)
    gradients = HALF * work.trainable_parameters / work.world_size
    trips = 2 * work.accumulation - 1
    adam = Range(work.trainable_parameters / HOST_ADAM_FAST, work.trainable_parameters / HOST_ADAM_SLOW)
    back = Range(gradients / PCIE_FAST, gradients / PCIE_SLOW)
    return Range(gradients / PCIE_FAST, trips * gradients / PCIE_SLOW) + adam + back


def _communication(work: Workload) -> Range:
    """All-reduce of the gradients: 2 (N - 1) / N times their bytes over the slowest link (ring).

    Once a step, and with ZeRO-2 and 3, which keep shards of the sum, after each micro-batch. At best
    all of it hides behind the backward pass.
    """
    if work.world_size == 1:
        return Range(0.0, 0.0)
    element = work.formats.adapters if work.lora else work.formats.weights
    moved = 2.0 * (work.world_size - 1) / work.world_size * work.trainable_parameters * element
    rounds = work.accumulation if work.strategy in ("zero2", "zero3") else 1
    return Range(0.0, rounds * moved / PCIE_SLOW)


def evaluation_time(work: Workload, rate: Rate, rows: int) -> Range:
    """One pass over `rows` held-out rows: forward only, over all processes."""
    if rows <= 0:
        return Range(0.0, 0.0)
    work = work.with_micro_batch(work.eval_micro_batch or work.micro_batch)
    batches = -(-rows // (work.micro_batch * work.world_size))
    flops = forward_flops(work) * batches
    launches = 0.0 if work.device == "cpu" else batches * kernels(work) / 3
    return Range(
        max(flops / (rate.fast_share * rate.flops), launches * LAUNCH_FAST_S),
        max(flops / (rate.slow_share * rate.flops), launches * LAUNCH_SLOW_S),
    )


def start_time(work: Workload) -> Range:
    """From the start of the launcher to its end, without steps, evaluations and saving."""
    start = Range(START_FAST_S, START_SLOW_S)
    return start + Range(DEEPSPEED_FAST_S, DEEPSPEED_SLOW_S) if work.deepspeed else start


def saving_time(checkpoint_bytes: int) -> Range:
    return Range(checkpoint_bytes / DISK_FAST, checkpoint_bytes / DISK_SLOW)
