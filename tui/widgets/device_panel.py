"""DevicePanel: the GPUs; where there is none, the CPU load of the job, and it says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Size
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import ScreenName, bindings
from trainwiz.tui.text import gib
from trainwiz.tui.widgets.gpu_lines import (
    card_cells,
    card_lines,
    heat_words,
    memory_words,
    mig_words,
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
    _measured: tuple[Snapshot, int, list[Content]] | None = None

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
        return len(self._all_lines(snapshot, max(LEAST_WIDTH, width)))

    def _all_lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        """The lines for as much room as they like; asked for twice in a look."""
        if self._measured is None or self._measured[0] is not snapshot or self._measured[1] != width:
            self._measured = (snapshot, width, self._lines_in(snapshot, width, ALL_LINES))
        return self._measured[2]

    def title_of(self, snapshot: Snapshot) -> str:
        # What matters most comes first: a narrow frame cuts the title at its end.
        dot = f" {self.marks.dot} "
        last = [tr("last reading")] if snapshot.ending is not None and snapshot.host.sample else []
        if not snapshot.used_gpus:
            if not snapshot.host.sample:
                return tr("device")
            return dot.join([tr("CPU load of the job"), *last, tr("GPU not used") if snapshot.gpus else tr("no GPU")])
        if len(snapshot.used_gpus) == 1:
            gpu = snapshot.used_gpus[0]
            mig = [f"MIG {mig_words(gpu)}"] if mig_words(gpu) else []
            return dot.join([f"GPU {gpu.index}", *last, short_name(gpu.name), *mig])
        units = [tr("busy, GiB")] if self.content_size and len(snapshot.used_gpus) > self.content_size.height else []
        return dot.join([_gpus(snapshot.used_gpus), *last, *units])

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        # One card in just the room that it likes, as nearly always.
        if len(snapshot.used_gpus) <= 1 and self._lines_wanted == height:
            lines = self._all_lines(snapshot, width)
            if len(lines) == height:
                return lines
        return self._lines_in(snapshot, width, height)

    def _lines_in(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        gpus = snapshot.used_gpus
        if not snapshot.host.sample and not gpus:
            return self.wrapped(machine_reason(snapshot), width)
        if not gpus:
            return self._cpu(snapshot, width)
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
        marks = self.marks
        load = snapshot.job_cpu_history[-1] if snapshot.job_cpu_history else None
        highest = max([100.0, *(value for value in snapshot.job_cpu_history if value is not None)])
        lines = [
            spark_meter(tr("job"), snapshot.job_cpu_history, highest, load_words(load, tr("% CPU")), width, marks, 13),
            spark_meter(
                tr("machine"),
                snapshot.host.cpu_history,
                100,
                load_words(snapshot.host.cpu_percent, tr("% CPU")),
                width,
                marks,
                13,
            ),
        ]
        label, rss = _held_on_cpu(snapshot)
        total = snapshot.host.ram_total_bytes
        planned = share(snapshot.planned.memory_bytes, total)
        if rss is not None:
            value = Content(tr("{part} of {whole}", part=gib(rss), whole=gib(total)) + " GiB")
            lines.append(bar_meter(label, share(rss, total), value, width, marks, planned))
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
    reason = next(
        (text for key, text in snapshot.unavailable.items() if "gpu" in key.lower() or "nvml" in key.lower()), ""
    )
    return tr("no GPU: {reason}", reason=plain_text(reason)) if reason else tr("There is no GPU here.")


def device_line(snapshot: Snapshot) -> Content:
    """The device in one line, for small terminals."""
    when = "" if snapshot.ending is None else tr("at the end") + "  "
    if not snapshot.used_gpus and not snapshot.host.sample:
        return Content.assemble((tr("device") + "  ", "$muted"), (machine_reason(snapshot), "$muted"))
    if len(snapshot.used_gpus) > 1:
        return _cards_line(snapshot.used_gpus, when)
    if snapshot.used_gpus:
        gpu = max(snapshot.used_gpus, key=lambda item: item.memory_used_bytes or 0)
        return Content.assemble(
            (f"GPU {gpu.index}  {when}", "$muted"),
            unit(gpu.utilization_percent, "%"),
            "   ",
            memory_words(gpu),
            "   ",
            heat_words(gpu),
        )
    load = snapshot.job_cpu_history[-1] if snapshot.job_cpu_history else None
    return Content.assemble(
        (f"{tr('CPU of the job')}  {when}", "$muted"),
        load_words(load, "%"),
        ("  " + (tr("GPU not used") if snapshot.gpus else tr("no GPU")), "$muted"),
    )


def _cards_line(gpus: tuple[GpuReading, ...], when: str) -> Content:
    """Several cards in one line: the range of each figure, and the hottest in words."""
    from trainwiz.core.telemetry.snapshot import without_parents

    readable = without_parents(gpu for gpu in gpus if not gpu.problem)
    lost = sum(bool(gpu.problem) for gpu in gpus if not gpu.is_slice)
    parts = [(f"{_gpus(gpus)}  {when}", "$muted")]
    if lost:
        parts.append((tr("{n} not readable", n=lost) + "   ", "$warning"))
    busy = [gpu.utilization_percent for gpu in readable if gpu.utilization_percent is not None]
    held = [gpu.memory_used_bytes for gpu in readable if gpu.memory_used_bytes is not None]
    if busy:
        parts.append((f"{_between(f'{min(busy):.0f}', f'{max(busy):.0f}')} %   ", ""))
    if held:
        low, high = gib(min(held)), gib(max(held))
        parts.append((f"{_between(low, high)} GiB   ", ""))
    hot = max(
        (gpu for gpu in readable if gpu.temperature_c is not None), key=lambda gpu: gpu.temperature_c or 0, default=None
    )
    return Content.assemble(*parts, heat_words(hot) if hot else "")


def _between(low: str, high: str) -> str:
    return low if low == high else tr("{low} to {high}", low=low, high=high)


def _gpus(gpus: tuple[GpuReading, ...]) -> str:
    """The cards, and the MIG slices of them, which are no cards of their own."""
    cards = trn("{n} GPU", "{n} GPUs", len({gpu.index for gpu in gpus}))
    slices = sum(gpu.is_slice for gpu in gpus)
    if not slices:
        return cards
    return tr("{cards}, {slices}", cards=cards, slices=trn("{n} MIG slice", "{n} MIG slices", slices))
