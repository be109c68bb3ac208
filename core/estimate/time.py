"""The time of a step: what it computes, moves and launches, over what a device reaches, each by measured figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

from trainwiz.core.catalog.gpus import BY_HAND, GpuSpec, is_rate_uncertain
from trainwiz.core.estimate.flops import (
    FORWARD,
    Cost,
    attention_flops,
    cost_of,
    exchanged_bytes,
    forward_cost,
    forward_flops,
    large_bytes,
    micro_batch_flops,
)
from trainwiz.core.estimate.peak import cache_bytes_per_row
from trainwiz.core.estimate.workload import SINGLE, TimeVerdict, Workload
from trainwiz.core.hardware.machine import Rates, product_rate

EFFICIENCIES = {
    ("GeForce 30", "half"): 0.69,
    ("Ampere", "half"): 0.58,
    ("A100", "half"): 0.64,
    ("Hopper", "half"): 0.61,
    ("Ada", "half"): 0.59,
    ("Turing", "half"): 0.61,
    ("Volta", "half"): 0.59,
    ("GeForce 30", "tf32"): 0.64,
    ("Ampere", "tf32"): 0.60,
    ("Turing", "fp32"): 0.50,
    ("", "half"): 0.61,
    ("", "tf32"): 0.62,
    ("", "fp32"): 0.47,
}
"""(family, "" for every card without a cell of its own; "half" for fp16 and bf16, "tf32" or "fp32") -> share of the catalogue's
peak rate that products reach in training, fitted to published paces by tools/benchmarks/published/time_fit.py. The rows of
each are in docs/estimator.md, with what each source's rows were judged by without that source. Fused attention shares the
cells of products: the rows of 8,192 tokens (T089, T091) do not show it to be slower."""
FAMILIES = {"7.0": "Volta", "7.5": "Turing", "8.0": "A100", "8.6": "Ampere", "8.9": "Ada", "9.0": "Hopper"}
LAUNCH_S = 15.5e-6
"""From one kernel to the next behind Python's dispatch, where the GPU waits for it (T045 to T048, T095, T096)."""
OPTIMIZER = 1.85
"""Times what reading and writing 28 bytes a parameter takes: the gradients' norm, and what a step does besides."""
EXPOSED = 0.25
"""Of what processes exchange, the share that no computation hides (T060, T061, T069, T070, T079, T108, T109)."""
IMPLAUSIBLE_SHARE, IDLE_SHARE = 0.65, 0.08
"""Of the peak, by all that is computed, recomputation included: published paces reach 62 % at most. Ranges end there."""

# Factors up and down that hold nine of ten published paces, those of each source judged without it.

SPREAD = 1.41
"""Full training on a card of the catalogue: 1.41 up and down is a range of 2.0."""
WIDER = 1.58
"""Adapters, a base in fewer bits, offload, and cards whose rate is given by hand or uncertain: 2.5."""
WAITS = 2.4
"""A base in fewer bits on a GPU that waits for launches: bitsandbytes' layers have more Python around each kernel. By LAUNCH_S
a step of an 8B model in 4 bits, one row of 1,024, takes 3.0 s on an H100, by its rates 10.8, and took 6.8 (docs/estimator.md)."""
RATED = 1.22
"""A device whose own rates were measured (hardware.rates): 1.5."""

PCIE = 9e9
"""Bytes a second between GPU and pinned host memory, PCIe 3.0 x16 in practice (6 to 12)."""
HIDDEN_TRIPS = 0.5
"""Of the gradients' trips to the host and back, the share that the backward pass does not hide. No row says so."""
HOST_ADAM = 0.9e9
"""Parameters a second of DeepSpeed's vectorised CPU Adam on a desktop's memory bandwidth (28 bytes each; 0.5 to 1.5)."""
LINK = 6e9
"""Bytes a second between two processes over PCIe at worst."""
NVLINK = 50e9
"""Bytes a second between two cards of a board with NVLink (SXM), at worst."""
CARDS_OF_A_BOARD = 8

CPU_CORE_PEAK = 96e9
"""fp32 FLOP/s of one core with AVX2 at 3 GHz: 2 FMA x 8 lanes x 2 = 32 a cycle (twice that with AVX-512)."""
CPU_CORE, CPU_SCALING = 30e9, 0.7
"""FLOP/s that one core reaches in training, and the exponent of the thread count: the matrices of small models keep few threads
busy. Small ESM-2 models measured 42 to 75e9 on a 2024 server core; a hyper-thread, an older core or a busy machine does 15e9.
Only where the machine's own rates are not known, as the next one."""
CPU_SPREAD, CPU_SPREAD_SCALING = 2.0, 0.2
CPU_BANDWIDTH = 6e9
"""Bytes a second of operations that allocate what they write: most of the time the system clears new pages."""
FRESH = 5
"""Times longer than into tensors that are there, where it was not measured."""
CPU_STEP_S = 0.01
"""Trainer, logging and loader for one step on a CPU."""
CPU_PRODUCTS, CPU_SMALL, CPU_LARGE = 1.25, 0.5, 0.6
"""Times what products take by the rates of a machine, and shares of its bandwidth into tensors that are there and into new
ones: fitted to steps of fourteen models of six families in processor time (docs/estimator.md)."""
DISPATCHES = 4
"""Times a bare operation in the autograd engine, that a model's own takes with its Python around it."""

START_FAST_S, START_SLOW_S = 6.0, 30.0
"""Launcher, imports, model and data before the first step, and closing after the last one: 7 s on a quiet machine,
17 to 24 s on one whose cores are wanted twice over."""
DEEPSPEED_FAST_S, DEEPSPEED_SLOW_S = 2.0, 20.0
"""What DeepSpeed adds: its imports and kernels (10 to 16 s where the cores are busy; their first build takes longer)."""
DISK_FAST, DISK_SLOW = 1.5e9, 0.25e9
"""Bytes a second of writing a checkpoint: NVMe and a busy SATA disk."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What the device of one process does."""

    flops: float
    """FLOP/s at best, in the run's format."""
    bandwidth: float
    """Bytes/s of its memory, by operations that read one tensor and write another."""
    share: float = 0.61
    """Of the peak, that products reach."""
    launch_s: float = LAUNCH_S
    spread: float = SPREAD
    """Factor up and down."""
    format: str = "fp32"
    """Of the products: "fp32", "tf32", "fp16" or "bf16"."""
    rates: Rates | None = None
    """This device's own."""
    link: float = LINK
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

    @classmethod
    def around(cls, seconds: float, factor: float) -> Range:
        return cls(seconds / factor, seconds * factor)

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


def cell_of(spec: GpuSpec, format: str) -> tuple[str, str]:
    """Of EFFICIENCIES: that of a card and a format of products."""
    family = FAMILIES.get(spec.compute_capability or "", "")
    if family == "Ampere" and "RTX 30" in spec.name:
        family = "GeForce 30"
    kind = "half" if format in ("fp16", "bf16") else format
    return (family, kind) if (family, kind) in EFFICIENCIES else ("", kind)


def gpu_rate(spec: GpuSpec, precision: str, tf32: bool, rates: Rates | None = None) -> Rate:
    """Of one card in the format of the matrix products; a format that it lacks runs at its fp32 rate."""
    peaks = {"fp16": spec.fp16_flops, "bf16": spec.bf16_flops, "tf32": spec.tf32_flops}
    wanted = precision.removesuffix("-true")
    format = wanted if peaks.get(wanted) else "tf32" if tf32 and wanted == "fp32" and spec.tf32_flops else "fp32"
    rates = _with_format(rates, format)
    cell = cell_of(spec, format)
    unsure = spec.source == BY_HAND or (is_rate_uncertain(spec, format) and cell[0] == "")
    return Rate(
        peaks.get(format) or spec.fp32_flops,
        spec.bandwidth_bytes_per_s if rates is None else rates.bytes_per_s,
        EFFICIENCIES[cell],
        LAUNCH_S if rates is None else DISPATCHES * rates.launch_s,
        RATED if rates is not None else WIDER if unsure else SPREAD,
        format,
        rates,
        NVLINK if "SXM" in spec.name else LINK,
    )


def _with_format(rates: Rates | None, format: str) -> Rates | None:
    """None where products in the format were not measured: the time ran out, or the device has no such products."""
    return rates if rates is not None and any(one.format == format for one in rates.products) else None


def cpu_rate(threads: int, precision: str = "fp32", rates: Rates | None = None) -> Rate:
    """Of one process with this many threads."""
    threads = max(1, threads)
    peak, format = CPU_CORE_PEAK * threads, precision.removesuffix("-true")
    rates = _with_format(rates, format)
    if rates is None:
        share, spread = CPU_CORE * threads**CPU_SCALING / peak, CPU_SPREAD * threads**CPU_SPREAD_SCALING
        return Rate(peak, CPU_BANDWIDTH, share, LAUNCH_S, spread, format)
    peak = max(peak, *(one.flops_per_s for one in rates.products))
    return Rate(peak, rates.bytes_per_s, 1.0, DISPATCHES * rates.launch_s, RATED, format, rates)


def step_time(work: Workload, rate: Rate, cost: Cost | None = None) -> StepTime:
    """One optimizer step of one process (all processes work alike); `cost` of a micro-batch where it was traced."""
    on_cpu, cost = work.device == "cpu", cost if cost is not None else cost_of(work)
    busy, exchanged = _micro_batch(work, cost, rate) * work.accumulation, _communication(work, rate)
    alone = busy + _optimizer(work, rate) + _offload(work) + (CPU_STEP_S if on_cpu else 0.0)
    seconds, spread = alone + max(EXPOSED * exchanged, exchanged - busy), spread_of(work, rate, cost)
    computed = cost.flops * work.accumulation / rate.flops
    step = Range.around(seconds, spread)
    if not on_cpu:
        step = Range(max(step.low, min(seconds, computed / IMPLAUSIBLE_SHARE)), step.high)
    if rate.network is not None and rate.network < rate.link:
        # What a switch and its cables do is not known: at worst nothing hides it.
        step = Range(step.low, spread * alone + exchanged)
    share = computed / step.likely
    return StepTime(step, share, verdict_of(share, on_cpu))


def waits_for_launches(work: Workload, rate: Rate, cost: Cost | None = None) -> bool:
    """A GPU that has computed what it was told before it is told more."""
    cost = cost if cost is not None else cost_of(work)
    return work.device != "cpu" and cost.kernels * rate.launch_s >= _micro_batch(work, cost, rate)


def spread_of(work: Workload, rate: Rate, cost: Cost | None = None) -> float:
    """Factor up and down that a step of `work` is uncertain by; `cost` of a micro-batch where it was traced."""
    if work.quantized and waits_for_launches(work, rate, cost):
        return WAITS
    if work.lora or work.offload != "none":
        return max(rate.spread, WIDER if rate.rates is None else RATED)
    return rate.spread


def _micro_batch(work: Workload, cost: Cost, rate: Rate) -> float:
    """Computing and moving one after the other. A GPU meanwhile is told what comes next, which may take longer; a CPU
    does that itself."""
    computed = cost.flops / reached_flops(work, rate)
    moved, launched = cost.moved_bytes / rate.bandwidth, cost.kernels * rate.launch_s
    if work.device != "cpu":
        return max(computed + moved, launched)
    if rate.rates is None:
        return computed + moved + launched
    large = min(large_bytes(work), 0.9 * cost.moved_bytes)
    fresh = rate.rates.fresh_bytes_per_s or rate.bandwidth / FRESH
    moved = (cost.moved_bytes - large) / (CPU_SMALL * rate.bandwidth) + large / (CPU_LARGE * fresh)
    return CPU_PRODUCTS * computed + moved + launched


def reached_flops(work: Workload, rate: Rate) -> float:
    """FLOP/s over all products and the attention of `work`: by the device's own rates each at its own size, without them
    the share of the peak that products reach."""
    usual = rate.share * rate.flops
    if rate.rates is None:
        return usual
    whole = seconds = 0.0
    for flops, rows, width in _products(work):
        reached = product_rate(rate.rates.products, rate.format, rows, width)
        if reached is None:
            return usual
        whole, seconds = whole + flops, seconds + flops / reached
    scores = attention_flops(work)
    reached = product_rate(rate.rates.attention, rate.format, work.length, work.architecture.hidden)
    if reached is not None:
        whole, seconds = whole + scores, seconds + scores / reached
    return whole / seconds if seconds else usual


def _products(work: Workload) -> Iterator[tuple[float, float, float]]:
    """(FLOPs, rows, width) of each kind of product of one forward pass; the width is that of a square one as large."""
    for block in work.architecture.blocks:
        rows = work.micro_batch * work.queries_of(block)
        for _, inputs, outputs in block.linears:
            yield FORWARD * float(block.layers * rows * inputs * outputs), rows, sqrt(inputs * outputs)
    head, rows = work.architecture.vocabulary_parameters, work.micro_batch * work.decoded_length
    if head and not work.architecture.pooled:
        yield FORWARD * float(rows * head), rows, sqrt(head)


def verdict_of(share: float, on_cpu: bool = False) -> TimeVerdict:
    """What a share of the device's peak says about a pace."""
    if share > 1:
        return "impossible"
    if share > IMPLAUSIBLE_SHARE and not on_cpu:
        return "implausible"
    return "idle" if share < IDLE_SHARE and not on_cpu else "plausible"


def share_of_peak(work: Workload, rate: Rate, tokens_per_s: float) -> float:
    """What a claimed pace (input tokens a second over all processes) asks of each device."""
    each = micro_batch_flops(work) / work.tokens
    return each * tokens_per_s / (rate.flops * work.world_size)


def _optimizer(work: Workload, rate: Rate) -> float:
    """AdamW reads weight, gradient and two moments and writes three of them: about 28 bytes a parameter."""
    if work.offload != "none":
        return 0.0
    # Sharded states are stepped by the process that holds them.
    own = work.trainable_parameters / (work.world_size if work.deepspeed or work.strategy == "fsdp" else 1)
    if rate.rates is not None:
        return OPTIMIZER * own / rate.rates.adam_parameters_per_s
    return OPTIMIZER * 28.0 * own / rate.bandwidth


def _offload(work: Workload) -> float:
    """PCIe for each micro-batch, and the step on the CPU.

    As DeepSpeed 0.19 does it (runtime/zero/stage_1_and_2.py, copy_grads_in_partition; stage3.py, partition_grads):
    each process moves its own shard. Where several micro-batches are added up, the first one's gradients go to
    the host, and each further one fetches the sum, adds to it on the GPU and sends it back, the last one too.
    After the last one the sum goes to the host once more, in fp32 for the master weights. After the step the new
    weights come back. With `grad_accum_dtype: fp32` ZeRO-2 sums on the GPU instead and moves only the last two
    (`_use_compact_grad_partition_buffer`); older versions do not. The host's memory is shared: its Adam takes as long for
    all. With everything offloaded (ZeRO-3) each forward and each backward pass fetches the weights.
    """
    if work.offload == "none":
        return 0.0
    shard = work.trainable_parameters / work.world_size
    element = work.formats.adapters if work.lora else work.formats.weights
    trips = 2 * work.accumulation - 1 if work.accumulation > 1 else 0
    hidden = trips * element * shard
    if work.offload == "all":
        hidden += 2 * work.accumulation * work.formats.weights * work.architecture.parameters / work.world_size
    seen = (SINGLE + element) * shard
    return (seen + HIDDEN_TRIPS * hidden) / PCIE + work.trainable_parameters / HOST_ADAM


def _communication(work: Workload, rate: Rate) -> float:
    """Gradients and sharded weights over the slowest link, (N - 1) / N times their bytes for each collective (ring)."""
    if work.world_size == 1:
        return 0.0
    link = rate.link if work.world_size <= CARDS_OF_A_BOARD or rate.network is not None else LINK
    if rate.network is not None:
        link = min(link, rate.network)
    return (work.world_size - 1) / work.world_size * exchanged_bytes(work) / link


def evaluation_time(work: Workload, rate: Rate, rows: int) -> Range:
    """One pass over `rows` held-out rows: forward only, over all processes."""
    if rows <= 0:
        return Range(0.0, 0.0)
    work = work.with_micro_batch(work.eval_micro_batch or work.micro_batch)
    batches = -(-rows // (work.micro_batch * work.world_size))
    return Range.around(batches * _micro_batch(work, forward_cost(work), rate), spread_of(work, rate))


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


KERNELS_A_LAYER = 45
"""Launches of one layer for one new position, the upkeep of its cache included."""
SEARCH_S = 0.005
"""Python's part of one position: stopping rules, scores, sorting the beams."""
GENERATED = 2.0
"""Factor up and down for each position, beside how many there will be."""
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
    read = work.with_micro_batch(work.eval_micro_batch)
    prompt = forward_flops(read) / reached_flops(read, rate)
    low, high = prompt + shortest * position, prompt + longest * position
    return Range(batches * low / GENERATED, batches * high * GENERATED)


def _position(work: Workload, rate: Rate) -> float:
    beams = work.eval_micro_batch * work.beams
    blocks = [block for block in work.architecture.blocks if block.causal]
    head = work.architecture.vocabulary_parameters
    decoder = sum(block.layers * block.parameters for block in blocks)
    moved = (decoder + head) * work.formats.weights + beams * cache_bytes_per_row(work) / 2
    active = sum(block.layers * block.active_linear_parameters for block in blocks)
    computed = FORWARD * beams * (active + head) / reached_flops(work, rate)
    launched = KERNELS_A_LAYER * sum(block.layers for block in blocks) * rate.launch_s
    # A CPU does one after the other.
    together = sum if work.device == "cpu" else max
    return together((moved / rate.bandwidth, computed, launched)) + SEARCH_S
