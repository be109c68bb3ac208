"""What a device does: products, attention, memory, launches, AdamW and the disk, measured in some seconds.

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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwiz.core.hardware.nvml import NvmlSession, Unreadable, call
from trainwiz.core.hardware.rates import ProductRate
from trainwiz.core.language import tr
from trainwiz.core.processes import heavy_imports, wait_briefly
from trainwiz.core.text import plain_text
from trainwiz.core.training.process import begin_answering

if TYPE_CHECKING:
    import torch

LIMIT_S = 5.0
"""Each kind of work gets a share of it: processor time on a CPU, wall time on a GPU. Imports and first calls are not in it."""
MOST_WAIT_S = 20.0
"""By the wall clock, where other programs take the cores or a GPU loads slowly; then it says what it has."""
QUIET_LOAD = 0.1
"""Share of the cores that others take, up to which the wall clock is believed."""
BUSY_PERCENT, LOOKS, LOOK_EVERY_S = 20, 4, 0.15
"""A GPU that is busier at each of the looks is other programs'."""
LEAST_FREE_BYTES = 1 << 30
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
DISK_BYTES, DISK_BLOCK, DISK_S = 32 << 20, 4 << 20, 0.6
MOST_OF_A_DISK = 20e9
"""Bytes a second that no disk gives: they came from the page cache."""


@dataclass(slots=True)
class Timing:
    """The quickest of some repeats."""

    wall_s: float = float("inf")
    own_s: float = float("inf")
    """In which the calling thread had a core: its share of the parallel parts and all of the others. Of a GPU, its own."""

    def quicker(self, other: Timing) -> Timing:
        return Timing(min(self.wall_s, other.wall_s), min(self.own_s, other.own_s))


class Stopwatch:
    """Times work again and again until its share of the time is used up."""

    def __init__(self, device: torch.device, limit_s: float) -> None:
        import torch

        self.device = device
        self.limit_s = limit_s
        self._torch: Any = torch
        self._ends_s = time.monotonic() + max(limit_s, MOST_WAIT_S)

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self._ends_s

    def time(self, run: Callable[[], Any], share: float, calls: int = 1) -> Timing:
        """Of one of `calls` calls in a row. The first round warms up, unless it took longer than it may (`share` of the time)."""
        most_s, best = share * self.limit_s, Timing()
        if self.device.type == "cuda":
            # Libraries and each kernel are loaded at their first call: a second for the first product, and no part of the time.
            run()
            self.wait()
        spent = self._round(run, 1, best)
        if spent < most_s:
            best = Timing()
        while spent < most_s or best.wall_s == float("inf"):
            spent += self._round(run, calls, best)
            if self.is_late:
                break
        return best

    def _round(self, run: Callable[[], Any], calls: int, best: Timing) -> float:
        """Seconds that it took, by the clock that the time is shared out by."""
        if self.device.type == "cuda":
            return self._on_the_gpu(run, calls, best)
        self.wait()
        wall, own = time.perf_counter(), time.thread_time()
        for _ in range(calls):
            run()
        self.wait()
        wall, own = time.perf_counter() - wall, time.thread_time() - own
        on_cpu = self.device.type == "cpu"
        best.wall_s = min(best.wall_s, wall / calls)
        best.own_s = min(best.own_s, (own if on_cpu else wall) / calls)
        return own if on_cpu else wall

    def _on_the_gpu(self, run: Callable[[], Any], calls: int, best: Timing) -> float:
        """Between two events. The GPU sleeps while the work is queued, so that it never waits for Python in between."""
        cuda, began = self._torch.cuda, time.perf_counter()
        first, last = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        if hasattr(cuda, "_sleep"):
            cuda._sleep(2_000_000 * calls)
        first.record()
        for _ in range(calls):
            run()
        last.record()
        cuda.synchronize()
        best.own_s = best.wall_s = min(best.wall_s, first.elapsed_time(last) / 1000 / calls)
        return time.perf_counter() - began

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

    def __init__(self, device: torch.device, folder: Path, limit_s: float) -> None:
        self._device, self._folder = device, folder
        self._kind = "cuda" if device.type == "mps" else device.type
        if device.type != "cpu":
            # The first tensor on it starts its driver: seconds that are no part of the time.
            addition(device, 1 << 10)()
        self._watch = Stopwatch(device, limit_s)
        self._timed: dict[Shape, tuple[Timing, float]] = {}
        """The time of each shape, and its FLOP."""

    def rates(self) -> dict[str, Any]:
        begun = cores_busy_s()
        device, elements, scalars = self._device, self._elements(), dict[str, Timing]()
        works: dict[str, Callable[[], Timing]] = {
            "launch": self._launch,
            "memory": lambda: self._watch.time(addition(device, elements), SHARE / ROUNDS),
            "fresh": lambda: self._watch.time(addition(device, elements, fresh=True), SHARE / ROUNDS),
            "adam": lambda: self._watch.time(adam(device, elements // 2), ADAM_SHARE / ROUNDS),
        }
        for turn in range(ROUNDS):
            for name, work in works.items():
                scalars[name] = scalars.get(name, Timing()).quicker(work())
            for name, kind in self._formats():
                # On a CPU mostly emulated and slow: they must not take the time of what trains there.
                if self._kind != "cpu" or name == "fp32" or turn == ROUNDS - 1:
                    self._measure_shapes(name, kind)
        load = others_share(begun, cores_busy_s())

        def seconds(timing: Timing) -> float:
            return timing.wall_s if load <= QUIET_LOAD else timing.own_s

        found: dict[str, list[dict[str, Any]]] = {"product": [], "attention": []}
        for (what, name, rows, width), (timing, flops) in self._timed.items():
            found[what].append(asdict(ProductRate(name, rows, width, flops / seconds(timing))))
        return {
            "products": found["product"],
            "attention": found["attention"],
            "bytes_per_s": 12 * elements / seconds(scalars["memory"]),
            "fresh_bytes_per_s": 12 * elements / seconds(scalars["fresh"]),
            "launch_s": seconds(scalars["launch"]) / (2 * CHAIN + 2),
            "adam_parameters_per_s": (elements // 16) * 8 / seconds(scalars["adam"]),
            "disk_bytes_per_s": disk_bytes_per_s(self._folder),
            "load": round(load, 3),
        }

    def _launch(self) -> Timing:
        """By the clock: on a GPU what is wanted is the time in which Python queues, which the GPU waits for."""
        run = chain(self._device)
        if self._device.type != "cuda":
            return self._watch.time(run, SHARE / ROUNDS)
        run()
        best, ends_s = Timing(), time.perf_counter() + SHARE / ROUNDS * self._watch.limit_s
        while time.perf_counter() < ends_s:
            began = time.perf_counter()
            run()
            self._watch.wait()
            best.wall_s = best.own_s = min(best.wall_s, time.perf_counter() - began)
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
        known = sorted(timed.own_s / other for one, (timed, other) in self._timed.items() if one[:2] == shape[:2])
        likely_s = flops * known[len(known) // 2] if known else 0.0
        if self._watch.is_late or likely_s > MOST_OF_A_SHARE * share * self._watch.limit_s:
            return
        best, _ = self._timed.get(shape, (Timing(), flops))
        timing = self._watch.time(make(), share, 8 if self._device.type == "cuda" else 1)
        self._timed[shape] = best.quicker(timing), flops


# Who else computes here meanwhile.


def cores_busy_s() -> tuple[float, float, float]:
    """(seconds since the start of the machine in which our cores were busy, in all, and processor time of this process)."""
    import psutil

    try:
        ours = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
        cores = [core for at, core in enumerate(psutil.cpu_times(percpu=True)) if ours is None or at in ours]
    except (OSError, psutil.Error, RuntimeError):
        return 0.0, 0.0, time.process_time()
    whole = sum(sum(core) - getattr(core, "guest", 0.0) - getattr(core, "guest_nice", 0.0) for core in cores)
    idle = sum(core.idle + getattr(core, "iowait", 0.0) for core in cores)
    return whole - idle, whole, time.process_time()


def others_share(begun: tuple[float, float, float], ended: tuple[float, float, float]) -> float:
    """Of the cores, 0 to 1, that other programs had between the two."""
    busy, whole, own = (after - before for before, after in zip(begun, ended, strict=True))
    return min(1.0, max(0.0, (busy - own) / whole)) if whole > 0 else 0.0


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


def disk_bytes_per_s(folder: Path) -> float | None:
    """Of reading a new file that is not in memory any more; None where it cannot be written, or stays in memory.

    The file never has a name that a killed process could leave behind, where the system can do that.
    """
    import tempfile

    if not hasattr(os, "posix_fadvise"):
        return None
    block, ends_s, written = os.urandom(DISK_BLOCK), time.monotonic() + DISK_S, 0
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            while written < DISK_BYTES and time.monotonic() < ends_s:
                written += file.write(block)
                os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            began = time.perf_counter()
            read = 0
            while chunk := file.read(1 << 20):
                read += len(chunk)
            rate = read / (time.perf_counter() - began)
    except OSError:
        return None
    return rate if rate < MOST_OF_A_DISK else None


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
            if torch.cuda.mem_get_info()[0] < LEAST_FREE_BYTES:
                return {"problem": tr("other programs use the GPU's memory")}
        elif kind == "cpu":
            torch.set_num_threads(max(1, int(order["threads"])))
        return {"rates": Measuring(torch.device(kind), Path(order["folder"]), float(order["limit_s"])).rates()}
    except ModuleNotFoundError as error:
        return {"problem": tr("{name} is not installed", name=plain_text(error.name or "torch", 60))}
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
