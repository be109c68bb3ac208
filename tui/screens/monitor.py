"""MonitorScreen: one look at a run tells the truth. It holds nothing that is not in the run folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.message import Message
from textual.screen import Screen
from textual.worker import Worker, WorkerState
from trainwiz.core.errors import TrainwizError
from trainwiz.core.plain import plain_text
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.status import ACTIVE, ENDED
from trainwiz.tui.keys import KeyBinding, bindings, keys_of
from trainwiz.tui.theme import UNICODE_MARKS, Marks
from trainwiz.tui.widgets.advice_panel import AdvicePanel
from trainwiz.tui.widgets.canvas import choose_glyphs
from trainwiz.tui.widgets.device_panel import DevicePanel
from trainwiz.tui.widgets.help_card import HelpCard
from trainwiz.tui.widgets.host_panel import HostPanel
from trainwiz.tui.widgets.key_bar import KeyBar
from trainwiz.tui.widgets.log_view import LogView
from trainwiz.tui.widgets.metric_panel import MetricPanel, metric_names
from trainwiz.tui.widgets.monitor_panel import MonitorPanel
from trainwiz.tui.widgets.monitor_summary import MonitorSummary
from trainwiz.tui.widgets.pace_panel import PacePanel
from trainwiz.tui.widgets.run_header import RunHeader

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Ending, Snapshot
    from trainwiz.core.telemetry.source import Source
    from trainwiz.core.telemetry.target import Target
    from trainwiz.tui.app import TrainwizApp

INTERVAL_S = 1.0

ABOUT = (
    "The monitor reads the run folder and nothing else: it can be closed and opened at any time, here or in another "
    "terminal, and the run goes on. Press tab to go from panel to panel; f1 then explains the panel."
)


class MonitorScreen(Screen[None]):
    """`readonly` takes away every key that changes the run. `clock` gives Unix time in seconds."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("monitor")]
    AUTO_FOCUS = ""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (76, "-medium"), (100, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (22, "-low"), (34, "-high")]

    DEFAULT_CSS = """
    MonitorScreen { layout: vertical; }
    MonitorScreen #panels { layout: grid; grid-size: 2 1; grid-columns: 13fr 12fr; height: 1fr; }
    MonitorScreen #left, MonitorScreen #right { height: 100%; }
    MonitorScreen MetricPanel { height: 1fr; }
    MonitorScreen PacePanel { height: 4; }
    MonitorScreen DevicePanel { min-height: 4; max-height: 18; }
    MonitorScreen HostPanel { height: 5; }
    MonitorScreen AdvicePanel { height: 1fr; min-height: 3; }
    MonitorScreen #log { height: 9; scrollbar-size-vertical: 0; border: round $line; border-title-color: $muted; padding: 0 1; }
    MonitorScreen #log:focus { border: round $accent; border-title-color: $accent; }
    MonitorScreen MonitorSummary { display: none; }
    MonitorScreen.-low #log { height: 4; }
    MonitorScreen.-low DevicePanel { max-height: 5; }
    MonitorScreen.-medium #panels { grid-columns: 1fr 1fr; }
    MonitorScreen.-low RunHeader { max-height: 5; }
    MonitorScreen.-narrow #panels, MonitorScreen.-flat #panels { grid-size: 1 1; grid-columns: 1fr; }
    MonitorScreen.-narrow #right, MonitorScreen.-flat #right { display: none; }
    MonitorScreen.-narrow PacePanel, MonitorScreen.-flat PacePanel { display: none; }
    MonitorScreen.-narrow MetricPanel, MonitorScreen.-flat MetricPanel { border: none; padding: 0 1; }
    MonitorScreen.-narrow MonitorSummary, MonitorScreen.-flat MonitorSummary { display: block; }
    MonitorScreen.-narrow #log, MonitorScreen.-flat #log { height: 2; border: none; }
    MonitorScreen.-narrow RunHeader, MonitorScreen.-flat RunHeader { max-height: 5; }
    """

    class Looked(Message):
        """A look at the run is done."""

        def __init__(self, snapshot: Snapshot) -> None:
            super().__init__()
            self.snapshot = snapshot

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, MonitorScreen.Looked)

    def __init__(
        self,
        target: Target,
        readonly: bool = False,
        *,
        interval_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.target = target
        self.readonly = readonly
        self.snapshot: Snapshot | None = None
        self._interval_s = interval_s
        self._clock = clock
        self._source: Source | None = None
        self._looking = False
        self._look_again = False

    @property
    def folder(self) -> RunFolder:
        """The run folder of a run of ours; other targets have none to act on."""
        return RunFolder(self.target.path)

    @property
    def marks(self) -> Marks:
        return cast("TrainwizApp", self.app).marks if hasattr(self.app, "marks") else UNICODE_MARKS

    def compose(self) -> ComposeResult:
        marks = self.marks
        yield RunHeader(self.target.name, marks=marks)
        with Container(id="panels"):
            with Vertical(id="left"):
                yield MetricPanel(marks=marks, glyphs=choose_glyphs(marks != UNICODE_MARKS))
                yield PacePanel("pace", marks=marks)
            with Vertical(id="right"):
                yield DevicePanel("device", marks=marks)
                yield HostPanel("RAM and disk", marks=marks)
                yield AdvicePanel("advice", marks=marks)
        yield MonitorSummary(marks=marks)
        log = LogView(empty_text="No output yet.", id="log")
        log.border_title = "log"
        yield log
        yield KeyBar(self.key_rows)

    def on_mount(self) -> None:
        self.call_after_refresh(self.look)
        self.set_interval(self._interval_s, self.look)

    def key_rows(self) -> list[KeyBinding]:
        """The keys that work now."""
        rows = [row for row in keys_of("monitor") if row.id != "monitor.stop" or self.can_stop]
        leave = "leave (the run goes on)" if self.snapshot and self.snapshot.status in ACTIVE else "leave"
        return [*rows, *(replace(row, description=leave) if row.id == "app.quit" else row for row in keys_of("app"))]

    @property
    def can_stop(self) -> bool:
        return not self.readonly and (self.snapshot is None or self.snapshot.status in ACTIVE)

    # Looking

    def look(self) -> None:
        """Start a look unless one is under way; then another one follows it."""
        if self._looking:
            self._look_again = True
            return
        self._looking = True
        self._take_look(self.query_one(MetricPanel).wanted_curves())

    @work(thread=True, group="look", exit_on_error=False)
    def _take_look(self, curves: tuple[str, ...]) -> None:
        # Loaded here, after the first frame.
        from trainwiz.core.telemetry.target import open_source

        if self._source is None:
            self._source = open_source(self.target, clock=self._clock)
        try:
            snapshot = self._source.poll(curves)
        finally:
            self._looking = False
        self.post_message(self.Looked(snapshot))

    @on(Looked)
    def _show(self, message: Looked) -> None:
        snapshot = message.snapshot
        ended_now = self.snapshot is None or (self.snapshot.status != snapshot.status)
        self.snapshot = snapshot
        self.query_one(RunHeader).show(snapshot)
        for panel in self.query(MonitorPanel):
            panel.show(snapshot)
        self.query_one(MetricPanel).show_curves(snapshot)
        self.query_one(MonitorSummary).show(snapshot)
        self.query_one("#log", LogView).show(snapshot.log)
        if ended_now:
            self.query_one(KeyBar).refresh()
        self.app.sub_title = snapshot.status
        if snapshot.ending is not None:
            self._say_goodbye(snapshot.ending)
        if self._look_again or snapshot.behind:
            self._look_again = False
            self.look()

    def _say_goodbye(self, ending: Ending) -> None:
        """Where leaving says that the run was started, it now says how the run ended."""
        app = cast("TrainwizApp", self.app)
        if getattr(app, "farewell", ""):
            app.farewell = ending.text + (f"\nNext: {ending.remedy}" if ending.remedy else "")

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """The one place where a failed worker speaks."""
        if event.state == WorkerState.ERROR:
            error = event.worker.error
            sentence = str(error) if isinstance(error, TrainwizError) else f"{type(error).__name__}: {error}"
            self.notify(plain_text(sentence, 300), severity="error", markup=False)

    # Keys

    def action_next_metric(self) -> None:
        if self.snapshot is not None and metric_names(self.snapshot):
            self.query_one(MetricPanel).next_metric(self.snapshot)
            self.look()

    def action_zoom(self) -> None:
        self.query_one(MetricPanel).next_zoom()

    def action_log_scale(self) -> None:
        self.query_one(MetricPanel).toggle_scale()

    def action_show_log(self) -> None:
        from trainwiz.tui.screens.log_card import LogCard

        self.app.push_screen(LogCard(self._log_title(), lambda: self.snapshot.log if self.snapshot else ()))

    def _log_title(self) -> str:
        return (self.snapshot and self.snapshot.log_path) or "log"

    def action_show_plan(self) -> None:
        from trainwiz.tui.screens.plan_card import PlanCard

        self.app.push_screen(PlanCard(self.folder, self.marks))

    def action_help(self) -> None:
        focused = self.focused
        parts = [("The monitor", ABOUT)]
        if isinstance(focused, MonitorPanel):
            parts.insert(0, (focused.title_text, focused.help_text))
        self.app.push_screen(HelpCard("Monitor", parts, self.key_rows()))

    def action_stop(self) -> None:
        from trainwiz.tui.screens.stop_dialog import StopDialog

        if self.readonly:
            self.notify("This monitor is read-only: open it without --readonly to stop the run.")
        elif self.snapshot is None or self.snapshot.status in ENDED or self.snapshot.status == "prepared":
            self.notify("There is nothing to stop: the run is not running.")
        else:
            self.app.push_screen(StopDialog(self.snapshot), self._stop)

    def _stop(self, how: str | None) -> None:
        if how is not None:
            self._ask_to_stop(now=how == "now")

    @work(thread=True, group="stop", exit_on_error=False)
    def _ask_to_stop(self, now: bool) -> None:
        from trainwiz.core.launch.stop import stop_run

        stop_run(self.folder, now=now, wait_s=0)
        self.app.call_from_thread(self.look)
