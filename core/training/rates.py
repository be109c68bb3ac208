"""What a device does: products, attention, memory, launches and AdamW, measured in some seconds.

`python -m trainwiz.core.training.rates`: an order as JSON on stdin, `{"rates"}` or `{"problem"}` on stdout.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from itertools import product as product_of
from math import inf
from typing import TYPE_CHECKING, Any

from trainwiz.core.hardware.machine import ProductRate
from trainwiz.core.hardware.nvml import NvmlSession, Unreadable, call
from trainwiz.core.language import tr
from trainwiz.core.processes import heavy_imports, wait_briefly
from trainwiz.core.text import plain_text
from trainwiz.core.training.process import begin_answering

if TYPE_CHECKING:
    import torch

MOST_WAIT_S = 20.0
"""By the wall clock, where other programs take the cores or a GPU loads slowly; then it says what it has."""
BUSY_PERCENT, LOOKS, LOOK_EVERY_S = 20, 4, 0.15
"""A GPU that is busier at each of the looks is other programs'."""
WIDTHS = {"cpu": (128, 320, 768, 2048), "cuda": (320, 768, 2048, 4096)}
ROWS = {"cpu": (256, 2048), "cuda": (256, 2048, 8192)}
LENGTHS = {"cpu": (128, 512), "cuda": (512, 2048)}
HEADS, HEAD_WIDTH = 12, 64
MOST_ELEMENTS = 16 << 20
"""fp32 numbers of a tensor that no cache holds; three of them at once, 200 MB. Four times as many on a GPU."""
MOST_OF_A_SHARE = 6
"""Work that would take so many times its share of the time is left out."""
GPU_SHARE = 0.05
"""Of a GPU's free memory."""
CHAIN = 100
"""Operations in a row of which one is timed."""
CALLS = 8
"""Of a GPU's work in a row."""


def quickest_s(
    run: Callable[[], object], device: torch.device, share_s: float, ends_s: float, *, by_events: bool
) -> float:
    """Seconds of one call, the quickest of some repeats within `share_s`, and before `ends_s` on the monotonic clock. The
    first one warms up, unless it took longer than it may. `by_events`: of the GPU alone, several calls in a row."""
    # On a CPU the calling thread's own time (its share of the parallel parts and all of the others): what the work takes
    # where no other program computes.
    clock = time.thread_time if device.type == "cpu" else time.perf_counter
    once = (
        partial(_on_the_gpu, run) if by_events and device.type == "cuda" else partial(_by_the_clock, run, device, clock)
    )
    if device.type != "cpu":
        # Libraries and each kernel are loaded at their first call: a second for the first product, and no part of the time.
        run()
    until_s = clock() + share_s
    best = once()
    if clock() < until_s:
        best = once()
    while clock() < until_s and time.monotonic() < ends_s:
        best = min(best, once())
    return best


def _by_the_clock(run: Callable[[], object], device: torch.device, clock: Callable[[], float]) -> float:
    import torch

    # Until the device has done what was queued.
    wait = {"cuda": torch.cuda.synchronize, "mps": torch.mps.synchronize}.get(device.type, int)
    wait()
    began = clock()
    run()
    wait()
    return clock() - began


def _on_the_gpu(run: Callable[[], object]) -> float:
    """Between two events. The GPU sleeps while the work is queued, so that it never waits for Python in between."""
    import torch

    cuda: Any = torch.cuda
    first, last = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    if hasattr(cuda, "_sleep"):
        cuda._sleep(2_000_000 * CALLS)
    first.record()
    for _ in range(CALLS):
        run()
    last.record()
    cuda.synchronize()
    return float(first.elapsed_time(last)) / 1000 / CALLS


# Work as training does it: forward and backward through the autograd engine.


def both_ways(forward: Callable[..., torch.Tensor], *parts: torch.Tensor) -> Callable[[], None]:
    import torch

    for part in parts:
        part.requires_grad_()
    gradient = torch.randn_like(forward(*parts))

    def run() -> None:
        for part in parts:
            part.grad = None
        torch.autograd.backward(forward(*parts), gradient)

    return run


def product(device: torch.device, kind: torch.dtype, rows: int, width: int) -> Callable[[], None]:
    import torch

    make = partial(torch.randn, device=device, dtype=kind)
    return both_ways(torch.nn.functional.linear, make(rows, width), make(width, width))


def attention(device: torch.device, kind: torch.dtype, rows: int, length: int) -> Callable[[], None]:
    import torch

    parts = (torch.randn(rows, HEADS, length, HEAD_WIDTH, device=device, dtype=kind) for _ in range(3))
    return both_ways(torch.nn.functional.scaled_dot_product_attention, *parts)


def chain(device: torch.device) -> Callable[[], None]:
    import torch

    def forward(value: torch.Tensor) -> torch.Tensor:
        for _ in range(CHAIN):
            value = torch.tanh(value)
        return value.sum()

    return both_ways(forward, torch.ones(64, device=device))


def addition(device: torch.device, elements: int, *, fresh: bool = False) -> Callable[[], object]:
    """`fresh`: into a new tensor each time."""
    import torch

    first, second = (torch.ones(elements, device=device) for _ in range(2))
    return partial(torch.add, first, second, out=None if fresh else torch.empty_like(first))


def adam(device: torch.device, parameters: int) -> Callable[[], None]:
    import torch

    weights = [torch.ones(parameters // 8, device=device, requires_grad=True) for _ in range(8)]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.AdamW(weights, fused=True)
    return lambda: optimizer.step()


# All of it, in its order: what everything rests on first, for time may run out.

SHARE, ADAM_SHARE, FURTHER_SHARE = 0.04, 0.06, 0.024
"""Of the time, for each kind of work; for each shape in another format than fp32."""
ROUNDS = 2
"""Of everything, apart in time: what disturbs one of them is seldom there in the other too."""


@dataclass(frozen=True, slots=True)
class Work:
    """One thing that is timed; `units` of it are done in one call of what `make` gives."""

    name: str
    units: float
    make: Callable[[], Callable[[], object]]
    share: float = SHARE
    by_events: bool = True
    shape: tuple[str, int, int] | None = None
    """(format, rows, width) of products and of attention."""


def formats(device: torch.device) -> Iterator[tuple[str, torch.dtype]]:
    """Those that the device computes in, fp32 first."""
    import torch

    torch.set_float32_matmul_precision("highest")
    yield "fp32", torch.float32
    if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0):
        torch.set_float32_matmul_precision("high")
        yield "tf32", torch.float32
    if device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False):
        yield "bf16", torch.bfloat16
    if device.type != "cpu":
        yield "fp16", torch.float16


def works(device: torch.device, elements: int, *, only_fp32: bool) -> Iterator[Work]:
    # By the clock: on a GPU what is wanted is the time in which Python queues, which the GPU waits for.
    yield Work("launches", 2 * CHAIN + 2, partial(chain, device), by_events=False)
    yield Work("bytes_per_s", 12 * elements, partial(addition, device, elements))
    yield Work("fresh_bytes_per_s", 12 * elements, partial(addition, device, elements, fresh=True))
    yield Work("adam_parameters_per_s", elements // 16 * 8, partial(adam, device, elements // 2), ADAM_SHARE)
    where = "cpu" if device.type == "cpu" else "cuda"
    for name, kind in islice(formats(device), 1 if only_fp32 else None):
        share = SHARE if name == "fp32" else FURTHER_SHARE
        for length in LENGTHS[where] if name != "tf32" else ():
            rows, width = max(1, ROWS[where][1] // length), HEADS * HEAD_WIDTH
            make, flops = partial(attention, device, kind, rows, length), 12.0 * rows * length * length * width
            yield Work("attention", flops, make, share, shape=(name, length, width))
        for width, rows in product_of(WIDTHS[where], ROWS[where]):
            make, flops = partial(product, device, kind, rows, width), 6.0 * rows * width * width
            yield Work("products", flops, make, share, shape=(name, rows, width))


def measured(device: torch.device, limit_s: float) -> dict[str, Any]:
    """The fields of Rates that are measured."""
    elements = MOST_ELEMENTS
    if device.type == "cuda":
        import torch

        elements = min(4 * elements, int(GPU_SHARE * torch.cuda.mem_get_info(device)[0]) // 12)
    # The first tensor starts the device's driver, the first backward pass its threads: seconds that are no part of the time.
    chain(device)()
    ends_s = time.monotonic() + max(limit_s, MOST_WAIT_S)
    best: dict[tuple[str, tuple[str, int, int] | None], float] = {}
    latest: dict[tuple[str, str], float] = {}
    for turn in range(ROUNDS):
        # On a CPU other formats are mostly emulated and slow: they come once, when what trains there was measured twice.
        for work in works(device, elements, only_fp32=device.type == "cpu" and turn < ROUNDS - 1):
            share_s, kind = work.share / ROUNDS * limit_s, (work.name, work.shape[0] if work.shape else "")
            # Nothing where it would take much longer than its share, by the one before, which is a little smaller.
            likely_s = work.units / latest.get(kind, inf)
            if time.monotonic() < ends_s and likely_s <= MOST_OF_A_SHARE * share_s:
                latest[kind] = work.units / quickest_s(work.make(), device, share_s, ends_s, by_events=work.by_events)
                best[work.name, work.shape] = max(latest[kind], best.get((work.name, work.shape), 0.0))
    found: dict[str, Any] = {"products": [], "attention": []}
    for (name, shape), rate in best.items():
        if shape is None:
            found[name] = rate
        else:
            found[name].append(asdict(ProductRate(*shape, rate)))
    return {**found, "launch_s": 1 / found.pop("launches")}


# Whether other programs compute here meanwhile.


def why_not(uuid: str) -> str:
    """Why the GPU is not to be measured now; "" where nothing is known against it."""
    with NvmlSession(), suppress(Unreadable):
        handle, percent = call("nvmlDeviceGetHandleByUUID", uuid), 0
        for _ in range(LOOKS):
            percent = int(call("nvmlDeviceGetUtilizationRates", handle).gpu)
            if percent <= BUSY_PERCENT:
                return ""
            time.sleep(LOOK_EVERY_S)
        index = call("nvmlDeviceGetIndex", handle)
        return tr("GPU {index} is busy with other work ({percent}%)", index=index, percent=percent)
    return ""


# The process: an order in, an answer out.


def answer(order: dict[str, Any]) -> dict[str, Any]:
    """`{"rates": ...}`, or `{"problem": "a sentence without its end"}`."""
    kind, uuid = str(order["device"]), order.get("uuid")
    if kind == "cuda" and uuid and (busy := why_not(uuid)):
        return {"problem": busy}
    try:
        with heavy_imports():
            import torch
        if kind == "cpu":
            torch.set_num_threads(max(1, int(order["threads"])))
        return {"rates": measured(torch.device(kind), float(order["limit_s"]))}
    except Exception as error:  # noqa: BLE001 - a driver fails in any way, and a plan goes on without rates
        reason = plain_text(str(error).strip().partition("\n")[0], 200)
        return {"problem": f"{type(error).__name__}: {reason}"}


def main() -> None:
    with begin_answering("rates") as out:
        order = json.load(sys.stdin)
        os.nice(int(order.get("nice", 0)))
        # Before torch loads its OpenMP, which reads it.
        wait_briefly(os.environ)
        out.write(json.dumps(answer(order)).encode())


if __name__ == "__main__":
    main()
