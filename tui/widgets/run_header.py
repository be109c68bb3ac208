"""How far a run is: RunHeader above all panels, PacePanel with its speed against the plan, MonitorSummary where little
has room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.run.attempts import phase_words
from trainwiz.core.run.folder import name_for_commands
from trainwiz.core.run.state import STATUS_WORDS
from trainwiz.core.telemetry.words import span_words
from trainwiz.core.text import moment_words, plain_text
from trainwiz.tui.run_words import look_of
from trainwiz.tui.text import amount_range, cells, command_apart, duration, three_digits, wrap
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.lists import level_sign
from trainwiz.tui.widgets.machine_panels import device_line, host_parts
from trainwiz.tui.widgets.monitor_panel import (
    MonitorPanel,
    SnapshotView,
    join_fitting,
    labelled,
    pace_reason,
    quiet,
)

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot

WORDS: dict[str, str] = {str(status): word for status, word in STATUS_WORDS.items()} | {"quiet": mark("quiet")}
SHORTEST_BAR = 4
ROOMY = 96
MOST_WORK_LINES = 2
SOURCE_WORDS = {
    "trainer": mark("Trainer output"),
    "tensorboard": mark("TensorBoard events"),
    "process": mark("process"),
}


def status_content(status: str) -> Content:
    """A mark and a word."""
    look = look_of(status)
    return Content.styled(f"{look.sign} {tr(WORDS.get(status, status))}", look.style)


class RunHeader(SnapshotView):
    """Two lines; more for what was not started here, for a save that waits and for an attempt that is not the first;
    after the end those of the sentence and what to do next."""

    DEFAULT_CSS = """
    RunHeader { height: auto; padding: 0 1; color: $foreground; }
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._run_name = plain_text(name)
        self._line_count = 2

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        if len(self._now()) != self._line_count:
            self._line_count = len(self._now())
            self.refresh(layout=True)

    def content_lines(self) -> list[Content]:
        return self.lines_at(max(1, self.content_size.width or self.app.size.width - 2))

    def lines_at(self, width: int) -> list[Content]:
        snapshot = self.snapshot
        if snapshot is None:
            return [Content(self._run_name), Content(" ")]
        lines = [self._first_line(snapshot, width), _progress_line(snapshot, width)]
        origin = origin_words(snapshot)
        if origin:
            lines.append(Content.styled(origin, "$muted").truncate(width, ellipsis=True))
        # Where there is little room, how it ended and what to do comes before how it got there.
        return [*lines, *_ending_lines(snapshot, width), *_work_lines(snapshot, width)]

    def _first_line(self, snapshot: Snapshot, width: int) -> Content:
        """The name, and at the right end the status and as many facts as have room."""
        status = status_content(snapshot.status)
        room = max(status.cell_length, width - cells(self._run_name) - 2)
        right = join_fitting([status, *map(Content, progress_words(snapshot))], room, f" {marks.dot} ")
        room = max(0, width - right.cell_length - 2)
        name = Content.styled(self._run_name, "bold").truncate(room, ellipsis=True, pad=True)
        return Content.assemble(name, "  ", right).truncate(width)


def _progress_line(snapshot: Snapshot, width: int) -> Content:
    share = snapshot.step / snapshot.max_steps if snapshot.step is not None and snapshot.max_steps else 0.0
    words = [tr("reading: {percent}%", percent=f"{snapshot.read_share * 100:.0f}")] if snapshot.behind else []
    if not is_paused(snapshot) and (phase := phase_part(snapshot)):
        words.append(phase)
    if snapshot.step is not None and snapshot.max_steps:
        words.append(f"{min(1.0, share) * 100:.{1 if share < 0.1 else 0}f}%")
    if snapshot.pace.step_s is not None:
        words.append(tr("{seconds} s/step", seconds=three_digits(snapshot.pace.step_s)))
    text = join_fitting([*map(Content, words)], width - SHORTEST_BAR - 2, f" {marks.dot} ").stylize("$muted")
    room = max(0, width - text.cell_length - 2)
    filled = max(0, min(room, round(share * room)))
    style = look_of(snapshot.status).style
    # Told apart without colours too.
    line = Content.assemble((marks.heavy * filled, style), (marks.light * (room - filled), "$track"))
    return Content.assemble(line, "  ", text)


def _work_lines(snapshot: Snapshot, width: int) -> Iterator[Content]:
    """A save that waits, and what recovery did."""
    recovered = any(attempt.because for attempt in snapshot.attempts)
    paused = phase_part(snapshot) if is_paused(snapshot) else ""
    for words, style in ((paused, "$warning"), (snapshot.attempt_words, "$warning" if recovered else "$muted")):
        for line in wrap(words, width)[:MOST_WORK_LINES]:
            yield Content.styled(line, style)


def _ending_lines(snapshot: Snapshot, width: int) -> Iterator[Content]:
    """How it ended, why nothing followed, and what to do; where little has room, the command comes before more words."""
    ending = snapshot.ending
    if ending is None:
        return
    most = 3 if width >= ROOMY or not ending.remedy else 1
    said = wrap(plain_text(ending.text, 600), width)
    for number, line in enumerate(said[:most], start=1):
        yield Content(f"{line} …" if number == most < len(said) else line).truncate(width, ellipsis=True)
    if snapshot.not_retried and width >= ROOMY:
        yield Content.styled(plain_text(snapshot.not_retried, 300), "$muted").truncate(width, ellipsis=True)
    label = tr("next") + "  "
    for line in _remedy_lines(
        ending.remedy or "", width - cells(label), plain_text(name_for_commands(Path(snapshot.path)))
    ):
        yield Content.assemble((label, "$muted"), (line, "$accent"))
        label = " " * cells(label)


def _remedy_lines(remedy: str, room: int, run: str) -> list[str]:
    """The command on a line of its own, so that it can be pasted; one that is too long is left to `trainwiz diagnose`."""
    text = plain_text(remedy, 300)
    sentence, command = command_apart(text)
    room = max(10, room)
    if not command or cells(text) <= room:
        return wrap(text, room)[:2]
    if cells(command) > room:
        command = f"trainwiz diagnose {run}"
    lines = [Content(sentence).truncate(room, ellipsis=True).plain] if sentence else []
    return [*lines, *wrap(command, room)][:2]


def phase_part(snapshot: Snapshot) -> str:
    """What is done while no steps are made, and since when; else empty."""
    now = snapshot.phase
    if now is None or now.phase == "training":
        return ""
    return phase_words(now, duration(max(0.0, snapshot.time_s - now.since_s)))


def is_paused(snapshot: Snapshot) -> bool:
    """Whether a save waits, which needs somebody."""
    return snapshot.phase is not None and snapshot.phase.phase == "paused"


def progress_words(snapshot: Snapshot) -> list[str]:
    """Step, in what time it is over or how long it took, and epoch."""
    facts = []
    if snapshot.step is not None:
        step = f"{snapshot.step:,}"
        of_all = tr("step {step} of {steps}", step=step, steps=f"{snapshot.max_steps or 0:,}")
        facts.append(of_all if snapshot.max_steps else tr("step {step}", step=step))
    if snapshot.eta_s is not None and snapshot.ending is None and snapshot.status != "stopping":
        facts.append(tr("finishes in {time}", time=duration(snapshot.eta_s)))
    elif snapshot.started_s is not None and snapshot.ended_s is not None:
        facts.append(tr("took {time}", time=duration(max(0.0, snapshot.ended_s - snapshot.started_s))))
    if snapshot.epoch is not None:
        facts.append(tr("epoch {epoch}", epoch=three_digits(snapshot.epoch)))
    return facts


def origin_words(snapshot: Snapshot) -> str:
    """Where the figures come from, for what is not a run of ours, and for a replay; else empty."""
    words = []
    if snapshot.replayed_s is not None:
        speed = snapshot.replay_speed
        pace = tr("paused") if speed == 0 else tr("{n}x speed", n=f"{speed:g}") if speed else ""
        at = moment_words(snapshot.replayed_s, "%Y-%m-%d %H:%M:%S")
        words += [tr("replay of {time}", time=at), pace]
    if snapshot.source in SOURCE_WORDS:
        words += [tr(SOURCE_WORDS[snapshot.source]), plain_text(snapshot.command or "", 200)]
    return f" {marks.dot} ".join(filter(None, words))


# Speed, against the plan.

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
        parts = (token_parts(snapshot), step_parts(snapshot), batch_parts(snapshot))
        return [*(join_fitting(line, width) for line in parts if line), *since_lines(snapshot)]


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
        style = "$warning" if pace.data_wait > MUCH_WAIT else ""
        parts.append(quiet(tr("data wait"), Content.styled(f"{pace.data_wait * 100:.0f}%", style)))
    return parts


def step_parts(snapshot: Snapshot) -> list[Content]:
    """The measured time of a step with a mark whether it is the planned one, and the planned time."""
    low, high, measured = snapshot.planned.step_low_s, snapshot.planned.step_high_s, snapshot.pace.step_s
    parts = []
    if measured is not None:
        signs = {
            "slower": (f" {marks.tight} {tr('slower')}", "$warning"),
            "faster": (f" {marks.dot} {tr('faster')}", "$muted"),
            "planned": (f" {marks.ok}", "$success"),
        }
        seconds = tr("{seconds} s/step", seconds=three_digits(measured))
        sign = signs.get(snapshot.pace.against(low, high) or "", ("", ""))
        parts.append(Content.assemble(quiet(tr("measured"), seconds), sign))
    if low is not None and high is not None:
        planned = amount_range(low, high)
        parts.append(quiet(tr("planned"), planned if parts else tr("{seconds} s/step", seconds=planned)))
    return parts


def batch_parts(snapshot: Snapshot) -> list[Content]:
    samples, tokens = snapshot.planned.effective_samples, snapshot.planned.effective_tokens
    parts = [quiet(tr("per step"), trn("{n} sequence", "{n} sequences", samples, n=f"{samples:,}"))] if samples else []
    return [*parts, Content(tr("{n} tokens", n=f"{tokens:,}"))] if tokens else parts


def since_lines(snapshot: Snapshot) -> Iterator[Content]:
    """When it is over, where that is known, and when it began."""
    running = snapshot.ended_s is None or snapshot.ending is None
    if running and snapshot.status != "quiet" and snapshot.eta_s is not None and snapshot.eta_s < FAR_S:
        yield labelled(tr("finishes"), moment_words(snapshot.time_s + snapshot.eta_s))
    if snapshot.started_s is not None:
        yield labelled(tr("started"), moment_words(snapshot.started_s))
    if snapshot.ended_s is not None and snapshot.ending is not None:
        yield labelled(tr("ended"), moment_words(snapshot.ended_s))
    elif snapshot.status == "quiet" and snapshot.written_s is not None:
        ago = span_words(max(0.0, snapshot.time_s - snapshot.written_s))
        yield labelled(tr("updated"), tr("{time} ago", time=ago))


class MonitorSummary(SnapshotView):
    DEFAULT_CSS = """
    MonitorSummary { height: 4; padding: 0 1; color: $foreground; }
    """

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        when = "" if snapshot.ending is None else tr("at the end") + "  "
        shown = (device_line(snapshot), Content("   ").join(host_parts(snapshot)))
        machine = [Content.assemble((when, "$muted"), line) for line in shown]
        worst = [Content.assemble(level_sign(one.level), " ", plain_text(one.text)) for one in snapshot.advice[:1]]
        return [*machine, join_fitting(token_parts(snapshot), width), *worst]
