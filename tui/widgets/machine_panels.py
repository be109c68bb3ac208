"""DevicePanel: the GPUs; where there is none, the CPU load of the job, and it says so. HostPanel: RAM and disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Size
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.telemetry.machine import limited_by_heat
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import ScreenName, bindings
from trainwiz.tui.text import GIB, duration, gib, pad, span
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.monitor_panel import (
    LABEL_WIDTH,
    MonitorPanel,
    bar_meter,
    join_fitting,
    labelled,
    machine_reason,
    quiet,
    spark,
    spark_meter,
    wrapped,
)

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import GpuReading, Planned, Snapshot

# Words for figures, of which each may be unknown.


def unit(value: float | None, name: str) -> Content:
    return Content.styled(tr("unknown"), "$muted") if value is None else Content(f"{value:.0f}{name}")


def share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def part_of(part: float | None, whole: float | None) -> str:
    """Of so many GiB: "5.3 of 7.8"."""
    return tr("{part} of {whole}", part=gib(part), whole=gib(whole))


def of_limit(value: float, limit: float | None) -> str:
    """ "280 of 300"; the value alone where no limit is known."""
    return f"{value:,.0f}" if limit is None else tr("{part} of {whole}", part=f"{value:,.0f}", whole=f"{limit:,.0f}")


# Lines about GPUs: one card in full, many cards in a row each.

ROW_WITH_POWER = 48
HOT_C = 83.0
HOTTEST_C = 100.0
SMALL_BYTES = 0.2 * GIB
"""What a driver itself holds of a card; less than this is no other job."""


def heat_words(gpu: GpuReading) -> Content:
    throttled = limited_by_heat(gpu.throttle_reasons)
    heat = unit(gpu.temperature_c, " °C")
    if gpu.temperature_c is None or (gpu.temperature_c < HOT_C and not throttled):
        return heat
    return Content.styled(tr("{heat}, throttled", heat=heat.plain) if throttled else heat.plain, "$warning")


def mig_words(gpu: GpuReading) -> str:
    """Of a slice its profile, of a card that is cut up "enabled"; of one that is used whole, as most are, nothing."""
    return "" if gpu.mig in (None, "disabled") else gpu.mig


def short_name(name: str) -> str:
    """ "NVIDIA GeForce RTX 2080 SUPER" as "RTX 2080 SUPER"."""
    return plain_text(name, 40).removeprefix("NVIDIA ").removeprefix("GeForce ")


def card_lines(gpu: GpuReading, planned: Planned, width: int) -> list[Content]:
    """One card, the most important lines first."""
    if gpu.problem:
        return [Content.assemble((f"{marks.tight} ", "$warning"), *gpu_parts(gpu, planned))]
    total, room = gpu.memory_total_bytes, width - LABEL_WIDTH
    memory = Content(f"{part_of(gpu.memory_used_bytes, total)} GiB")
    watts = unit(None, "") if gpu.power_w is None else Content(f"{of_limit(gpu.power_w, gpu.power_limit_w)} W")
    most_watts = gpu.power_limit_w or max((watt for watt in gpu.power_history if watt is not None), default=1.0)
    lines = [
        spark_meter(tr("util"), gpu.utilization_history, 100, unit(gpu.utilization_percent, "%"), width),
        bar_meter(tr("memory"), share(gpu.memory_used_bytes, total), memory, width, share(planned.memory_bytes, total)),
        spark_meter(tr("temp"), gpu.temperature_history, HOTTEST_C, heat_words(gpu), width),
        spark_meter(tr("power"), gpu.power_history, most_watts, watts, width),
    ]
    more = (("GiB", holder_parts(gpu, planned)), (tr("clock"), clock_parts(gpu)))
    return [*lines, *(labelled(label, join_fitting(parts, room)) for label, parts in more if parts)]


def holder_parts(gpu: GpuReading, planned: Planned) -> list[Content]:
    """ "this job 5.1", "others 2.0", "planned 5.4", "driver 0.5": GiB, as far as they are known."""
    if gpu.job_memory_bytes is None:
        held = [(mark("planned {amount}"), planned.memory_bytes)]
    else:
        others = sum(process.memory_used_bytes or 0 for process in gpu.processes if not process.mine)
        # No process is known for the rest: the driver's own, mostly.
        rest = (gpu.memory_used_bytes or 0) - gpu.job_memory_bytes - others
        held = [
            (mark("this job {amount}"), gpu.job_memory_bytes),
            (mark("others {amount}"), others if others > SMALL_BYTES else None),
            (mark("planned {amount}"), planned.memory_bytes),
            (mark("driver {amount}"), rest if rest > SMALL_BYTES else None),
        ]
    return [Content(tr(words, amount=gib(amount))) for words, amount in held if amount is not None]


def clock_parts(gpu: GpuReading) -> list[Content]:
    """The clock, what else than heat holds it back, and the fan, as far as they are known."""
    held = [reason for reason in gpu.throttle_reasons if not limited_by_heat([reason])]
    parts = [] if gpu.clock_mhz is None else [Content(f"{of_limit(gpu.clock_mhz, gpu.clock_limit_mhz)} MHz")]
    if held:
        reasons = tr(" and ").join(tr(plain_text(reason, 30)) for reason in held)
        parts.append(Content.styled(tr("throttled: {reasons}", reasons=reasons), "$warning"))
    return parts if gpu.fan_percent is None else [*parts, Content(tr("fan {share}", share=f"{gpu.fan_percent:.0f}%"))]


def process_lines(gpu: GpuReading) -> list[Content]:
    """Who holds memory of the card: this job's processes first."""
    lines = []
    for process in sorted(gpu.processes, key=lambda process: (not process.mine, -(process.memory_used_bytes or 0))):
        whose = (f"{marks.here} {tr('this job')}", "$accent") if process.mine else (f"  {tr('other')}", "$muted")
        held, name = f"{gib(process.memory_used_bytes)} GiB", plain_text(process.name or tr("unknown"), 40)
        numbers = f"{process.pid:>9}  {pad(held, 10, right=True)}  "
        lines.append(Content.assemble(numbers, (pad(whose[0], 12), whose[1]), name))
    return lines


def row(gpu: GpuReading, width: int, *, chosen: bool = False) -> Content:
    """One card in one line: number, busy, memory, heat, power."""
    head = Content.styled(f"{gpu.index}{marks.here if chosen else ' '} ", "$accent" if chosen else "$muted")
    if gpu.problem:
        return Content.assemble(head, (f"{marks.tight} {plain_text(gpu.problem)}", "$warning"))
    # Where a card is throttled, a mark beside its heat says so.
    sign = marks.tight if limited_by_heat(gpu.throttle_reasons) else " "
    parts = [
        (unit(gpu.utilization_percent, "%"), 5),
        (Content(f"{part_of(gpu.memory_used_bytes, gpu.memory_total_bytes)} GiB"), 17),
        (Content.styled(unit(gpu.temperature_c, " °C").plain + sign, "$warning" if sign.strip() else ""), 8),
        (unit(gpu.power_w, " W"), 6),
    ][: None if width >= ROW_WITH_POWER else 3]
    values = Content.assemble(*(value.pad_left(max(1, cells - value.cell_length)) for value, cells in parts))
    room = max(0, width - head.cell_length - values.cell_length)
    chart = spark(gpu.utilization_history, room, 100).rjust(room)
    return Content.assemble(head, (chart, "$accent 75%"), values)


def gpus_words(gpus: tuple[GpuReading, ...]) -> str:
    """The cards, and the MIG slices of them, which are no cards of their own."""
    cards = trn("{n} GPU", "{n} GPUs", len({gpu.index for gpu in gpus}))
    slices = sum(gpu.is_slice for gpu in gpus)
    if not slices:
        return cards
    return tr("{cards}, {slices}", cards=cards, slices=trn("{n} MIG slice", "{n} MIG slices", slices))


def cards_line(gpus: tuple[GpuReading, ...]) -> Content:
    """Several cards in one line: the range of each figure, and the hottest."""
    from trainwiz.core.telemetry.snapshot import without_parents

    readable = without_parents(gpu for gpu in gpus if not gpu.problem)
    busy = sorted(gpu.utilization_percent for gpu in readable if gpu.utilization_percent is not None)
    held = sorted(gpu.memory_used_bytes for gpu in readable if gpu.memory_used_bytes is not None)
    parts = [Content.styled(gpus_words(gpus), "$muted")]
    if lost := sum(bool(gpu.problem) for gpu in gpus):
        parts.append(Content.styled(tr("{n} not readable", n=lost), "$warning"))
    if busy:
        parts.append(Content(span(f"{busy[0]:.0f}", f"{busy[-1]:.0f}") + "%"))
    if held:
        parts.append(Content(span(gib(held[0]), gib(held[-1])) + " GiB"))
    if readable:
        parts.append(heat_words(max(readable, key=lambda gpu: gpu.temperature_c or 0)))
    return Content("   ").join(parts)


LEAST_WIDTH = 40
"""Before the first layout no width is known."""


class DevicePanel(MonitorPanel):
    help_text = mark(
        "The state of the device. util is the share of time in which the GPU computed anything at all; a low value "
        "means that it waits for data or for other processes. The line in the memory bar is the planned "
        "peak; below: memory used by this job, by other processes, and by no known process (the "
        "driver). Power is shown against its limit. When temperature or power throttle the clock, this is "
        "reported in words. With several GPUs, the arrow keys choose one, which is shown in full where this panel has "
        "the whole screen. Without a GPU, the panel shows the CPU load of the job: 100% is one core."
    )
    key_table: ClassVar[ScreenName | None] = "cards"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("cards")]

    _cursor = 0
    _height = 0

    def action_move_card(self, by: int) -> None:
        if self.snapshot is not None and self.snapshot.used_gpus:
            self._cursor = max(0, min(len(self.snapshot.used_gpus) - 1, self._cursor + by))
            self.refresh_changed()

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        height = self._lines_wanted(self.content_size.width)
        if height != self._height:
            self._height = height
            self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self._lines_wanted(width)

    def _lines_wanted(self, width: int) -> int:
        return 1 if self.snapshot is None else len(self._lines_at(self.snapshot, max(LEAST_WIDTH, width)))

    def title_of(self, snapshot: Snapshot) -> str:
        # What matters most comes first: a narrow frame cuts the title at its end.
        gpus, sample = snapshot.used_gpus, snapshot.host.sample
        last = tr("last reading") if snapshot.ending is not None and sample else ""
        if not gpus and not sample:
            return tr("device")
        if not gpus:
            parts = [tr("CPU load of the job"), last, tr("GPU not used") if snapshot.gpus else tr("no GPU")]
        elif len(gpus) == 1:
            mig = mig_words(gpus[0])
            parts = [f"GPU {gpus[0].index}", last, short_name(gpus[0].name), f"MIG {mig}" if mig else ""]
        else:
            parts = [gpus_words(gpus), last]
        return f" {marks.dot} ".join(filter(None, parts))

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        gpus, lines = snapshot.used_gpus, self._lines_at(snapshot, width)
        if len(gpus) > max(1, height):
            return [cards_line(gpus), *lines]
        if not gpus or not self.has_class("-maximized"):
            return lines
        gpu = gpus[min(self._cursor, len(gpus) - 1)]
        if len(gpus) > 1:
            title = Content.styled(f"GPU {gpu.index} {marks.dot} {short_name(gpu.name)}", "bold")
            lines += [Content(), title, *card_lines(gpu, snapshot.planned, width)]
        # Elsewhere the line below the memory sums them up.
        return [*lines, Content(), *process_lines(gpu)]

    def _lines_at(self, snapshot: Snapshot, width: int) -> list[Content]:
        gpus = snapshot.used_gpus
        if len(gpus) == 1:
            return card_lines(gpus[0], snapshot.planned, width)
        if gpus:
            chosen = min(self._cursor, len(gpus) - 1) if self.has_focus else None
            return [row(gpu, width, chosen=place == chosen) for place, gpu in enumerate(gpus)]
        return cpu_lines(snapshot, width) if snapshot.host.sample else wrapped(machine_reason(snapshot), width)


def cpu_lines(snapshot: Snapshot, width: int) -> list[Content]:
    host, loads = snapshot.host, snapshot.job_cpu_history
    highest = max([100.0, *(load for load in loads if load is not None)])
    lines = [
        spark_meter(tr("job"), loads, highest, unit(loads[-1] if loads else None, tr("% CPU")), width),
        spark_meter(tr("machine"), host.cpu_history, 100, unit(host.cpu_percent, tr("% CPU")), width),
    ]
    # The plan speaks of all training processes; without one, all of the job is shown.
    trainers = [process.rss_bytes for process in snapshot.processes if process.role == "trainer" and process.rss_bytes]
    label, held, planned = tr("RAM"), snapshot.job_rss_bytes, snapshot.planned.memory_bytes
    if planned is not None and trainers:
        label, held = tr("trainer") if len(trainers) == 1 else tr("trainers"), sum(trainers)
    if held is not None:
        total = host.ram_total_bytes
        value = Content(f"{part_of(held, total)} GiB")
        lines.append(bar_meter(label, share(held, total), value, width, share(planned, total)))
    return [*lines, *wrapped(_no_gpu_reason(snapshot), width)[:2]]


def _no_gpu_reason(snapshot: Snapshot) -> str:
    if snapshot.gpus:
        return trn(
            "This machine has a GPU, but the run uses the CPU.",
            "This machine has {n} GPUs, but the run uses the CPU.",
            len({gpu.index for gpu in snapshot.gpus}),
        )
    reason = snapshot.unavailable.get("gpus")
    return tr("no GPU: {reason}", reason=plain_text(reason)) if reason else tr("No GPU on this machine.")


def device_line(snapshot: Snapshot) -> Content:
    """The device in one line, for where its panel has no room."""
    if len(snapshot.used_gpus) > 1:
        return cards_line(snapshot.used_gpus)
    if not snapshot.used_gpus and not snapshot.host.sample:
        return Content.styled(f"{tr('device')}  {machine_reason(snapshot)}", "$muted")
    label, parts = device_parts(snapshot)[0]
    return Content("   ").join([Content.styled(label, "$muted"), *parts])


def device_parts(snapshot: Snapshot) -> list[tuple[str, list[Content]]]:
    """(subject, what is known of it) of each GPU, or of the CPU where none is used."""
    if snapshot.used_gpus:
        return [(f"GPU {gpu.index}", gpu_parts(gpu, snapshot.planned)) for gpu in snapshot.used_gpus]
    load = next((load for load in reversed(snapshot.job_cpu_history) if load is not None), None)
    return [("CPU", [quiet(tr("job"), unit(load, "%")), Content(_no_gpu_reason(snapshot))])]


def gpu_parts(gpu: GpuReading, planned: Planned) -> list[Content]:
    if gpu.problem:
        return [Content.styled(tr("cannot be read: {reason}", reason=plain_text(gpu.problem)), "$warning")]
    parts = [quiet(tr("util"), unit(gpu.utilization_percent, "%"))]
    if gpu.memory_used_bytes is not None:
        parts.append(Content(f"{part_of(gpu.memory_used_bytes, gpu.memory_total_bytes)} GiB"))
    if gpu.temperature_c is not None:
        parts.append(heat_words(gpu))
    if gpu.power_w is not None:
        parts.append(Content(f"{of_limit(gpu.power_w, gpu.power_limit_w)} W"))
    held = tr(", ").join(part.plain for part in holder_parts(gpu, planned))
    return [*parts, *([Content(f"{held} GiB")] if held else []), *clock_parts(gpu)]


# RAM and disk.

ROLE_NAMES = {
    "trainer": (mark("trainer"), mark("trainers")),
    "loader": (mark("worker"), mark("workers")),
    "launcher": (mark("launcher"), mark("launchers")),
    "supervisor": (mark("supervisor"), mark("supervisor")),
}
LEAST_BYTES = 16 * 1024**2
DISK_WORTH_SAYING_S = 30 * 86400.0


class HostPanel(MonitorPanel):
    help_text = mark(
        "RAM of the processes of this run, by role: trainers compute, workers load data, the supervisor looks after "
        "the run. Below: the whole machine, and the free disk space; if it shrinks, how long it will last."
    )

    def title_of(self, snapshot: Snapshot) -> str:
        last = snapshot.ending is not None and bool(snapshot.host.sample)
        return self._title + (f" {marks.dot} {tr('last reading')}" if last else "")

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        host = snapshot.host
        if not host.sample:
            # The panel of the device has the reason of a job that is not seen here.
            is_run = snapshot.source == "run"
            return wrapped(
                machine_reason(snapshot) if is_run else tr("Its processes, RAM and disk are unknown."), width
            )
        roles = role_parts(snapshot)
        reason = plain_text(snapshot.unavailable.get("processes") or tr("The run has no processes now."), 300)
        used = Content(f"{part_of(host.ram_used_bytes, host.ram_total_bytes)} GiB")
        return [
            Content.assemble(join_fitting(roles, width - 4), " GiB") if roles else Content.styled(reason, "$muted"),
            bar_meter(tr("machine"), share(host.ram_used_bytes, host.ram_total_bytes), used, width),
            disk_content(snapshot),
            spark_meter("CPU", host.cpu_history, 100, unit(host.cpu_percent, "%"), width),
        ]


def role_parts(snapshot: Snapshot) -> list[Content]:
    """ "trainer 9.8", "workers 12 × 0.7", ...: GiB by role, the largest first."""
    groups: dict[str, list[int]] = {}
    for process in snapshot.processes:
        role = "supervisor" if process.role == "guard" else process.role
        groups.setdefault(role, []).append(process.rss_bytes or 0)
    parts = []
    for role, sizes in sorted(groups.items(), key=lambda item: -sum(item[1])):
        if (total := sum(sizes)) >= LEAST_BYTES:
            several = len(sizes) > 1 and role != "supervisor"
            # Below one GiB two decimals: what is read here adds up to what ps says.
            each = total / GIB / (len(sizes) if several else 1)
            amount = f"{each:.2f}" if each < 1 else f"{each:.1f}"
            name = ROLE_NAMES.get(role, (plain_text(role, 16),) * 2)[several]
            parts.append(quiet(tr(name), f"{len(sizes)} {marks.times} {amount}" if several else amount))
    return parts


def disk_content(snapshot: Snapshot) -> Content:
    """How long the free disk lasts where it shrinks, else how much there is."""
    host = snapshot.host
    if snapshot.ending is None and host.disk_lasts_s is not None and host.disk_lasts_s < DISK_WORTH_SAYING_S:
        return quiet(tr("disk"), tr("full in {time} at this rate", time=duration(host.disk_lasts_s)))
    if host.disk_free_bytes is None:
        return quiet(tr("disk"), tr("unknown"))
    return quiet(tr("disk"), tr("{amount} GiB free", amount=f"{host.disk_free_bytes / GIB:,.1f}"))


def host_parts(snapshot: Snapshot) -> list[Content]:
    """RAM and disk in one line."""
    if not snapshot.host.sample:
        return [quiet(tr("RAM and disk"), tr("unknown"))]
    job, used = snapshot.job_rss_bytes, part_of(snapshot.host.ram_used_bytes, snapshot.host.ram_total_bytes)
    words = tr("machine {used} GiB", used=used)
    if job is not None:
        words = tr("run {job}, machine {used} GiB", job=gib(job), used=used)
    return [quiet(tr("RAM"), words), disk_content(snapshot)]
