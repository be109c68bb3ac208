"""HostPanel: RAM of the run and of the machine, and the disk. PacePanel: tokens a second and steps against the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.telemetry.words import span_words
from trainwiz.core.text import moment_words, plain_text
from trainwiz.tui.text import GIB, duration, gib, span, step_seconds
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.device_panel import device_line, part_of, share
from trainwiz.tui.widgets.lists import level_sign
from trainwiz.tui.widgets.monitor_panel import (
    SHORT,
    MonitorPanel,
    SnapshotView,
    bar_meter,
    join_fitting,
    labelled,
    machine_reason,
    pace_reason,
    quiet,
    spark_meter,
    spread,
)

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot


ROLE_NAMES = {
    "trainer": (mark("trainer"), mark("trainers")),
    "loader": (mark("worker"), mark("workers")),
    "launcher": (mark("launcher"), mark("launchers")),
    "supervisor": (mark("supervisor"), mark("supervisors")),
    "guard": (mark("supervisor"), mark("supervisors")),
}
ROOM_FOR_REASON = 4
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
            known = snapshot.source == "run" or height > ROOM_FOR_REASON
            return self.wrapped(machine_reason(snapshot) if known else tr(SHORT), width)
        if parts := role_parts(snapshot):
            fitting = join_fitting(parts, width - 5, 3 if width >= 58 else 2)
            roles = spread(fitting, Content.styled("GiB", "$muted"), width)
        else:
            reason = snapshot.unavailable.get("processes")
            said = plain_text(reason, 300) if reason else tr("The run has no processes now.")
            roles = Content.styled(said, "$muted")
        used = part_of(host.ram_used_bytes, host.ram_total_bytes)
        if height < 3:
            return [roles, spread(Content(f"{tr('machine')} {used} GiB"), disk_content(snapshot), width)]
        filled = share(host.ram_used_bytes, host.ram_total_bytes)
        machine = bar_meter(tr("machine"), filled, Content(f"{used} GiB"), width)
        lines = [roles, machine, disk_content(snapshot)]
        if height > len(lines) and host.cpu_percent is not None:
            value = Content(f"{host.cpu_percent:.0f}%")
            lines.append(spark_meter("CPU", host.cpu_history, 100, value, width))
        return lines


def role_parts(snapshot: Snapshot) -> list[Content]:
    """ "trainer 9.8", "workers 12 × 0.7", ...: GiB by role, the largest first."""
    groups: dict[str, list[int]] = {}
    for process in snapshot.processes:
        if process.rss_bytes is not None:
            role = "supervisor" if process.role == "guard" else process.role
            groups.setdefault(role, []).append(process.rss_bytes)
    parts = []
    for role, sizes in sorted(groups.items(), key=lambda item: -sum(item[1])):
        if (total := sum(sizes)) >= LEAST_BYTES:
            several = len(sizes) > 1 and role != "supervisor"
            amount = f"{len(sizes)} {marks.times} {exact_gib(total / len(sizes))}" if several else exact_gib(total)
            parts.append(quiet(tr(ROLE_NAMES.get(role, (plain_text(role, 16),) * 2)[several]), amount))
    return parts


def exact_gib(amount: float) -> str:
    """Below one GiB two decimals: what is read here adds up to what ps says."""
    return f"{amount / GIB:.2f}" if amount < GIB else f"{amount / GIB:.1f}"


def disk_content(snapshot: Snapshot) -> Content:
    """How long the free disk lasts where it shrinks, else how much there is."""
    host = snapshot.host
    if snapshot.ending is None and host.disk_lasts_s is not None and host.disk_lasts_s < DISK_WORTH_SAYING_S:
        return quiet(tr("disk"), tr("full in {time} at this rate", time=duration(host.disk_lasts_s)))
    if host.disk_free_bytes is None:
        return quiet(tr("disk"), tr("unknown"))
    amount = host.disk_free_bytes / GIB
    free = f"{amount:,.0f}" if amount >= 100 else f"{amount:.1f}"
    return quiet(tr("disk"), tr("{amount} GiB free", amount=free))


def host_line(snapshot: Snapshot) -> Content:
    if not snapshot.host.sample:
        return Content.styled(f"{tr('RAM and disk')}  {tr('unknown')}", "$muted")
    job, used = snapshot.job_rss_bytes, part_of(snapshot.host.ram_used_bytes, snapshot.host.ram_total_bytes)
    words = (
        tr("machine {used} GiB", used=used)
        if job is None
        else tr("run {job}, machine {used} GiB", job=gib(job), used=used)
    )
    label = tr("RAM") if snapshot.ending is None else tr("RAM at the end")
    return Content.assemble(quiet(f"{label} ", words), "   ", disk_content(snapshot))


MUCH_WAIT = 0.25
FAR_S = 5 * 365.25 * 86400.0
"""A finish further away than this is no date."""


class PacePanel(MonitorPanel):
    help_text = mark(
        "The speed of the run. Non-padding tokens carry text; padded also counts the padding of short rows. Data "
        "wait is the share of a step in which the device waits for the next batch. Below: planned and "
        "measured step time, and the size of a step."
    )

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        steps = join_fitting(step_parts(snapshot), width)
        tokens, batch = (join_fitting(parts, width) for parts in (token_parts(snapshot), batch_parts(snapshot)))
        lines = [line for line in (tokens, steps, batch) if line]
        return [*lines, *since_lines(snapshot)] if height > len(lines) + 1 else lines


def token_parts(snapshot: Snapshot) -> list[Content]:
    pace = snapshot.pace
    rates = [(tr("non-pad"), pace.real_tokens_per_s), (tr("padded"), pace.tokens_per_s)]
    parts: list[Content] = []
    for label, rate in rates:
        if rate is not None:
            parts.append(quiet(label, f"{rate:,.0f}" if parts else tr("{n} tokens/s", n=f"{rate:,.0f}")))
    if not parts:
        return [Content.styled(pace_reason(snapshot), "$muted")]
    if pace.data_wait is not None:
        style = "$warning" if pace.data_wait > MUCH_WAIT else "$foreground"
        parts.append(quiet(tr("data wait"), Content.styled(f"{pace.data_wait * 100:.0f}%", style)))
    return parts


def step_parts(snapshot: Snapshot) -> list[Content]:
    """The measured time of a step with a mark whether it is the planned one, and the planned time."""
    low, high, measured = snapshot.planned.step_low_s, snapshot.planned.step_high_s, snapshot.pace.step_s
    parts = []
    if measured is not None:
        seconds = tr("{seconds} s/step", seconds=step_seconds(measured))
        parts.append(quiet(tr("measured"), seconds) + _judgement(snapshot.pace.against(low, high)))
    if low is not None and high is not None:
        planned = span(step_seconds(low), step_seconds(high))
        parts.append(quiet(tr("planned"), planned if parts else tr("{seconds} s/step", seconds=planned)))
    return parts


def _judgement(pace: str | None) -> Content:
    marks_of = {
        "slower": (f" {marks.tight} {tr('slower')}", "$warning"),
        "faster": (f" {marks.dot} {tr('faster')}", "$muted"),
        "planned": (f" {marks.ok}", "$success"),
    }
    text, style = marks_of.get(pace or "", ("", ""))
    return Content.styled(text, style)


def batch_parts(snapshot: Snapshot) -> list[Content]:
    samples, tokens = snapshot.planned.effective_samples, snapshot.planned.effective_tokens
    parts = [quiet(tr("per step"), trn("{n} sequence", "{n} sequences", samples, n=f"{samples:,}"))] if samples else []
    return [*parts, Content(tr("{n} tokens", n=f"{tokens:,}"))] if tokens else parts


def since_lines(snapshot: Snapshot) -> list[Content]:
    """When it began and, where that is known, when it is over."""
    lines = []
    if snapshot.started_s is not None:
        lines.append(labelled(tr("started"), moment_words(snapshot.started_s)))
    if snapshot.ended_s is not None and snapshot.ending is not None:
        lines.append(labelled(tr("ended"), moment_words(snapshot.ended_s)))
    elif snapshot.status == "quiet" and snapshot.written_s is not None:
        ago = span_words(max(0.0, snapshot.time_s - snapshot.written_s))
        lines.append(labelled(tr("updated"), tr("{time} ago", time=ago)))
    elif snapshot.eta_s is not None and snapshot.eta_s < FAR_S:
        lines.append(labelled(tr("finishes"), moment_words(snapshot.time_s + snapshot.eta_s)))
    if snapshot.pace.wall_step_s is not None:
        words = tr("{seconds} s/step including evaluation and saving", seconds=step_seconds(snapshot.pace.wall_step_s))
        lines.append(labelled(tr("wall"), words))
    return lines


class MonitorSummary(SnapshotView):
    DEFAULT_CSS = """
    MonitorSummary { height: 4; padding: 0 1; color: $foreground; }
    """

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        lines = [device_line(snapshot), host_line(snapshot), join_fitting(token_parts(snapshot), width)]
        if snapshot.advice:
            worst = snapshot.advice[0]
            lines.append(Content.assemble(level_sign(worst.level), " ", plain_text(worst.text)))
        return lines
