"""Lines about GPUs: one card in full, many cards in a row each, or in a cell each where there is little room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.core.language import tr
from trainwiz.core.telemetry.machine import limited_by_heat, real_throttling
from trainwiz.core.text import moment_words, plain_text
from trainwiz.tui.text import GIB, cells, gib, pad
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.monitor_panel import LABEL_WIDTH, bar_meter, join_fitting, labelled, spark, spark_meter

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import GpuReading, Planned

ROW_WITH_POWER = 48
HOT_C = 83.0
HOTTEST_C = 100.0
VALUE_WIDTH = 15
SMALL_BYTES = 0.2 * GIB
"""What a driver itself holds of a card; less than this is no other job."""
CELL_WIDTH = 12


def card_lines(gpu: GpuReading, planned: Planned, width: int, height: int, marks: Marks) -> list[Content]:
    """One card in at most `height` lines; with little room heat and power share one."""
    if gpu.problem:
        words = tr("cannot be read: {reason}", reason=plain_text(gpu.problem))
        return [Content.styled(f"{marks.tight} {words}", "$warning")]
    value_width = VALUE_WIDTH if width >= 36 else 0

    def spark_line(label: str, history: Sequence[float | None], highest: float, value: Content) -> Content:
        return spark_meter(label, history, highest, value, width, marks, value_width)

    busy = spark_line(tr("busy"), gpu.utilization_history, 100, unit(gpu.utilization_percent, "%"))
    total = gpu.memory_total_bytes
    filled, expected = share(gpu.memory_used_bytes, total), share(planned.memory_bytes, total)
    memory = bar_meter(tr("memory"), filled, memory_words(gpu), width, marks, expected, value_width)
    watts, heat = power_words(gpu), heat_words(gpu)
    if height < 4:
        room = width - LABEL_WIDTH - heat.cell_length - 3
        short = Content("" if gpu.power_w is None else f"{gpu.power_w:.0f} W")
        tail = next((words for words in (watts, short) if words.cell_length <= room), Content())
        return [busy, memory, labelled(tr("heat"), Content.assemble(heat, "   ", (tail.plain, "$muted")))]
    top_watts = gpu.power_limit_w or max((watt for watt in gpu.power_history if watt is not None), default=1.0)
    power = spark_line(tr("power"), gpu.power_history, top_watts, watts)
    warmth = spark_line(tr("heat"), gpu.temperature_history, HOTTEST_C, heat)
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
    """The clock, what holds it back, and the fan, as far as they are known; the highest clock goes first."""
    parts, shorter = [], []
    if gpu.clock_mhz is not None:
        shorter = [Content(f"{gpu.clock_mhz:,.0f} MHz")]
        parts = [Content(f"{of_limit(gpu.clock_mhz, gpu.clock_limit_mhz)} MHz")]
    # The line of the heat tells of heat.
    held = [reason for reason in real_throttling(gpu.throttle_reasons) if not limited_by_heat([reason])]
    rest = [Content.styled(tr("held by {reasons}", reasons=_reasons(held)), "$warning")] if held else []
    if gpu.fan_percent is not None:
        rest.append(Content(tr("fan {share}", share=f"{gpu.fan_percent:.0f} %")))
    room = width - LABEL_WIDTH
    line = Content("   ").join([*parts, *rest])
    if line.cell_length > room:
        line = join_fitting([*shorter, *rest], room)
    return [labelled(tr("clock"), line)] if line else []


def row(gpu: GpuReading, width: int, marks: Marks, *, chosen: bool = False) -> Content:
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
    chart = spark(gpu.utilization_history, room, 100, marks).rjust(room)
    return Content.assemble(head, (chart, "$accent 75%"), " ", values)


def card_cells(gpus: Sequence[GpuReading], width: int, height: int, marks: Marks) -> list[Content]:
    """All cards in `height` lines, several in each: "0: 90%  9.1" is number, busy, GiB used; a mark where one needs a look."""
    columns = max(1, width // CELL_WIDTH)
    room = columns * height
    shown = list(gpus) if len(gpus) <= room else list(gpus)[: max(0, room - 1)]
    parts = [_cell(gpu, marks) for gpu in shown]
    if len(shown) < len(gpus):
        parts.append(Content.styled(tr("{n} more", n=len(gpus) - len(shown)), "$muted"))
    padded = [part.pad_right(max(0, CELL_WIDTH - part.cell_length)) for part in parts]
    return [Content("").join(padded[start : start + columns]) for start in range(0, len(padded), columns)]


def _cell(gpu: GpuReading, marks: Marks) -> Content:
    number = (f"{gpu.index}:", "$muted")
    if gpu.problem:
        return Content.assemble(number, (f" {marks.tight} {tr('lost')}", "$warning"))
    busy = "?" if gpu.utilization_percent is None else f"{gpu.utilization_percent:.0f}%"
    slowed = limited_by_heat(gpu.throttle_reasons)
    sign = (marks.tight, "$warning") if slowed else (" ", "")
    return Content.assemble(number, f"{busy:>4}{gib(gpu.memory_used_bytes):>5}", sign)


def processes_lines(gpu: GpuReading, marks: Marks) -> list[Content]:
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


def power_words(gpu: GpuReading) -> Content:
    return Content(tr("not readable") if gpu.power_w is None else f"{of_limit(gpu.power_w, gpu.power_limit_w)} W")


def heat_words(gpu: GpuReading) -> Content:
    if gpu.temperature_c is None:
        return Content.styled(tr("not readable"), "$muted")
    throttles = limited_by_heat(gpu.throttle_reasons)
    text = f"{gpu.temperature_c:.0f} °C"
    if throttles:
        text = tr("{heat}, throttles", heat=text)
    return Content.styled(text, "$warning" if throttles or gpu.temperature_c >= HOT_C else "$foreground")


def held_words(gpu: GpuReading) -> str:
    """What holds the clock back, and since when, as a sentence."""
    held = real_throttling(gpu.throttle_reasons)
    if not held:
        return tr("Nothing holds the clock back.")
    if gpu.throttled_since_s is None:
        return tr("The clock is held back by {reasons}.", reasons=_reasons(held))
    since = moment_words(gpu.throttled_since_s, "%H:%M")
    return tr("The clock is held back by {reasons} since {time}.", reasons=_reasons(held), time=since)


def _reasons(held: Sequence[str]) -> str:
    return tr(" and ").join(tr(plain_text(reason, 30)) for reason in held)


def unit(value: float | None, name: str) -> Content:
    return Content.styled(tr("not readable"), "$muted") if value is None else Content(f"{value:.0f} {name}")


def share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
