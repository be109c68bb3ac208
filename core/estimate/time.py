"""Time by roofline: a range, because uncalibrated runs reach very different shares of a card's peak."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from trainwiz.core.catalog.gpu import GpuSpec
from trainwiz.core.estimate.flops import Cost, cost_of, forward_cost, useful_flops
from trainwiz.core.estimate.traffic import exchanged_bytes
from trainwiz.core.estimate.verdicts import TimeVerdict
from trainwiz.core.estimate.workload import SINGLE, Workload

IMPLAUSIBLE_SHARE, IDLE_SHARE = 0.65, 0.08
FAST_SHARE, SLOW_SHARE = IMPLAUSIBLE_SHARE, 0.2
"""Of the peak rate, by what is really computed (recomputation included). The fast end rests on no measurement. It was
50 % before published paces were looked at, most of which are at 20 to 50 %. The verdict counts no operation twice, so that a
run that computes some again can be plausible and faster than the range; moved bytes and launches, counted apart, slow small
work down below either end."""
FAST_BANDWIDTH, SLOW_BANDWIDTH = 2.0, 0.6
"""Of the memory's bandwidth, by the bytes that operations read and write one after the other. Caches answer a part of
them, on large cards half and more; small tensors do not fill the bus."""
OVERLAPPED_SHARE = 0.5
"""Of the peak rate in products alone, at worst, where moving bytes is counted beside them."""
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
NVLINK = 50e9
"""Bytes a second between two cards of a board with NVLink (SXM), at worst."""
CARDS_OF_A_BOARD = 8


@dataclass(frozen=True, slots=True)
class Rate:
    """What the device does at best: FLOP/s in the run's format, and memory bandwidth in bytes/s."""

    flops: float
    bandwidth: float
    fast_share: float = FAST_SHARE
    slow_share: float = SLOW_SHARE
    link: float = PCIE_SLOW
    """Bytes a second between two processes at worst."""
    network: float | None = None
    """Bytes a second out of one machine at worst; None where all processes are on one."""


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
    link = NVLINK if "SXM" in spec.name else PCIE_SLOW
    return Rate(flops or spec.fp32_flops, spec.bandwidth_bytes_per_s, link=link)


def cpu_rate(threads: int) -> Rate:
    """Of one process with this many threads."""
    threads = max(1, threads)
    fast, slow = CPU_FAST * threads**CPU_FAST_SCALING, CPU_SLOW * threads**CPU_SLOW_SCALING
    peak = CPU_CORE_PEAK * threads
    return Rate(peak, 20e9, fast / peak, slow / peak)


def step_time(work: Workload, rate: Rate, cost: Cost | None = None) -> StepTime:
    """One optimizer step of one process (all processes work alike); `cost` of a micro-batch where it was traced."""
    on_cpu = work.device == "cpu"
    micro = _micro_batch(cost if cost is not None else cost_of(work), rate, on_cpu)
    step = micro.times(work.accumulation) + _optimizer(work, rate) + _offload(work) + _communication(work, rate)
    if on_cpu:
        step = step + Range(CPU_STEP_FAST_S, CPU_STEP_SLOW_S)
    share = useful_flops(work) * work.accumulation / (step.likely * rate.flops)
    return StepTime(step, share, verdict_of(share, on_cpu))


def _micro_batch(cost: Cost, rate: Rate, on_cpu: bool) -> Range:
    """The longest of computing, moving bytes and launching; at worst the first two do not overlap."""
    low, high = cost.flops / (rate.fast_share * rate.flops), cost.flops / (rate.slow_share * rate.flops)
    if on_cpu:
        return Range(low, high)
    moved = cost.moved_bytes / rate.bandwidth
    apart = cost.flops / (OVERLAPPED_SHARE * rate.flops) + moved / SLOW_BANDWIDTH
    return Range(
        max(low, moved / FAST_BANDWIDTH, cost.kernels * LAUNCH_FAST_S), max(high, apart, cost.kernels * LAUNCH_SLOW_S)
    )


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

    As DeepSpeed 0.19 does it (runtime/zero/stage_1_and_2.py, copy_grads_in_partition; stage3.py, partition_grads):
    each process moves its own shard. Where several micro-batches are added up, the first one's gradients go to
    the host, and each further one fetches the sum, adds to it on the GPU and sends it back, the last one too.
    After the last one the sum goes to the host once more, in fp32 for the master weights. After the step the new
    weights come back. With `grad_accum_dtype: fp32` ZeRO-2 sums on the GPU instead and moves only the last two
    (`_use_compact_grad_partition_buffer`); older versions do not, hence both ends of the range. The host's memory is
    shared: its Adam takes as long for all. With everything offloaded (ZeRO-3) each forward and each backward pass
    fetches the weights.
    """
    if work.offload == "none":
        return Range(0.0, 0.0)
    shard = work.trainable_parameters / work.world_size
    element = work.formats.adapters if work.lora else work.formats.weights
    trips = 2 * work.accumulation - 1 if work.accumulation > 1 else 0
    hidden = trips * element * shard
    if work.offload == "all":
        hidden += 2 * work.accumulation * work.formats.weights * work.architecture.parameters / work.world_size
    seen = (SINGLE + element) * shard
    adam = Range(work.trainable_parameters / HOST_ADAM_FAST, work.trainable_parameters / HOST_ADAM_SLOW)
    return Range(seen / PCIE_FAST, (seen + hidden) / PCIE_SLOW) + adam


def _communication(work: Workload, rate: Rate) -> Range:
    """Gradients and sharded weights over the slowest link, (N - 1) / N times their bytes for each collective (ring).

    At best all of it hides behind the computation.
    """
    if work.world_size == 1:
        return Range(0.0, 0.0)
    link = rate.link if work.world_size <= CARDS_OF_A_BOARD else PCIE_SLOW
    if rate.network is not None:
        link = min(link, rate.network)
    return Range(0.0, (work.world_size - 1) / work.world_size * exchanged_bytes(work) / link)


def evaluation_time(work: Workload, rate: Rate, rows: int) -> Range:
    """One pass over `rows` held-out rows: forward only, over all processes."""
    if rows <= 0:
        return Range(0.0, 0.0)
    work = work.with_micro_batch(work.eval_micro_batch or work.micro_batch)
    batches = -(-rows // (work.micro_batch * work.world_size))
    return _micro_batch(forward_cost(work), rate, work.device == "cpu").times(batches)


def start_time(work: Workload) -> Range:
    """From the start of the launcher to its end, without steps, evaluations and saving."""
    start = Range(START_FAST_S, START_SLOW_S)
    return start + Range(DEEPSPEED_FAST_S, DEEPSPEED_SLOW_S) if work.deepspeed else start


def saving_time(checkpoint_bytes: int) -> Range:
    return Range(checkpoint_bytes / DISK_FAST, checkpoint_bytes / DISK_SLOW)
