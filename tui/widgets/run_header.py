"""RunHeader: name, status, step, epoch and finish in one line; progress below it; the end as a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.core.language import mark, tr
from trainwiz.core.run.attempts import phase_words
from trainwiz.core.run.folder import name_for_commands
from trainwiz.core.run.state import STATUS_WORDS
from trainwiz.core.text import moment_words, plain_text
from trainwiz.tui.run_words import look_of
from trainwiz.tui.text import cells, command_apart, duration, epochs, step_seconds, wrap
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.monitor_panel import SnapshotView, thin_bar

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot

WORDS: dict[str, str] = {str(status): word for status, word in STATUS_WORDS.items()} | {"quiet": mark("quiet")}
SHORTEST_NAME = 4
ROOMY = 96
SOON_S = 20 * 3600.0
MOST_WORK_LINES = 2
SOURCE_WORDS = {
    "trainer": mark("Trainer output"),
    "tensorboard": mark("TensorBoard events"),
    "process": mark("process"),
}


def status_word(status: str) -> str:
    return tr(WORDS.get(status, status))


def status_mark(status: str) -> str:
    return look_of(status).ascii_sign if marks.ascii_only else look_of(status).sign


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
            return [Content.assemble(("trainwiz ", "$muted"), f"{marks.dot} {self._run_name}"), Content(" ")]
        lines = [self._first_line(snapshot, width), self._progress(snapshot, width)]
        origin = origin_words(snapshot)
        if origin:
            lines.append(Content.styled(origin, "$muted").truncate(width, ellipsis=True))
        # Where there is little room, how it ended and what to do comes before how it got there.
        return [*lines, *self._ending(snapshot, width), *self._work(snapshot, width)]

    def _work(self, snapshot: Snapshot, width: int) -> list[Content]:
        """A save that waits, and what recovery did."""
        recovered = any(attempt.because for attempt in snapshot.attempts)
        paused = phase_part(snapshot) if is_paused(snapshot) else ""
        said = ((paused, "$warning"), (snapshot.attempt_words, "$warning" if recovered else "$muted"))
        return [
            Content.styled(line, style)
            for words, style in said
            if words
            for line in wrap(words, width)[:MOST_WORK_LINES]
        ]

    def _first_line(self, snapshot: Snapshot, width: int) -> Content:
        dot, look = marks.dot, look_of(snapshot.status)
        sign = status_mark(snapshot.status)
        status = Content.styled(f"{sign} {status_word(snapshot.status)}", look.style)
        facts = [status, *(Content(text) for text in progress_words(snapshot, clock=True))]
        brand = Content.styled(f"trainwiz {dot} ", "$muted")
        name = Content.styled(self._run_name, "bold")
        while True:
            right = Content(f" {dot} ").join(facts)
            for left in (Content.assemble(brand, name), name):
                gap = width - left.cell_length - right.cell_length
                if gap >= 2:
                    return Content.assemble(left, " " * gap, right)
            if len(facts) == 1:
                room = width - status.cell_length - 2
                if room < SHORTEST_NAME:
                    return status.truncate(width)
                return Content.assemble(name.truncate(room, ellipsis=True), "  ", status)
            # The epoch goes first, then the finish, then the step.
            facts.pop(2 if len(facts) > 3 else len(facts) - 1)

    def _progress(self, snapshot: Snapshot, width: int) -> Content:
        share = snapshot.step / snapshot.max_steps if snapshot.step is not None and snapshot.max_steps else 0.0
        words = []
        if snapshot.step is not None and snapshot.max_steps:
            words.append(f"{min(1.0, share) * 100:.{1 if share < 0.1 else 0}f}%")
        if snapshot.pace.step_s is not None:
            words.append(tr("{seconds} s/step", seconds=step_seconds(snapshot.pace.step_s)))
        if snapshot.behind:
            words.insert(0, tr("reading: {percent}%", percent=f"{snapshot.read_share * 100:.0f}"))
        if not is_paused(snapshot) and (phase := phase_part(snapshot)):
            words.insert(0, phase)
        while words and cells(f" {marks.dot} ".join(words)) > width - SHORTEST_NAME:
            words.pop()
        text = f" {marks.dot} ".join(words)
        room = max(0, width - cells(text) - (2 if text else 0))
        filled = thin_bar(share, room, look_of(snapshot.status).style)
        return Content.assemble(filled, "  " if text else "", (text, "$muted"))

    def _ending(self, snapshot: Snapshot, width: int) -> list[Content]:
        ending = snapshot.ending
        if ending is None:
            return []
        next_lines = self._next(snapshot, width)
        said = wrap(plain_text(ending.text, 600), width)
        # Where five lines are all there is, the command comes before the last words of the sentence.
        most = 3 if width >= ROOMY else 3 - max(1, len(next_lines))
        lines = [Content(line) for line in said[:most]]
        if len(said) > most:
            lines[-1] = Content(said[most - 1] + " " + said[most]).truncate(width, ellipsis=True)
        if snapshot.not_retried and width >= ROOMY:
            lines += [Content.styled(line, "$muted") for line in wrap(plain_text(snapshot.not_retried, 300), width)[:1]]
        return [*lines, *next_lines]

    def _next(self, snapshot: Snapshot, width: int) -> list[Content]:
        if snapshot.ending is None or not snapshot.ending.remedy:
            return []
        text = plain_text(snapshot.ending.remedy, 300)
        label = tr("next") + "  "
        room = max(10, width - cells(label))
        first, *rest = _remedy_lines(text, room, plain_text(name_for_commands(Path(snapshot.path)))) or [""]
        lines = [Content.assemble((label, "$muted"), (first, "$accent"))]
        return lines + [Content.styled(" " * cells(label) + line, "$accent") for line in rest[:1]]


def _remedy_lines(text: str, room: int, run: str) -> list[str]:
    """The command on a line of its own, so that it can be pasted; one that is too long is left to `trainwiz diagnose`."""
    sentence, command = command_apart(text)
    if not command or cells(text) <= room:
        return wrap(text, room)
    if cells(command) > room:
        shorter = f"trainwiz diagnose {run}"
        if cells(shorter) > room:
            return wrap(command, room)
        command = shorter
    return [Content(sentence).truncate(room, ellipsis=True).plain, command] if sentence else [command]


def phase_part(snapshot: Snapshot) -> str:
    """What is done while no steps are made, and since when; else empty."""
    now = snapshot.phase
    if now is None or now.phase == "training":
        return ""
    return phase_words(now, duration(max(0.0, snapshot.time_s - now.since_s)))


def is_paused(snapshot: Snapshot) -> bool:
    """Whether a save waits, which needs somebody."""
    return snapshot.phase is not None and snapshot.phase.phase == "paused"


def progress_words(snapshot: Snapshot, *, clock: bool = False) -> list[str]:
    """Step, epoch, and in what time it is over (with `clock` also when) or how long it took."""
    facts = []
    if snapshot.step is not None:
        step, steps = f"{snapshot.step:,}", f"{snapshot.max_steps or 0:,}"
        of_all = tr("step {step} of {steps}", step=step, steps=steps)
        facts.append(of_all if snapshot.max_steps else tr("step {step}", step=step))
    if snapshot.epoch is not None:
        facts.append(tr("epoch {epoch}", epoch=epochs(snapshot.epoch)))
    if snapshot.eta_s is not None and snapshot.ending is None and snapshot.status != "stopping":
        time = duration(snapshot.eta_s)
        if clock and 120 <= snapshot.eta_s < SOON_S:
            at = moment_words(snapshot.time_s + snapshot.eta_s, "%H:%M")
            facts.append(tr("finishes in {time}, at {clock}", time=time, clock=at))
        else:
            facts.append(tr("finishes in {time}", time=time))
    elif snapshot.started_s is not None and snapshot.ended_s is not None:
        facts.append(tr("took {time}", time=duration(max(0.0, snapshot.ended_s - snapshot.started_s))))
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
        words.append(tr(SOURCE_WORDS[snapshot.source]))
        words.append(plain_text(snapshot.command or "", 200))
    return f" {marks.dot} ".join(word for word in words if word)
