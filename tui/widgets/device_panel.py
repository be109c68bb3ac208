"""DevicePanel: the GPUs; where there is none, the CPU load of the job, and it says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.core.plain import plain_text
from trainwiz.core.telemetry.machine_history import limited_by_heat
from trainwiz.tui.figures import GIB, gib
from trainwiz.tui.widgets.meters import bar_meter, spark, spark_meter
from trainwiz.tui.widgets.monitor_panel import MonitorPanel

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import GpuReading, Snapshot

ROW_WITH_POWER = 46
ONE_GPU_LINES = 5
CPU_LINES = 4
MOST_ROWS = 16
NO_SAMPLE = "No sample of the machine yet; they come while the run lives."
HOT_C = 83.0
HOTTEST_C = 100.0


class DevicePanel(MonitorPanel):
    help_text = (
        "What the device does. Busy is the share of time in which the GPU computed anything at all; a low value "
        "means that it waits for data or for other processes. The stroke in the memory bar is the planned peak. "
        "Without a GPU the panel shows the CPU load of the job: 100 % is one core."
    )

    def show(self, snapshot: Snapshot) -> None:
        cards = len(snapshot.used_gpus)
        wanted = CPU_LINES if not cards else ONE_GPU_LINES if cards == 1 else min(cards, MOST_ROWS)
        self.styles.height = wanted + 2
        super().show(snapshot)

    def title_of(self, snapshot: Snapshot) -> str:
        # What matters most comes first: a narrow frame cuts the title at its end.
        dot = f" {self.marks.dot} "
        last = ["last reading"] if snapshot.ending is not None else []
        if not snapshot.used_gpus:
            return dot.join(["CPU load of the job", *last, "GPU not used" if snapshot.gpus else "no GPU"])
        if len(snapshot.used_gpus) == 1:
            gpu = snapshot.used_gpus[0]
            return dot.join([f"GPU {gpu.index}", *last, short_name(gpu.name)])
        return dot.join([f"{len(snapshot.used_gpus)} GPUs", *last])

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        if not snapshot.host.sample and not snapshot.used_gpus:
            return [Content.styled(NO_SAMPLE, "$muted")]
        if not snapshot.used_gpus:
            return self._cpu(snapshot, width, height)
        if len(snapshot.used_gpus) == 1:
            return self._one(snapshot, snapshot.used_gpus[0], width, height)
        return [self._row(gpu, width) for gpu in snapshot.used_gpus]

    def _one(self, snapshot: Snapshot, gpu: GpuReading, width: int, height: int) -> list[Content]:
        if gpu.problem:
            return [Content.styled(plain_text(gpu.problem), "$warning")]
        marks = self.marks
        value_width = 15 if width >= 36 else 0
        busy = spark_meter(
            "busy", gpu.utilization_history, 100, _unit(gpu.utilization_percent, "%"), width, marks, value_width
        )
        planned = _share(snapshot.planned.memory_bytes, gpu.memory_total_bytes)
        memory = bar_meter(
            "memory",
            _share(gpu.memory_used_bytes, gpu.memory_total_bytes),
            Content(f"{gib(gpu.memory_used_bytes)} of {gib(gpu.memory_total_bytes)} GiB"),
            width,
            marks,
            planned,
            value_width,
        )
        limit = "" if gpu.power_limit_w is None else f" of {gpu.power_limit_w:.0f}"
        watts = Content("not readable" if gpu.power_w is None else f"{gpu.power_w:.0f}{limit} W")
        heat = _heat(gpu)
        if height < 4:
            return [busy, memory, Content.assemble(("heat     ", "$muted"), heat, "   ", (watts.plain, "$muted"))]
        lines = [busy, memory]
        if height >= 5 and snapshot.planned.memory_bytes is not None:
            others = ""
            if gpu.job_memory_bytes is not None and gpu.memory_used_bytes is not None:
                rest = gpu.memory_used_bytes - gpu.job_memory_bytes
                others = f"others hold {gib(rest)}   " if rest > 0.2 * GIB else ""
            note = f"{others}planned {gib(snapshot.planned.memory_bytes)} GiB"
            lines.append(Content.styled(note.rjust(width), "$muted"))
        top_watts = gpu.power_limit_w or max((watt for watt in gpu.power_history if watt is not None), default=1.0)
        lines.append(spark_meter("power", gpu.power_history, top_watts, watts, width, marks, value_width))
        lines.append(spark_meter("heat", gpu.temperature_history, HOTTEST_C, heat, width, marks, value_width))
        return lines

    def _row(self, gpu: GpuReading, width: int) -> Content:
        if gpu.problem:
            return Content.assemble(f"{gpu.index}  ", (plain_text(gpu.problem), "$warning"))
        values = Content.assemble(
            _unit(gpu.utilization_percent, "%").pad_left(max(0, 5 - _unit(gpu.utilization_percent, "%").cell_length)),
            f"  {gib(gpu.memory_used_bytes):>5} of {gib(gpu.memory_total_bytes)} GiB  ",
            _heat(gpu).pad_left(max(0, 5 - _heat(gpu).cell_length)),
            "" if width < ROW_WITH_POWER else " " * 8 if gpu.power_w is None else f"  {gpu.power_w:4.0f} W",
        )
        room = max(0, width - 3 - values.cell_length)
        chart = spark(gpu.utilization_history, room, 100, self.marks).rjust(room)
        return Content.assemble((f"{gpu.index:<2}", "$muted"), (chart, "$accent 75%"), " ", values)

    def _cpu(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        marks = self.marks
        load = snapshot.job_cpu_history[-1] if snapshot.job_cpu_history else None
        highest = max([100.0, *(value for value in snapshot.job_cpu_history if value is not None)])
        lines = [
            spark_meter("job", snapshot.job_cpu_history, highest, _unit(load, "% CPU"), width, marks, 13),
            spark_meter(
                "machine", snapshot.host.cpu_history, 100, _unit(snapshot.host.cpu_percent, "% CPU"), width, marks, 13
            ),
        ]
        rss, total = snapshot.job_rss_bytes, snapshot.host.ram_total_bytes
        planned = _share(snapshot.planned.memory_bytes, total)
        if rss is not None:
            value = Content(f"{gib(rss)} of {gib(total)} GiB")
            lines.append(bar_meter("memory", _share(rss, total), value, width, marks, planned))
        lines.append(Content.styled(_no_gpu_reason(snapshot), "$muted"))
        return lines


def short_name(name: str) -> str:
    """ "NVIDIA GeForce RTX 2080 SUPER" as "RTX 2080 SUPER"."""
    return plain_text(name, 40).removeprefix("NVIDIA ").removeprefix("GeForce ")


def _no_gpu_reason(snapshot: Snapshot) -> str:
    if snapshot.gpus:
        cards = "a GPU" if len(snapshot.gpus) == 1 else f"{len(snapshot.gpus)} GPUs"
        return f"This machine has {cards}; the run computes on the CPU."
    reason = next(
        (text for key, text in snapshot.unavailable.items() if "gpu" in key.lower() or "nvml" in key.lower()), ""
    )
    return f"no GPU: {plain_text(reason)}" if reason else "There is no GPU here."


def _heat(gpu: GpuReading) -> Content:
    if gpu.temperature_c is None:
        return Content.styled("not readable", "$muted")
    throttles = limited_by_heat(gpu.throttle_reasons)
    text = f"{gpu.temperature_c:.0f} °C" + (", throttles" if throttles else "")
    return Content.styled(text, "$warning" if throttles or gpu.temperature_c >= HOT_C else "$foreground")


def _unit(value: float | None, unit: str) -> Content:
    return Content.styled("not readable", "$muted") if value is None else Content(f"{value:.0f} {unit}")


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def device_line(snapshot: Snapshot) -> Content:
    """The device in one line, for small terminals."""
    when = "" if snapshot.ending is None else "at the end  "
    if snapshot.used_gpus:
        gpu = max(snapshot.used_gpus, key=lambda item: item.memory_used_bytes or 0)
        return Content.assemble(
            (f"GPU {gpu.index}  {when}", "$muted"),
            _unit(gpu.utilization_percent, "%"),
            f"   {gib(gpu.memory_used_bytes)} of {gib(gpu.memory_total_bytes)} GiB   ",
            _heat(gpu),
        )
    load = snapshot.job_cpu_history[-1] if snapshot.job_cpu_history else None
    return Content.assemble(
        (f"CPU of the job  {when}", "$muted"),
        _unit(load, "%"),
        ("  GPU not used" if snapshot.gpus else "  no GPU", "$muted"),
    )
