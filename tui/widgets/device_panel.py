"""DevicePanel: the GPUs; where there is none, the CPU load of the job, and it says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Size
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.telemetry.machine import limited_by_heat
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import ScreenName, bindings
from trainwiz.tui.text import GIB, cells, gib, pad, span
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.monitor_panel import (
    LABEL_WIDTH,
    MonitorPanel,
    bar_meter,
    join_fitting,
    labelled,
    machine_reason,
    spark,
    spark_meter,
)

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import GpuReading, Planned, Snapshot

# Lines about GPUs: one card in full, many cards in a row each.

ROW_WITH_POWER = 48
HOT_C = 83.0
HOTTEST_C = 100.0
VALUE_WIDTH = 15
SMALL_BYTES = 0.2 * GIB
"""What a driver itself holds of a card; less than this is no other job."""


def card_lines(gpu: GpuReading, planned: Planned, width: int, height: int) -> list[Content]:
    """One card in at most `height` lines; with little room heat and power share one."""
    if gpu.problem:
        words = tr("cannot be read: {reason}", reason=plain_text(gpu.problem))
        return [Content.styled(f"{marks.tight} {words}", "$warning")]
    value_width = VALUE_WIDTH if width >= 36 else 0

    def spark_line(label: str, history: Sequence[float | None], highest: float, value: Content) -> Content:
        return spark_meter(label, history, highest, value, width, value_width)

    busy = spark_line(tr("util"), gpu.utilization_history, 100, unit(gpu.utilization_percent, "%"))
    total = gpu.memory_total_bytes
    filled, expected = share(gpu.memory_used_bytes, total), share(planned.memory_bytes, total)
    memory = bar_meter(tr("memory"), filled, memory_words(gpu), width, expected, value_width)
    heat = heat_words(gpu)
    watts = Content(tr("not readable") if gpu.power_w is None else f"{of_limit(gpu.power_w, gpu.power_limit_w)} W")
    if height < 4:
        room = width - LABEL_WIDTH - heat.cell_length - 3
        short = Content("" if gpu.power_w is None else f"{gpu.power_w:.0f} W")
        tail = next((words for words in (watts, short) if words.cell_length <= room), Content())
        return [busy, memory, labelled(tr("temp"), Content.assemble(heat, "   ", (tail.plain, "$muted")))]
    top_watts = gpu.power_limit_w or max((watt for watt in gpu.power_history if watt is not None), default=1.0)
    power = spark_line(tr("power"), gpu.power_history, top_watts, watts)
    warmth = spark_line(tr("temp"), gpu.temperature_history, HOTTEST_C, heat)
    # Without the room for both, who holds the memory says more than the clock.
    notes = holders_lines(gpu, planned, width)[: max(0, height - 4)]
    return [busy, memory, *notes, power, warmth, *clock_lines(gpu, width)[: max(0, height - 4 - len(notes))]]


def holders_lines(gpu: GpuReading, planned: Planned, width: int) -> list[Content]:
    """ "this job 5.1   others 2.0   driver 0.5   planned 5.4 GiB", at the right end below the memory."""
    parts = []
    if gpu.job_memory_bytes is not None:
        parts.append(tr("this job {amount}", amount=gib(gpu.job_memory_bytes)))
        others = sum(process.memory_used_bytes or 0 for process in gpu.processes if not process.mine)
        # No process is known for the rest: the driver's own, mostly.
        rest = (gpu.memory_used_bytes or 0) - gpu.job_memory_bytes - others
        if others > SMALL_BYTES:
            parts.append(tr("others {amount}", amount=gib(others)))
        if rest > SMALL_BYTES:
            parts.append(tr("driver {amount}", amount=gib(rest)))
    if planned.memory_bytes is not None:
        parts.append(tr("planned {amount}", amount=gib(planned.memory_bytes)))
    while parts and cells("   ".join(parts)) + 4 > width:
        # What the driver holds is the first that may be missing.
        parts.pop(2 if len(parts) > 3 else 0)
    return [Content.styled(pad(f"{'   '.join(parts)} GiB", width, right=True), "$muted")] if parts else []


def clock_lines(gpu: GpuReading, width: int) -> list[Content]:
    """The clock, what holds it back (instead of the highest clock), and the fan, as far as they are known."""
    # The line of the heat tells of heat.
    held = [reason for reason in gpu.throttle_reasons if not limited_by_heat([reason])]
    parts = []
    if gpu.clock_mhz is not None:
        parts.append(Content(f"{of_limit(gpu.clock_mhz, None if held else gpu.clock_limit_mhz)} MHz"))
    if held:
        parts.append(Content.styled(tr("throttled: {reasons}", reasons=_reasons(held)), "$warning"))
    if gpu.fan_percent is not None:
        parts.append(Content(tr("fan {share}", share=f"{gpu.fan_percent:.0f}%")))
    return [labelled(tr("clock"), join_fitting(parts, width - LABEL_WIDTH))] if parts else []


def row(gpu: GpuReading, width: int, *, chosen: bool = False) -> Content:
    """One card in one line: number, busy, memory, heat, power."""
    head = Content.styled(
        f"{gpu.index:<2}" if not chosen else f"{gpu.index}{marks.here}", "$accent" if chosen else "$muted"
    )
    if gpu.problem:
        return Content.assemble(head, " ", (f"{marks.tight} {plain_text(gpu.problem)}", "$warning"))
    heat = heat_words(gpu)
    # A card that is held back says so; where the words have no room, a mark does.
    if heat.cell_length > 7 and width < ROW_WITH_POWER + 14:
        heat = Content.styled(f"{gpu.temperature_c or 0:.0f} °C{marks.tight}", "$warning")
    busy, mig = unit(gpu.utilization_percent, "%"), mig_words(gpu)
    values = Content.assemble(
        busy.pad_left(max(0, 5 - busy.cell_length)),
        "  "
        + tr("{part} of {whole}", part=f"{gib(gpu.memory_used_bytes):>5}", whole=gib(gpu.memory_total_bytes))
        + " GiB  ",
        heat.pad_left(max(0, 6 - heat.cell_length)),
        "" if width < ROW_WITH_POWER else " " * 8 if gpu.power_w is None else f"  {gpu.power_w:4.0f} W",
        f"  MIG {plain_text(mig, 10)}" if mig and width >= ROW_WITH_POWER + 16 else "",
    )
    room = max(0, width - 3 - values.cell_length)
    chart = spark(gpu.utilization_history, room, 100).rjust(room)
    return Content.assemble(head, (chart, "$accent 75%"), " ", values)


def processes_lines(gpu: GpuReading) -> list[Content]:
    """Who holds memory of the card: this job's processes first, each with its name and GiB."""
    if not gpu.processes:
        return []
    lines = []
    for process in sorted(gpu.processes, key=lambda process: (not process.mine, -(process.memory_used_bytes or 0))):
        held = tr("unknown") if process.memory_used_bytes is None else f"{gib(process.memory_used_bytes)} GiB"
        whose = (f"{marks.here} {tr('this job')}", "$accent") if process.mine else (f"  {tr('other')}", "$muted")
        name = plain_text(process.name or tr("not visible from here"), 40)
        lines.append(
            Content.assemble(f"{process.pid:>9}  {pad(held, 10, right=True)}  ", (pad(whose[0], 12), whose[1]), name)
        )
    return lines


def whole_card(gpu: GpuReading, planned: Planned, width: int, height: int) -> list[Content]:
    """One card, and who holds its memory: only with the whole screen, elsewhere the line below the memory sums them up."""
    lines, processes = card_lines(gpu, planned, width, height), processes_lines(gpu)
    return [*lines, Content(), *processes] if processes and ALL_LINES > height > len(lines) + 3 else lines


def mig_words(gpu: GpuReading) -> str:
    """Of a slice its profile, of a card that is cut up "enabled"; of one that is used whole, as most are, nothing."""
    return "" if gpu.mig in (None, "disabled") else gpu.mig


def short_name(name: str) -> str:
    """ "NVIDIA GeForce RTX 2080 SUPER" as "RTX 2080 SUPER"."""
    return plain_text(name, 40).removeprefix("NVIDIA ").removeprefix("GeForce ")


def part_of(part: float | None, whole: float | None) -> str:
    """Of so many GiB: "5.3 of 7.8"."""
    return tr("{part} of {whole}", part=gib(part), whole=gib(whole))


def of_limit(value: float, limit: float | None) -> str:
    """ "280 of 300"; the value alone where no limit is known."""
    return f"{value:,.0f}" if limit is None else tr("{part} of {whole}", part=f"{value:,.0f}", whole=f"{limit:,.0f}")


def memory_words(gpu: GpuReading) -> Content:
    return Content(f"{part_of(gpu.memory_used_bytes, gpu.memory_total_bytes)} GiB")


def heat_words(gpu: GpuReading) -> Content:
    if gpu.temperature_c is None:
        return Content.styled(tr("not readable"), "$muted")
    throttles = limited_by_heat(gpu.throttle_reasons)
    text = f"{gpu.temperature_c:.0f} °C"
    if throttles:
        text = tr("{heat}, throttled", heat=text)
    return Content.styled(text, "$warning" if throttles or gpu.temperature_c >= HOT_C else "$foreground")


def _reasons(held: Sequence[str]) -> str:
    return tr(" and ").join(tr(plain_text(reason, 30)) for reason in held)


def unit(value: float | None, name: str) -> Content:
    return Content.styled(tr("not readable"), "$muted") if value is None else Content(f"{value:.0f}{name}")


def share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


MOST_ROWS = 16
CARD_HEIGHT = 4
ALL_LINES = 99
LEAST_WIDTH = 40
"""Before the first layout no width is known."""


class DevicePanel(MonitorPanel):
    help_text = mark(
        "The state of the device. util is the share of time in which the GPU computed anything at all; a low value "
        "means that it waits for data or for other processes. The line in the memory bar is the planned "
        "peak; below the bar: memory used by this job, by other processes, and by no known process (the "
        "driver). Power is shown against its limit. When temperature or power throttle the clock, this is "
        "reported in words. With several GPUs, the arrow keys choose one, which is shown in full where this panel has "
        "the whole screen. Without a GPU, the panel shows the CPU load of the job: 100% is one core."
    )
    key_table: ClassVar[ScreenName | None] = "cards"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("cards")]

    _cursor = 0
    _lines_wanted = 0

    @property
    def chosen_gpu(self) -> int | None:
        """The place among the GPUs of the one with the cursor; None where there is none."""
        cards = 0 if self.snapshot is None else len(self.snapshot.used_gpus)
        return min(self._cursor, cards - 1) if cards else None

    def action_move_card(self, by: int) -> None:
        if self.snapshot is not None and self.snapshot.used_gpus:
            self._cursor = max(0, min(len(self.snapshot.used_gpus) - 1, self._cursor + by))
            self.refresh()

    def on_focus(self) -> None:
        # The mark of the chosen card comes and goes with the focus.
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def show(self, snapshot: Snapshot) -> None:
        wanted = self._wanted_lines(snapshot, self.content_size.width)
        if wanted != self._lines_wanted:
            self._lines_wanted = wanted
            self.refresh(layout=True)
        super().show(snapshot)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
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
            parts = [_gpus(gpus), last]
        return f" {marks.dot} ".join(filter(None, parts))

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        gpus = snapshot.used_gpus
        if not gpus:
            return self._cpu(snapshot, width) if snapshot.host.sample else self.wrapped(machine_reason(snapshot), width)
        if len(gpus) == 1:
            return whole_card(gpus[0], snapshot.planned, width, height)
        chosen = self.chosen_gpu if self.has_focus else None
        rows = [row(gpu, width, chosen=place == chosen) for place, gpu in enumerate(gpus)]
        if len(gpus) > height:
            return [_cards_line(gpus, ""), *rows]
        room = height - len(rows) - 2
        if chosen is None or room < CARD_HEIGHT:
            return rows
        gpu = gpus[chosen]
        title = Content.styled(f"GPU {gpu.index} {marks.dot} {short_name(gpu.name)}", "bold")
        return [*rows, Content(), title, *whole_card(gpu, snapshot.planned, width, room)]

    def _cpu(self, snapshot: Snapshot, width: int) -> list[Content]:
        host, loads = snapshot.host, snapshot.job_cpu_history
        highest = max([100.0, *(load for load in loads if load is not None)])
        charts = (
            (tr("job"), loads, highest, loads[-1] if loads else None),
            (tr("machine"), host.cpu_history, 100, host.cpu_percent),
        )
        lines = [
            spark_meter(label, history, top, load_words(load, tr("% CPU")), width, 13)
            for label, history, top, load in charts
        ]
        label, held = _held_on_cpu(snapshot)
        if held is not None:
            total, planned = host.ram_total_bytes, share(snapshot.planned.memory_bytes, host.ram_total_bytes)
            value = Content(f"{part_of(held, total)} GiB")
            lines.append(bar_meter(label, share(held, total), value, width, planned))
        return [*lines, *self.wrapped(_no_gpu_reason(snapshot), width)[:2]]


def _held_on_cpu(snapshot: Snapshot) -> tuple[str, int | None]:
    """What stands against the plan, which speaks of all training processes; without a plan, all of the job."""
    trainers = [process.rss_bytes for process in snapshot.processes if process.role == "trainer" and process.rss_bytes]
    if snapshot.planned.memory_bytes is not None and trainers:
        return tr("trainer") if len(trainers) == 1 else tr("trainers"), sum(trainers)
    return tr("RAM"), snapshot.job_rss_bytes


def load_words(value: float | None, name: str) -> Content:
    """A load is known from the second sample on."""
    return Content.styled(tr("not known yet"), "$muted") if value is None else unit(value, name)


def _no_gpu_reason(snapshot: Snapshot) -> str:
    if snapshot.gpus:
        return trn(
            "This machine has a GPU, but the run uses the CPU.",
            "This machine has {n} GPUs, but the run uses the CPU.",
            len({gpu.index for gpu in snapshot.gpus}),
        )
    about = (reason for key, reason in snapshot.unavailable.items() if "gpu" in key.lower() or "nvml" in key.lower())
    reason = next(about, "")
    return tr("no GPU: {reason}", reason=plain_text(reason)) if reason else tr("No GPU on this machine.")


def device_line(snapshot: Snapshot) -> Content:
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
        parts.append(Content(span(f"{min(busy):.0f}", f"{max(busy):.0f}") + "%"))
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
