"""DevicePanel: the GPUs; where there is none, the CPU load of the job, and it says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Size
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import ScreenName, bindings
from trainwiz.tui.text import gib, span
from trainwiz.tui.widgets.gpu_lines import (
    card_cells,
    card_lines,
    heat_words,
    memory_words,
    mig_words,
    part_of,
    processes_lines,
    row,
    share,
    short_name,
    unit,
)
from trainwiz.tui.widgets.monitor_panel import MonitorPanel, bar_meter, machine_reason, spark_meter

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import GpuReading, Snapshot

MOST_ROWS = 16
ALL_LINES = 99
LEAST_WIDTH = 40
"""Before the first layout no width is known."""


class DevicePanel(MonitorPanel):
    help_text = mark(
        "What the device does. Busy is the share of time in which the GPU computed anything at all; a low value "
        "means that it waits for data or for other processes. The stroke in the memory bar is the planned peak; "
        "below it, what this job, other processes and no known process (the driver) hold. Power stands against its limit, and where heat or power "
        "hold the clock back, words say so. With several GPUs the arrow keys choose one and enter opens it. "
        "Without a GPU the panel shows the CPU load of the job: 100 % is one core."
    )
    key_table: ClassVar[ScreenName | None] = "cards"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("cards")]

    _cursor = 0
    _lines_wanted = 0

    @property
    def chosen_gpu(self) -> int | None:
        """The place among the GPUs of the one that enter opens; None where there is none."""
        cards = 0 if self.snapshot is None else len(self.snapshot.used_gpus)
        return min(self._cursor, cards - 1) if cards else None

    def action_move_card(self, by: int) -> None:
        if self.snapshot is not None and self.snapshot.used_gpus:
            self._cursor = max(0, min(len(self.snapshot.used_gpus) - 1, self._cursor + by))
            self.refresh()

    async def action_open_card(self) -> None:
        """The screen knows how to open what has the focus."""
        await self.run_action("screen.open_panel")

    def on_focus(self) -> None:
        # The mark of the chosen card comes and goes with the focus.
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def on_resize(self) -> None:
        # With less room the cards share lines, and the title names the figures.
        self._show_title(self.has_focus)

    def show(self, snapshot: Snapshot) -> None:
        wanted = self._wanted_lines(snapshot, self.content_size.width)
        if wanted != self._lines_wanted:
            self._lines_wanted = wanted
            self.refresh(layout=True)
        super().show(snapshot)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as there is something to say."""
        return 1 if self.snapshot is None else self._wanted_lines(self.snapshot, width)

    def _wanted_lines(self, snapshot: Snapshot, width: int) -> int:
        if len(snapshot.used_gpus) > 1:
            return min(len(snapshot.used_gpus), MOST_ROWS)
        return len(self.lines(snapshot, max(LEAST_WIDTH, width), ALL_LINES))

    def title_of(self, snapshot: Snapshot) -> str:
        # What matters most comes first: a narrow frame cuts the title at its end.
        gpus, sample = snapshot.used_gpus, snapshot.host.sample
        last = tr("last reading") if snapshot.ending is not None and sample else ""
        if not gpus:
            where = tr("GPU not used") if snapshot.gpus else tr("no GPU")
            parts = [tr("CPU load of the job"), last, where] if sample else [tr("device")]
        elif len(gpus) == 1:
            mig = mig_words(gpus[0])
            parts = [f"GPU {gpus[0].index}", last, short_name(gpus[0].name), f"MIG {mig}" if mig else ""]
        else:
            shares_lines = self.content_size and len(gpus) > self.content_size.height
            parts = [_gpus(gpus), last, tr("busy, GiB") if shares_lines else ""]
        return f" {self.marks.dot} ".join(filter(None, parts))

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        gpus = snapshot.used_gpus
        if not gpus:
            return self._cpu(snapshot, width) if snapshot.host.sample else self.wrapped(machine_reason(snapshot), width)
        if len(gpus) == 1:
            lines = card_lines(gpus[0], snapshot.planned, width, height, self.marks)
            processes = processes_lines(gpus[0], self.marks)
            # Only with the whole screen: elsewhere the line below the memory sums them up.
            return [*lines, Content(), *processes] if processes and ALL_LINES > height > len(lines) + 3 else lines
        if len(gpus) > height:
            return card_cells(gpus, width, height, self.marks)
        chosen = self.chosen_gpu if self.has_focus else None
        return [row(gpu, width, self.marks, chosen=place == chosen) for place, gpu in enumerate(gpus)]

    def _cpu(self, snapshot: Snapshot, width: int) -> list[Content]:
        host, loads = snapshot.host, snapshot.job_cpu_history
        highest = max([100.0, *(load for load in loads if load is not None)])
        charts = (
            (tr("job"), loads, highest, loads[-1] if loads else None),
            (tr("machine"), host.cpu_history, 100, host.cpu_percent),
        )
        lines = [
            spark_meter(label, history, top, load_words(load, tr("% CPU")), width, self.marks, 13)
            for label, history, top, load in charts
        ]
        label, held = _held_on_cpu(snapshot)
        if held is not None:
            total, planned = host.ram_total_bytes, share(snapshot.planned.memory_bytes, host.ram_total_bytes)
            value = Content(f"{part_of(held, total)} GiB")
            lines.append(bar_meter(label, share(held, total), value, width, self.marks, planned))
        return [*lines, *self.wrapped(_no_gpu_reason(snapshot), width)[:2]]


def _held_on_cpu(snapshot: Snapshot) -> tuple[str, int | None]:
    """What stands against the plan, which speaks of all training processes; without a plan, all of the job."""
    trainers = [process.rss_bytes for process in snapshot.processes if process.role == "trainer" and process.rss_bytes]
    if snapshot.planned.memory_bytes is not None and trainers:
        return tr("trainer") if len(trainers) == 1 else tr("trainers"), sum(trainers)
    return tr("RAM"), snapshot.job_rss_bytes


def load_words(value: float | None, name: str) -> Content:
    """A load is known from the second sample on."""
    return Content.styled(tr("not yet known"), "$muted") if value is None else unit(value, name)


def _no_gpu_reason(snapshot: Snapshot) -> str:
    if snapshot.gpus:
        return trn(
            "This machine has a GPU; the run computes on the CPU.",
            "This machine has {n} GPUs; the run computes on the CPU.",
            len({gpu.index for gpu in snapshot.gpus}),
        )
    about = (reason for key, reason in snapshot.unavailable.items() if "gpu" in key.lower() or "nvml" in key.lower())
    reason = next(about, "")
    return tr("no GPU: {reason}", reason=plain_text(reason)) if reason else tr("There is no GPU here.")


def device_line(snapshot: Snapshot) -> Content:
    """The device in one line, for small terminals."""
    when = "" if snapshot.ending is None else tr("at the end") + "  "
    gpus = snapshot.used_gpus
    if not gpus and not snapshot.host.sample:
        return Content.assemble((f"{tr('device')}  {machine_reason(snapshot)}", "$muted"))
    if len(gpus) > 1:
        return _cards_line(gpus, when)
    if gpus:
        (gpu,) = gpus
        words = (unit(gpu.utilization_percent, "%"), memory_words(gpu), heat_words(gpu))
        return Content.assemble((f"GPU {gpu.index}  {when}", "$muted"), Content("   ").join(words))
    load = snapshot.job_cpu_history[-1] if snapshot.job_cpu_history else None
    where = tr("GPU not used") if snapshot.gpus else tr("no GPU")
    return Content.assemble(
        (f"{tr('CPU of the job')}  {when}", "$muted"), load_words(load, "%"), (f"  {where}", "$muted")
    )


def _cards_line(gpus: tuple[GpuReading, ...], when: str) -> Content:
    """Several cards in one line: the range of each figure, and the hottest in words."""
    from trainwiz.core.telemetry.snapshot import without_parents

    readable = without_parents(gpu for gpu in gpus if not gpu.problem)
    lost = sum(bool(gpu.problem) for gpu in gpus if not gpu.is_slice)
    busy = [gpu.utilization_percent for gpu in readable if gpu.utilization_percent is not None]
    held = [gpu.memory_used_bytes for gpu in readable if gpu.memory_used_bytes is not None]
    hot = [gpu for gpu in readable if gpu.temperature_c is not None]
    parts = [Content.styled(tr("{n} not readable", n=lost), "$warning")] if lost else []
    if busy:
        parts.append(Content(span(f"{min(busy):.0f}", f"{max(busy):.0f}") + " %"))
    if held:
        parts.append(Content(span(gib(min(held)), gib(max(held))) + " GiB"))
    if hot:
        parts.append(heat_words(max(hot, key=lambda gpu: gpu.temperature_c or 0)))
    return Content.assemble((f"{_gpus(gpus)}  {when}", "$muted"), Content("   ").join(parts))


def _gpus(gpus: tuple[GpuReading, ...]) -> str:
    """The cards, and the MIG slices of them, which are no cards of their own."""
    cards = trn("{n} GPU", "{n} GPUs", len({gpu.index for gpu in gpus}))
    slices = sum(gpu.is_slice for gpu in gpus)
    if not slices:
        return cards
    return tr("{cards}, {slices}", cards=cards, slices=trn("{n} MIG slice", "{n} MIG slices", slices))
