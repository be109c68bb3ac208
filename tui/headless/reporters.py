"""Reporters: how a followed run is shown. A bar for terminals, lines for pipes, JSON lines for programs."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task
from rich.progress import Progress as RichProgress
from rich.table import Column
from rich.text import Text
from trainwiz.core.errors import Finding
from trainwiz.core.language import tr
from trainwiz.core.plan.result import Plan
from trainwiz.core.run.attempts import Advice
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.text import plain_text
from trainwiz.tui.headless.ending import Ending, ending_lines, shown_path
from trainwiz.tui.headless.plan_text import plan_lines
from trainwiz.tui.headless.progress import Progress
from trainwiz.tui.output import Colours, is_terminal, labelled, say, say_findings, say_json, say_labelled
from trainwiz.tui.run_words import evaluation_parts
from trainwiz.tui.text import cells, count, pad, size

# Reporters: how a followed run is shown. A bar for terminals, lines for pipes, JSON lines for programs.

WAIT_LINE_EVERY_S = 10.0
QUIET_STEP_S = 5.0
"""After this long without a logged step, the line says since when."""


class Reporter(Protocol):
    """What the headless run tells, in order."""

    def plan(self, plan: Plan, findings: tuple[Finding, ...]) -> None: ...

    def prepared(self, folder: RunFolder, files: list[str]) -> None: ...

    def progress(self, progress: Progress) -> None: ...

    def note(self, text: str) -> None: ...

    def refused(self, findings: tuple[Finding, ...], commands: list[tuple[str, str]], exit_code: int) -> None: ...

    def end(self, ending: Ending) -> None: ...

    def close(self) -> None: ...


def new_reporter(*, as_json: bool, plain: bool) -> Reporter:
    """The bar needs a terminal; anything else gets lines."""
    if as_json:
        return JsonReporter()
    Colours.wanted = not plain
    if plain or not is_terminal(sys.stdout):
        return PlainReporter()

    return BarReporter()


class PlainReporter:
    """One line for each thing that happens: for pipes, logs and screen readers."""

    def __init__(self) -> None:
        self._phase = ""
        self._waited_s = 0.0

    def plan(self, plan: Plan, findings: tuple[Finding, ...]) -> None:
        for line in plan_lines(plan):
            say_labelled(line)
        say_findings(findings)

    def prepared(self, folder: RunFolder, files: list[str]) -> None:
        say(labelled(tr("Run"), plain_text(shown_path(folder.path))))
        if files:
            say(labelled(tr("Written"), ", ".join(files)))

    def progress(self, progress: Progress) -> None:
        for advice in progress.new_advice:
            self.note(advice_text(advice))
        for row in progress.new_rows:
            text = row_text(row, progress)
            if text:
                say(text)
        if progress.new_rows or progress.phase != self._phase:
            self._waited_s = 0.0
        if progress.phase != self._phase:
            self._phase = progress.phase
            if progress.phase not in ("training", "finished", "failed", "stopped", "lost"):
                say(labelled("", tr(progress.phase)))
        elif progress.phase_s - self._waited_s >= WAIT_LINE_EVERY_S and progress.state.is_active:
            self._waited_s = progress.phase_s
            say(labelled("", tr("{what} · {seconds} s", what=waiting_for(progress), seconds=f"{progress.phase_s:.0f}")))

    def note(self, text: str) -> None:
        say(plain_text(text))

    def refused(self, findings: tuple[Finding, ...], commands: list[tuple[str, str]], exit_code: int) -> None:
        say(tr("This cannot run here; nothing was written."), sys.stderr)
        say_findings(findings, sys.stderr)
        say_commands(commands)

    def end(self, ending: Ending) -> None:
        for line in ending_lines(ending):
            say_labelled(line)

    def close(self) -> None:
        return


class JsonReporter:
    """One JSON object on each line; the last one has the event "end" or "refused"."""

    def __init__(self) -> None:
        self._said: tuple[str, str] | None = None

    def plan(self, plan: Plan, findings: tuple[Finding, ...]) -> None:
        say_json({"event": "plan", "plan": plan.to_json()}, compact=True)

    def prepared(self, folder: RunFolder, files: list[str]) -> None:
        say_json({"event": "prepared", "run": str(folder.path), "files": files}, compact=True)

    def progress(self, progress: Progress) -> None:
        now = (progress.state.status, progress.phase)
        if now != self._said:
            self._said = now
            say_json({"event": "status", "status": now[0], "phase": now[1]}, compact=True)
        for advice in progress.new_advice:
            say_json({"event": "advice", **advice.to_json()}, compact=True)
        for row in progress.new_rows:
            say_json({"event": "metrics", **row}, compact=True)

    def note(self, text: str) -> None:
        say_json({"event": "note", "message": text}, compact=True)

    def refused(self, findings: tuple[Finding, ...], commands: list[tuple[str, str]], exit_code: int) -> None:
        document: dict[str, Any] = {
            "event": "refused",
            "exit_code": exit_code,
            "findings": [finding.to_json() for finding in findings],
            "commands": [{"command": command, "text": text} for command, text in commands],
        }
        say_json(document, compact=True)

    def end(self, ending: Ending) -> None:
        say_json({"event": "end", **ending.to_json()}, compact=True)

    def close(self) -> None:
        return


def say_commands(commands: list[tuple[str, str]]) -> None:
    """What works instead, as lines that can be pasted."""
    say(tr("What works here:"), sys.stderr)
    width = max((cells(command) for command, _ in commands), default=0)
    for command, text in commands:
        say(plain_text(f"  {pad(command, width)}   {text}"), sys.stderr)


def step_text(step: int | None, max_steps: int | None) -> str:
    if step is None:
        return tr("step {step}", step="-")
    return tr("step {step}", step=f"{count(step)}/{count(max_steps)}" if max_steps else count(step))


def numbers_text(progress: Progress, *, short: bool = False) -> str:
    """ "step 71/120   loss 2.71   18,900 tokens/s   0.6 GiB   0:21 left"; `short` keeps step, loss and time."""
    parts = [step_text(progress.step, progress.max_steps)]
    if progress.loss is not None:
        parts.append(
            tr("loss {value}", value=f"{progress.loss:.3g}" if progress.loss < 0.1 else f"{progress.loss:.2f}")
        )
    if progress.tokens_per_s is not None and not short:
        parts.append(tr("{count} tokens/s", count=count(progress.tokens_per_s)))
    if progress.memory_bytes is not None and not short:
        parts.append(size(progress.memory_bytes))
    if progress.left_s is not None:
        parts.append(tr("{time} left", time=clock(progress.left_s)))
    return "   ".join(parts)


def row_text(row: dict[str, Any], progress: Progress) -> str:
    """One logged line; evaluations carry their own names."""
    step = row.get("step")
    at = labelled("", step_text(step if isinstance(step, int) else None, progress.max_steps))
    measured = evaluation_parts(row)
    if measured:
        return f"{at}   {tr('evaluation {values}', values=', '.join(measured))}"
    if row.get("loss") is None:
        return ""
    if row is progress.new_rows[-1]:
        return labelled("", numbers_text(progress))
    return f"{at}   {tr('loss {value}', value=format(row['loss'], '.2f'))}"


def waiting_for(progress: Progress) -> str:
    """What a silent moment is spent on: in the training's own words where it has some."""
    if progress.doing and progress.phase == "stopping":
        return tr("{phase}: {detail}", phase=tr(progress.phase), detail=progress.doing)
    if progress.doing:
        return progress.doing
    if progress.phase == "training" and progress.step is not None:
        if progress.step == progress.max_steps:
            return tr("measuring and saving the model")
        return tr("working on the steps after {step}", step=count(progress.step))
    return tr(progress.phase)


def advice_text(advice: Advice) -> str:
    """ "! The run waits at step 40: ... Free space on the disk of ..."."""
    sign = "✗" if advice.level == "error" else "!"
    return " ".join(filter(None, (sign, advice.text, advice.remedy)))


def clock(seconds: float) -> str:
    """21 -> "0:21"; 4000 -> "1:06:40"; 200000 -> "2 days 7 h"."""
    whole = int(seconds)
    days, hours, minutes = whole // 86400, whole // 3600, whole // 60
    if days >= 2:
        return tr("{days} days {hours} h", days=f"{days:,}", hours=hours % 24)
    return f"{hours}:{minutes % 60:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def written_files(folder: RunFolder) -> list[str]:
    """Names of the files in a new run folder, without the hidden ones."""
    return sorted(path.name for path in folder.path.iterdir() if path.is_file() and not path.name.startswith("."))


# BarReporter: the plan as text, then one live line with a bar.

REFRESH_PER_SECOND = 5
NARROW = 90
"""Below this many columns the least needed numbers make room for the bar."""


class Numbers(ProgressColumn):
    """The text beside the bar, cut where the terminal ends."""

    def render(self, task: Task) -> Text:
        return Text(str(task.fields.get("text", "")), no_wrap=True, overflow="ellipsis")


class BarReporter(PlainReporter):
    """For terminals. Lines that are not progress are printed above the bar."""

    def __init__(self) -> None:
        super().__init__()
        self._console = Console(markup=False, highlight=False, emoji=False)
        self._bar: RichProgress | None = None
        self._task: int | None = None

    def progress(self, progress: Progress) -> None:
        for advice in progress.new_advice:
            self.note(advice_text(advice))
        if not progress.state.is_active:
            return
        bar = self._started()
        waiting = progress.step is None or progress.phase != "training"
        bar.update(
            self._task,  # type: ignore[arg-type]
            total=None if progress.step is None else progress.max_steps,
            completed=progress.step or 0,
            text=f"{waiting_for(progress)} · {clock(progress.phase_s)}" if waiting else self._training_text(progress),
            refresh=True,
        )

    def note(self, text: str) -> None:
        if self._bar is None:
            super().note(text)
        else:
            self._bar.console.print(Text(plain_text(text)))

    def end(self, ending: Ending) -> None:
        self.close()
        super().end(ending)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
            show_control_keys(True)

    def _training_text(self, progress: Progress) -> str:
        """The numbers; when the last step was long ago, since when the next one is awaited."""
        text = numbers_text(progress, short=self._console.width < NARROW)
        if progress.phase_s < QUIET_STEP_S:
            return text
        return f"{text}   {waiting_for(progress)} · {clock(progress.phase_s)}"

    def _started(self) -> RichProgress:
        if self._bar is None:
            self._bar = RichProgress(
                BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=4)),
                Numbers(table_column=Column(no_wrap=True, overflow="ellipsis")),
                console=self._console,
                expand=True,
                refresh_per_second=REFRESH_PER_SECOND,
            )
            self._task = self._bar.add_task("", total=None, text="")
            self._bar.start()
            show_control_keys(False)
        return self._bar


def show_control_keys(shown: bool) -> None:
    """Whether the terminal writes "^C" when Ctrl-C is pressed: beside a bar it would break the line."""
    # A job in the background would be halted for touching the terminal.
    if not is_terminal(sys.stdin) or os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp():
        return
    try:
        import termios
    except ImportError:
        return
    with contextlib.suppress(termios.error):
        settings = termios.tcgetattr(sys.stdin)
        settings[3] = settings[3] | termios.ECHOCTL if shown else settings[3] & ~termios.ECHOCTL
        termios.tcsetattr(sys.stdin, termios.TCSANOW, settings)
