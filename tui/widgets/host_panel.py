"""HostPanel: RAM of the run by the role of its processes, RAM of the machine, the disk; all in four lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text
from trainwiz.tui.text import GIB, duration, gib, pad
from trainwiz.tui.theme import UNICODE_MARKS, Marks
from trainwiz.tui.widgets.device_panel import device_line
from trainwiz.tui.widgets.lists import LinedWidget
from trainwiz.tui.widgets.monitor_panel import (
    SHORT,
    MonitorPanel,
    advice_line,
    bar_meter,
    join_fitting,
    machine_reason,
    spark_meter,
    spread,
)
from trainwiz.tui.widgets.pace_panel import token_parts

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot


# HostPanel: RAM of the run by the role of its processes, RAM of the machine, and the disk.

ROLE_NAMES = {
    "trainer": (mark("trainer"), mark("trainers")),
    "loader": (mark("worker"), mark("workers")),
    "launcher": (mark("launcher"), mark("launchers")),
    "supervisor": (mark("supervisor"), mark("supervisors")),
    "guard": (mark("supervisor"), mark("supervisors")),
}
ROOM_FOR_REASON = 4
SMALL_BYTES = GIB
"""Below it two decimals: what is read here adds up to what ps says."""
LEAST_BYTES = 16 * 1024**2
DISK_WORTH_SAYING_S = 30 * 86400.0


class HostPanel(MonitorPanel):
    help_text = mark(
        "Memory of the processes of this run by what they do: trainers compute, workers read data, the supervisor "
        "keeps the run. Below it the whole machine, and the free disk; where the disk shrinks, how long it lasts."
    )

    def title_of(self, snapshot: Snapshot) -> str:
        last = snapshot.ending is not None and bool(snapshot.host.sample)
        return self._title + (f" {self.marks.dot} {tr('last reading')}" if last else "")

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        if not snapshot.host.sample:
            known = snapshot.source == "run" or height > ROOM_FOR_REASON
            return self.wrapped(machine_reason(snapshot) if known else tr(SHORT), width)
        parts = role_parts(snapshot, self.marks.times)
        if parts:
            roles = spread(
                join_fitting(parts, width - 5, 3 if width >= 58 else 2), Content.styled("GiB", "$muted"), width
            )
        else:
            roles = Content.styled(no_processes(snapshot), "$muted")
        host = snapshot.host
        used = tr("{part} of {whole}", part=gib(host.ram_used_bytes), whole=gib(host.ram_total_bytes))
        machine = bar_meter(
            tr("machine"),
            host.ram_used_bytes / host.ram_total_bytes if host.ram_used_bytes and host.ram_total_bytes else None,
            Content(used + " GiB"),
            width,
            self.marks,
        )
        disk = disk_content(snapshot, width)
        if height < 3:
            short = Content(f"{tr('machine')} {used} GiB")
            return [roles, spread(short, disk_content(snapshot), width)]
        lines: list[Content] = [roles, machine, disk]
        if height > len(lines) and host.cpu_percent is not None:
            value = Content(f"{host.cpu_percent:.0f} %")
            lines.append(spark_meter("CPU", host.cpu_history, 100, value, width, self.marks))
        if height > len(lines) + 2 and snapshot.processes:
            lines += [Content(), *process_lines(snapshot, width, height - len(lines) - 1)]
        return lines


def process_lines(snapshot: Snapshot, width: int, height: int) -> list[Content]:
    """A table of the processes, the largest first; what has no room is counted."""
    head = Content.styled(f"{'pid':>9}  {pad(tr('role'), 12)}{'GiB':>7}{'CPU':>8}", "$muted")
    ordered = sorted(snapshot.processes, key=lambda process: -(process.rss_bytes or 0))
    rows = []
    for process in ordered:
        role = tr(ROLE_NAMES[process.role][0]) if process.role in ROLE_NAMES else plain_text(process.role, 11)
        memory = "?" if process.rss_bytes is None else _gib(process.rss_bytes)
        cpu = "?" if process.cpu_percent is None else f"{process.cpu_percent:.0f} %"
        rows.append(
            Content(f"{process.pid if process.pid is not None else '?':>9}  {pad(role, 12)}{memory:>7}{cpu:>8}")
        )
    room = max(0, height - 1)
    if len(rows) > room:
        rows = [*rows[: max(0, room - 1)], Content.styled(tr("{n} more", n=len(rows) - max(0, room - 1)), "$muted")]
    return [head, *rows]


def no_processes(snapshot: Snapshot) -> str:
    reason = snapshot.unavailable.get("processes")
    return plain_text(reason, 300) if reason else tr("The run has no processes now.")


def role_parts(snapshot: Snapshot, times: str) -> list[Content]:
    """ "trainer 9.8", "workers 12 × 0.7", ...: GiB by role, the largest first."""
    groups: dict[str, list[int]] = {}
    for process in snapshot.processes:
        if process.rss_bytes is not None:
            role = "supervisor" if process.role == "guard" else process.role
            groups.setdefault(role, []).append(process.rss_bytes)
    groups = {role: sizes for role, sizes in groups.items() if sum(sizes) >= LEAST_BYTES}
    parts = []
    for role, sizes in sorted(groups.items(), key=lambda item: -sum(item[1])):
        one, many = ROLE_NAMES.get(role, (plain_text(role, 16), plain_text(role, 16)))
        alike = len(sizes) > 1 and role != "supervisor"
        amount = f"{len(sizes)} {times} {_gib(sum(sizes) / len(sizes))}" if alike else _gib(sum(sizes))
        parts.append(Content.assemble((f"{tr(many if alike else one)} ", "$muted"), amount))
    return parts


def disk_content(snapshot: Snapshot, width: int = 0) -> Content:
    """Free disk; where it shrinks, how long it lasts, with the free room where `width` holds both."""
    host, label = snapshot.host, (tr("disk") + " ", "$muted")
    if host.disk_free_bytes is None:
        return Content.assemble(label, tr("unknown"))
    amount = host.disk_free_bytes / GIB
    free = tr("{amount} GiB free", amount=f"{amount:,.0f}" if amount >= 100 else f"{amount:.1f}")
    if snapshot.ending is None and host.disk_lasts_s is not None and host.disk_lasts_s < DISK_WORTH_SAYING_S:
        lasts = tr("{time} at this pace", time=duration(host.disk_lasts_s))
        both = Content.assemble(label, tr("{free}, {lasts}", free=free, lasts=lasts))
        return both if both.cell_length <= width else Content.assemble(label, lasts)
    return Content.assemble(label, free)


def _gib(amount: float) -> str:
    return f"{amount / GIB:.2f}" if amount < SMALL_BYTES else f"{amount / GIB:.1f}"


def host_line(snapshot: Snapshot) -> Content:
    """The host in one line, for small terminals."""
    if not snapshot.host.sample:
        return Content.styled(f"{tr('RAM and disk')}  {tr('not known')}", "$muted")
    job = snapshot.job_rss_bytes
    used = tr("{part} of {whole}", part=gib(snapshot.host.ram_used_bytes), whole=gib(snapshot.host.ram_total_bytes))
    words = tr("all {used} GiB", used=used) if job is None else tr("run {job}, all {used} GiB", job=gib(job), used=used)
    return Content.assemble(
        ((tr("RAM") if snapshot.ending is None else tr("RAM at the end")) + "  ", "$muted"),
        f"{words}   ",
        disk_content(snapshot),
    )


# MonitorSummary: device, host, pace and the worst advice in one line each, where panels have no room.


class MonitorSummary(LinedWidget):
    DEFAULT_CSS = """
    MonitorSummary { height: 4; padding: 0 1; color: $foreground; }
    """

    def __init__(self, *, marks: Marks = UNICODE_MARKS, id: str | None = None) -> None:
        super().__init__(id=id)
        self.marks = marks
        self.snapshot: Snapshot | None = None

    def show(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.refresh_changed()

    def content_lines(self) -> list[Content]:
        snapshot, width = self.snapshot, self.content_size.width
        if snapshot is None or width <= 0:
            return []
        lines = [device_line(snapshot), host_line(snapshot), join_fitting(token_parts(snapshot), width)]
        if snapshot.advice:
            worst = snapshot.advice[0]
            mark = {"error": self.marks.bad, "warning": self.marks.tight, "ok": self.marks.ok}.get(
                worst.level, self.marks.dot
            )
            lines.append(advice_line(worst, mark))
        return [line.truncate(width, ellipsis=True) for line in lines]
