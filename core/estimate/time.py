"""The time of a step: by roofline, by what was measured here, with compiling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log2, sqrt
from typing import Literal

from trainwiz.core.catalog.gpus import GpuSpec
from trainwiz.core.estimate.flops import (
    FORWARD,
    Cost,
    cost_of,
    exchanged_bytes,
    forward_cost,
    forward_flops,
    useful_flops,
)
from trainwiz.core.estimate.peak import cache_bytes_per_row
from trainwiz.core.estimate.traced import measured_text
from trainwiz.core.estimate.workload import SINGLE, TimeVerdict, Workload
from trainwiz.core.history.measurement import Measurement, same_model, same_step
from trainwiz.core.language import tr

# Time by roofline: a range, because uncalibrated runs reach very different shares of a card's peak.

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
    flops = {
        "fp16": spec.fp16_flops,
        "bf16": spec.bf16_flops,
        "bf16-true": spec.bf16_flops,
        "tf32": spec.tf32_flops,
    }.get(precision, spec.tf32_flops if tf32 else None)
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
    computed = _computed(cost.flops, rate)
    if on_cpu:
        return computed
    moved = cost.moved_bytes / rate.bandwidth
    apart = cost.flops / (OVERLAPPED_SHARE * rate.flops) + moved / SLOW_BANDWIDTH
    return Range(
        max(computed.low, moved / FAST_BANDWIDTH, cost.kernels * LAUNCH_FAST_S),
        max(computed.high, apart, cost.kernels * LAUNCH_SLOW_S),
    )


def _computed(flops: float, rate: Rate) -> Range:
    return Range(flops / (rate.fast_share * rate.flops), flops / (rate.slow_share * rate.flops))


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
    if work.quantized:
        # Every weight is read in 16 bits, whatever becomes of it; packing it is a fraction of that.
        start = start + saving_time(work.architecture.parameters * work.formats.weights)
    return start + Range(DEEPSPEED_FAST_S, DEEPSPEED_SLOW_S) if work.deepspeed else start


def saving_time(checkpoint_bytes: int) -> Range:
    return Range(checkpoint_bytes / DISK_FAST, checkpoint_bytes / DISK_SLOW)


# What torch.compile costs before it pays, as far as it was measured.

COMPILED_START = Range(2.0, 120.0)
"""Seconds that the first step takes longer. With the cache of an earlier run 3 s; without one 24 s (esm2-tiny, 4 layers) and 34 s
(esm2-35m, 12 layers) on 4 CPU cores, by `--benchmark 10` with and without engine.compile, torch 2.13. The upper end is
an assumption: more layers, and rows of other lengths, compile longer."""

COMPILING_HOST_BYTES = 6 * 2**30 // 10
"""More host RAM while it compiles, of all processes of one training process: 0.2 and 0.6 GiB in the same two runs."""


# Pace from measurements: what this machine did with the very same work, or with the same model in another batch.

BETWEEN_RUNS = {"cuda": 1.06, "mps": 1.10, "cpu": 1.15}
"""Factor by which a run may differ from the one before it on the same machine: clocks, heat, other programs."""
EACH_DOUBLING = 1.15
"""Factor for each doubling of the tokens of a micro-batch: larger matrices reach another share of the peak."""
OTHER_SETTINGS = 1.15
"""Factor where checkpointing, the optimizer or the loss differ: their cost is a formula's again."""
COMPARED = 5
"""Measurements of the very same work, the newest ones, whose disagreement widens the range."""
START_FACTOR = 1.5
"""Reading model and data is as fast as the disk's cache is warm."""


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One optimizer step by measurement. `step.likely` is the measured median, scaled where it must be."""

    step: Range
    basis: Literal["probe", "history"]
    text: str
    """ "measured here on 2026-11-21 (probe)"."""
    calibration: float | None
    """Measured over formula at the measured point; what else runs on the device may be scaled by it."""
    exact: bool
    """The very same settings were measured, with rows of such lengths."""


def measured_step(
    work: Workload, usual: Workload, measurements: Sequence[Measurement], rate: Rate | None
) -> MeasuredStep | None:
    """The step of `work`, or None where nothing like it was measured.

    `usual` is `work` at the lengths of a usual batch; `measurements` are of the plan's devices (of_devices),
    newest first. The very same settings give the measured 10 to 90 % of the steps, widened by what runs differ
    by. Otherwise the formula, scaled by measured over formula at the nearest measured point, and wider.
    `rate` None (a card of no catalogue) leaves only the very same settings, at other lengths in proportion to the tokens.
    """
    exact = [measurement for measurement in measurements if same_step(measurement, work)]
    exact = [measured for measured in exact if _same_lengths(measured, usual)] or exact
    near = exact or [measurement for measurement in measurements if same_model(measurement, work)]
    if not near or (rate is None and not exact):
        return None
    found = exact[0] if exact else min(near, key=lambda one: (_other_settings(one, work), abs(_doublings(one, usual))))
    like, formula = bool(exact) and _same_lengths(found, usual), None if rate is None else _then(found, usual, rate)
    scale = 1.0
    if not like:
        # A card of no catalogue has no formula: then a step takes as its tokens.
        tokens = 2.0 ** _doublings(found, usual)
        scale = tokens if rate is None or formula is None else step_time(usual, rate).step.likely / formula
    apart = (max(found.step_s / other.step_s, other.step_s / found.step_s) for other in exact[1:COMPARED])
    factor = max(_spread(found), BETWEEN_RUNS.get(work.device, 1.15), *apart)
    doublings = log2(scale) if exact else _doublings(found, usual)
    factor *= EACH_DOUBLING ** abs(doublings) * OTHER_SETTINGS ** _other_settings(found, work)
    text = measured_text(found.day, found.source)
    if not like:
        batch = f"{found.micro_batch} x {found.usual_length or found.length}"
        text = tr("scaled from {batch} {measured}", batch=batch, measured=text)
    seconds = found.step_s * scale
    # Even around the median, so that Range.likely (the geometric mean) is what was measured.
    step = Range(seconds / factor, seconds * factor)
    basis: Literal["probe", "history"] = "probe" if found.source == "probe" else "history"
    return MeasuredStep(step, basis, text, None if formula is None else found.step_s / formula, like)


def measured_start(work: Workload, measurements: Sequence[Measurement]) -> tuple[Range, str] | None:
    """Seconds of a run that no step takes (imports, model, data, closing), from whole runs of the same model."""
    runs = [one for one in measurements if one.source == "run" and one.start_s and same_model(one, work)]
    seconds = [one.start_s for one in runs[:COMPARED] if one.start_s]
    if not seconds:
        return None
    return Range(min(seconds) / START_FACTOR, max(seconds) * START_FACTOR), measured_text(runs[0].day, runs[0].source)


def _spread(measurement: Measurement) -> float:
    """Of the steps: the larger of 90 % over median and median over 10 %."""
    return max(measurement.step_high_s / measurement.step_s, measurement.step_s / measurement.step_low_s)


def _then(measurement: Measurement, usual: Workload, rate: Rate) -> float:
    """The formula's seconds for what was measured."""
    return step_time(_measured_work(measurement, usual), rate).step.likely


def _measured_work(measurement: Measurement, usual: Workload) -> Workload:
    return replace(
        usual,
        micro_batch=measurement.micro_batch,
        accumulation=measurement.accumulation,
        length=measurement.usual_length or measurement.length,
        target_length=measurement.usual_target_length or measurement.target_length or usual.target_length,
        checkpointing=measurement.checkpointing,
        optimizer=measurement.optimizer,
        lora_rank=measurement.lora_rank,
        loss_chunk=measurement.loss_chunk,
    )


def _same_lengths(measurement: Measurement, usual: Workload) -> bool:
    then = _measured_work(measurement, usual)
    return (then.length, then.target_length) == (usual.length, usual.target_length)


def _doublings(measurement: Measurement, usual: Workload) -> float:
    return log2(usual.tokens / _measured_work(measurement, usual).tokens)


def _other_settings(measurement: Measurement, work: Workload) -> int:
    """How many of checkpointing, optimizer, LoRA rank and loss slices differ."""
    names = ("checkpointing", "optimizer", "lora_rank", "loss_chunk")
    return sum(getattr(measurement, name) != getattr(work, name) for name in names)


# Time of generating text: token by token, each a pass over all weights.

KERNELS_A_LAYER = 45
"""Launches of one layer for one new position, the upkeep of its cache included."""
SEARCH_FAST_S, SEARCH_SLOW_S = 0.002, 0.010
"""Python's part of one position: stopping rules, scores, sorting the beams."""
SHORT_SHARE = 0.25
"""A batch ends with its longest text, which may come long before the limit."""


def generation_time(work: Workload, rate: Rate, rows: int, likely_length: int | None = None) -> Range:
    """Seconds for `rows` rows over all processes; `likely_length` is that of the longest text of a usual batch.

    One position reads all decoder weights and the keys and values of every beam (memory-bound), and
    never takes less than its kernel launches.
    """
    if rows <= 0 or work.generation_length == 0 or work.eval_micro_batch == 0:
        return Range(0.0, 0.0)
    batches = -(-rows // (work.eval_micro_batch * work.world_size))
    longest = work.generation_length
    shortest = min(longest, likely_length) if likely_length else max(1, round(SHORT_SHARE * longest))
    position = _position(work, rate)
    # The source, or the prompt, once.
    prompt = _computed(forward_flops(work.with_micro_batch(work.eval_micro_batch)), rate)
    return Range(batches * (prompt.low + shortest * position.low), batches * (prompt.high + longest * position.high))


def _position(work: Workload, rate: Rate) -> Range:
    beams = work.eval_micro_batch * work.beams
    blocks = [block for block in work.architecture.blocks if block.causal]
    head = work.architecture.vocabulary_parameters
    decoder = sum(block.layers * block.parameters for block in blocks)
    moved = (decoder + head) * work.formats.weights + beams * cache_bytes_per_row(work) / 2
    active = sum(block.layers * block.active_linear_parameters for block in blocks)
    computed = _computed(FORWARD * beams * (active + head), rate)
    kernels = 0 if work.device == "cpu" else KERNELS_A_LAYER * sum(block.layers for block in blocks)
    return Range(
        max(moved / rate.bandwidth, computed.low, kernels * LAUNCH_FAST_S) + SEARCH_FAST_S,
        max(2 * moved / rate.bandwidth, computed.high, kernels * LAUNCH_SLOW_S) + SEARCH_SLOW_S,
    )
