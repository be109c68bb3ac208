"""BarReporter: the plan as text, then one live line with a bar."""

from __future__ import annotations

import contextlib
import os
import sys

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task
from rich.progress import Progress as RichProgress
from rich.table import Column
from rich.text import Text
from trainwiz.core.plain import plain_text
from trainwiz.tui.headless.ending import Ending
from trainwiz.tui.headless.progress import Progress
from trainwiz.tui.headless.reporters import (
    QUIET_STEP_S,
    PlainReporter,
    advice_text,
    clock,
    numbers_text,
    waiting_for,
)
from trainwiz.tui.output import is_terminal

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
