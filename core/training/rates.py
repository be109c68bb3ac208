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
from dataclasses import asdict
from functools import partial
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
MOST_ELEMENTS = {"cpu": 16 << 20, "cuda": 64 << 20}
"""fp32 numbers of a tensor that no cache holds; three of them at once, 200 MB on a CPU."""
MOST_OF_A_SHARE = 6
"""Work that would take so many times its share of the time is left out."""
GPU_SHARE = 0.05
"""Of a GPU's free memory."""
CHAIN = 100
"""Operations in a row of which one is timed."""


class Stopwatch:
    """Times work again and again until its share of the time is used up."""

    def __init__(self, device: torch.device, limit_s: float) -> None:
        import torch

        self.device = device
        self.limit_s = limit_s
        self._torch: Any = torch
        # On a CPU the calling thread's own time (its share of the parallel parts and all of the others): what the work takes
        # where no other program computes.
        self._clock = time.thread_time if device.type == "cpu" else time.perf_counter
        self._ends_s = time.monotonic() + max(limit_s, MOST_WAIT_S)

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self._ends_s

    def time(self, run: Callable[[], Any], share: float, calls: int = 1) -> float:
        """Seconds of one of `calls` calls in a row, the quickest of some repeats. The first round warms up, unless it took
        longer than it may (`share` of the time)."""
        if self.device.type == "cuda":
            # Libraries and each kernel are loaded at their first call: a second for the first product, and no part of the time.
            run()
            self.wait()
        ends_s = self._clock() + share * self.limit_s
        best = self._round(run, 1)
        if self._clock() < ends_s:
            best = self._round(run, calls)
        while self._clock() < ends_s and not self.is_late:
            best = min(best, self._round(run, calls))
        return best

    def _round(self, run: Callable[[], Any], calls: int) -> float:
        """Seconds of one call."""
        if self.device.type == "cuda":
            return self._on_the_gpu(run, calls)
        self.wait()
        began = self._clock()
        for _ in range(calls):
            run()
        self.wait()
        return (self._clock() - began) / calls

    def _on_the_gpu(self, run: Callable[[], Any], calls: int) -> float:
        """Between two events. The GPU sleeps while the work is queued, so that it never waits for Python in between."""
        cuda = self._torch.cuda
        first, last = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        if hasattr(cuda, "_sleep"):
            cuda._sleep(2_000_000 * calls)
        first.record()
        for _ in range(calls):
            run()
        last.record()
        cuda.synchronize()
        return float(first.elapsed_time(last)) / 1000 / calls

    def wait(self) -> None:
        """Until the device has done what was queued."""
        if self.device.type != "cpu":
            getattr(self._torch, self.device.type).synchronize()


# Work as training does it: forward and backward through the autograd engine.


def product(device: torch.device, kind: torch.dtype, rows: int, width: int) -> Callable[[], None]:
    import torch

    make = partial(torch.randn, device=device, dtype=kind)
    inputs, weight = make(rows, width, requires_grad=True), make(width, width, requires_grad=True)
    gradient = make(rows, width)

    def run() -> None:
        inputs.grad = weight.grad = None
        torch.autograd.backward(torch.nn.functional.linear(inputs, weight), gradient)

    return run


def attention(device: torch.device, kind: torch.dtype, rows: int, length: int) -> Callable[[], None]:
    import torch

    make = partial(torch.randn, rows, HEADS, length, HEAD_WIDTH, device=device, dtype=kind)
    query, key, value = parts = tuple(make(requires_grad=True) for _ in range(3))
    gradient = make()

    def run() -> None:
        for part in parts:
            part.grad = None
        torch.autograd.backward(torch.nn.functional.scaled_dot_product_attention(query, key, value), gradient)

    return run


def chain(device: torch.device) -> Callable[[], None]:
    import torch

    start = torch.ones(64, device=device, requires_grad=True)

    def run() -> None:
        start.grad, value = None, start
        for _ in range(CHAIN):
            value = torch.tanh(value)
        torch.autograd.backward(value.sum())

    return run


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

SHARE, ADAM_SHARE = 0.04, 0.06
"""Of the time, for each kind of work."""
ROUNDS = 2
"""Of everything, apart in time: what disturbs one of them is seldom there in the other too."""
Shape = tuple[str, str, int, int]
"""(what, format, rows, width)."""


class Measuring:
    """Of one device. `rates` are the fields of Rates that are measured."""

    def __init__(self, device: torch.device, limit_s: float) -> None:
        self._device = device
        self._kind = "cuda" if device.type == "mps" else device.type
        if device.type != "cpu":
            # The first tensor on it starts its driver: seconds that are no part of the time.
            addition(device, 1 << 10)()
        self._watch = Stopwatch(device, limit_s)
        self._timed: dict[Shape, tuple[float, float]] = {}
        """Seconds of each shape, and its FLOP."""

    def rates(self) -> dict[str, Any]:
        device, elements, scalars = self._device, self._elements(), dict[str, float]()
        works: dict[str, Callable[[], float]] = {
            "launch": self._launch,
            "memory": lambda: self._watch.time(addition(device, elements), SHARE / ROUNDS),
            "fresh": lambda: self._watch.time(addition(device, elements, fresh=True), SHARE / ROUNDS),
            "adam": lambda: self._watch.time(adam(device, elements // 2), ADAM_SHARE / ROUNDS),
        }
        for turn in range(ROUNDS):
            for name, work in works.items():
                scalars[name] = min(scalars.get(name, inf), work())
            for name, kind in self._formats():
                # On a CPU mostly emulated and slow: they must not take the time of what trains there.
                if self._kind != "cpu" or name == "fp32" or turn == ROUNDS - 1:
                    self._measure_shapes(name, kind)
        found: dict[str, list[dict[str, Any]]] = {"product": [], "attention": []}
        for (what, name, rows, width), (seconds, flops) in self._timed.items():
            found[what].append(asdict(ProductRate(name, rows, width, flops / seconds)))
        return {
            "products": found["product"],
            "attention": found["attention"],
            "bytes_per_s": 12 * elements / scalars["memory"],
            "fresh_bytes_per_s": 12 * elements / scalars["fresh"],
            "launch_s": scalars["launch"] / (2 * CHAIN + 2),
            "adam_parameters_per_s": (elements // 16) * 8 / scalars["adam"],
        }

    def _launch(self) -> float:
        """By the clock: on a GPU what is wanted is the time in which Python queues, which the GPU waits for."""
        run = chain(self._device)
        if self._device.type != "cuda":
            return self._watch.time(run, SHARE / ROUNDS)
        run()
        best, ends_s = inf, time.perf_counter() + SHARE / ROUNDS * self._watch.limit_s
        while time.perf_counter() < ends_s:
            began = time.perf_counter()
            run()
            self._watch.wait()
            best = min(best, time.perf_counter() - began)
        return best

    def _elements(self) -> int:
        most = MOST_ELEMENTS[self._kind]
        if self._device.type != "cuda":
            return most
        import torch

        return min(most, int(GPU_SHARE * torch.cuda.mem_get_info(self._device)[0]) // 12)

    def _formats(self) -> Iterator[tuple[str, torch.dtype]]:
        """Those that the device computes in, fp32 first."""
        import torch

        torch.set_float32_matmul_precision("highest")
        yield "fp32", torch.float32
        if self._device.type == "cuda" and torch.cuda.get_device_capability(self._device) >= (8, 0):
            torch.set_float32_matmul_precision("high")
            yield "tf32", torch.float32
        if self._device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False):
            yield "bf16", torch.bfloat16
        if self._device.type != "cpu":
            yield "fp16", torch.float16

    def _measure_shapes(self, name: str, kind: torch.dtype) -> None:
        for length in LENGTHS[self._kind] if name != "tf32" else ():
            rows, width = max(1, ROWS[self._kind][1] // length), HEADS * HEAD_WIDTH
            flops = 12.0 * rows * length * length * width
            self._measure(
                ("attention", name, length, width), flops, partial(attention, self._device, kind, rows, length)
            )
        for width in WIDTHS[self._kind]:
            for rows in ROWS[self._kind]:
                flops = 6.0 * rows * width * width
                self._measure(("product", name, rows, width), flops, partial(product, self._device, kind, rows, width))

    def _measure(self, shape: Shape, flops: float, make: Callable[[], Callable[[], None]]) -> None:
        """Nothing where it would take much longer than its share, by the slowest of its kind so far."""
        share = SHARE / ROUNDS * (1.0 if shape[1] == "fp32" else 0.6)
        known = sorted(seconds / other for one, (seconds, other) in self._timed.items() if one[:2] == shape[:2])
        likely_s = flops * known[len(known) // 2] if known else 0.0
        if self._watch.is_late or likely_s > MOST_OF_A_SHARE * share * self._watch.limit_s:
            return
        seconds = self._watch.time(make(), share, 8 if self._device.type == "cuda" else 1)
        before, _ = self._timed.get(shape, (inf, flops))
        self._timed[shape] = min(before, seconds), flops


# Whether other programs compute here meanwhile.


def why_not(uuid: str) -> str:
    """Why the GPU is not to be measured now; "" where nothing is known against it."""
    why = ""
    with NvmlSession() as session, suppress(Unreadable):
        handle = None if session.error else call("nvmlDeviceGetHandleByUUID", uuid)
        for _ in range(LOOKS if handle else 0):
            percent = int(call("nvmlDeviceGetUtilizationRates", handle).gpu)
            if percent <= BUSY_PERCENT:
                return ""
            index = call("nvmlDeviceGetIndex", handle)
            why = tr("GPU {index} is busy with other work ({percent}%)", index=index, percent=percent)
            time.sleep(LOOK_EVERY_S)
    return why


# The process: an order in, an answer out.


def answer(order: dict[str, Any]) -> dict[str, Any]:
    """`{"rates": ...}`, or `{"problem": "a sentence without its end"}`."""
    kind, uuid = str(order["device"]), order.get("uuid")
    if kind == "cuda" and uuid and (busy := why_not(uuid)):
        return {"problem": busy}
    try:
        with heavy_imports():
            import torch
        if kind == "cuda":
            if not torch.cuda.is_available():
                return {"problem": tr("torch cannot use the GPU")}
        elif kind == "cpu":
            torch.set_num_threads(max(1, int(order["threads"])))
        return {"rates": Measuring(torch.device(kind), float(order["limit_s"])).rates()}
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
