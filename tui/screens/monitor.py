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
from textual.worker import Worker, WorkerState
from trainwiz.core.errors import TrainwizError
from trainwiz.core.plain import plain_text
from trainwiz.core.run.status import ACTIVE
from trainwiz.tui.keys import KeyBinding, Need, bindings, keys_of
from trainwiz.tui.screens.monitor_panels import COLUMN, PANEL, PanelScreen
from trainwiz.tui.screens.run_actions import RunActions
from trainwiz.tui.theme import UNICODE_MARKS, Marks
from trainwiz.tui.widgets.advice_panel import AdvicePanel
from trainwiz.tui.widgets.canvas import choose_glyphs
from trainwiz.tui.widgets.device_panel import DevicePanel
from trainwiz.tui.widgets.help_card import HelpCard
from trainwiz.tui.widgets.host_panel import HostPanel
from trainwiz.tui.widgets.key_bar import KeyBar
from trainwiz.tui.widgets.log_view import LogView
from trainwiz.tui.widgets.metric_panel import MetricPanel
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


class MonitorScreen(PanelScreen, RunActions):
    """`readonly` takes away every key that changes the run. `clock` gives Unix time in seconds."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("monitor")]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (76, "-medium"), (100, "-wide"), (150, "-huge")]
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (22, "-low"), (34, "-high"), (48, "-tall")]

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

    def compose(self) -> ComposeResult:
        marks = self.marks
        yield RunHeader(self.target.name, marks=marks)
        with Container(id="panels", classes=COLUMN):
            with Vertical(id="left", classes=COLUMN):
                yield MetricPanel(marks=marks, glyphs=choose_glyphs(marks != UNICODE_MARKS)).add_class(PANEL, "-greedy")
                yield PacePanel("pace", marks=marks).add_class(PANEL)
            with Vertical(id="right", classes=COLUMN):
                yield DevicePanel("device", marks=marks).add_class(PANEL)
                yield HostPanel("RAM and disk", marks=marks).add_class(PANEL)
                yield AdvicePanel("advice", marks=marks).add_class(PANEL, "-greedy")
        yield MonitorSummary(marks=marks).add_class("aside")
        log = LogView(empty_text="No output yet.", id="log")
        log.border_title = "log"
        yield log.add_class(PANEL)
        yield KeyBar(self.key_rows)

    def on_mount(self) -> None:
        self.call_after_refresh(self.look)
        self.set_interval(self._interval_s, self.look)

    @property
    def marks(self) -> Marks:
        return cast("TrainwizApp", self.app).marks if hasattr(self.app, "marks") else UNICODE_MARKS

    def offers(self, need: Need) -> bool:
        """Whether a key that needs this works now."""
        if need == "replay":
            return self.snapshot is not None and self.snapshot.replayed_s is not None
        return not need or self.can(need)

    def key_rows(self) -> list[KeyBinding]:
        """The keys that work now; a key of the focused panel goes before the same key of the screen."""
        panel = self.focused_panel
        own = keys_of(panel.key_table) if isinstance(panel, MonitorPanel) and panel.key_table else ()
        taken = {key for row in own for key in row.key.split(",")}
        rows = [row for row in keys_of("monitor") if self.offers(row.needs) and not taken & set(row.key.split(","))]
        goes_on = self.snapshot is not None and self.snapshot.status in ACTIVE and not self.has_class("-narrow")
        leave = "leave (the run goes on)" if goes_on else "leave"
        return [
            *rows,
            *own,
            *(replace(row, description=leave) if row.id == "app.quit" else row for row in keys_of("app")),
        ]

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
        metric = self.query_one(MetricPanel)
        metric.show_curves(snapshot)
        self.query_one(MonitorSummary).show(snapshot)
        self.query_one("#log", LogView).show(snapshot.log)
        if ended_now:
            self.query_one(KeyBar).refresh()
        self.app.sub_title = snapshot.status
        if snapshot.ending is not None:
            self._say_goodbye(snapshot.ending)
        if self._look_again or snapshot.behind or metric.metric not in snapshot.curves:
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

    def action_choose_metric(self) -> None:
        from trainwiz.tui.screens.metric_card import MetricCard

        if self.snapshot is None or not self.snapshot.metrics:
            self.notify("No metrics yet: there is nothing to choose from.", markup=False)
            return

        def plot(name: str | None) -> None:
            if name is not None:
                self.query_one(MetricPanel).choose(name)
                self.look()

        self.app.push_screen(MetricCard(self.snapshot.metrics, self.query_one(MetricPanel).metric), plot)

    def action_next_metric(self, by: int) -> None:
        if self.snapshot is not None:
            self.query_one(MetricPanel).next_metric(self.snapshot, by)
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

    def action_show_traffic(self) -> None:
        from trainwiz.tui.screens.traffic_card import TrafficCard

        self.app.push_screen(TrafficCard(lambda: self.snapshot, self.marks))

    def action_open_panel(self) -> None:
        """Enter opens what the focused panel has to open; most panels become larger."""
        panel = self.focused_panel
        if isinstance(panel, DevicePanel) and (gpu := panel.chosen_gpu) is not None:
            from trainwiz.tui.screens.gpu_card import GpuCard

            self.app.push_screen(GpuCard(lambda: self.snapshot, gpu, self.marks))
        elif isinstance(panel, LogView):
            self.action_show_log()
        elif panel is not None:
            self.action_maximise()

    def action_help(self) -> None:
        focused = self.focused
        parts = [("The monitor", ABOUT)]
        if isinstance(focused, MonitorPanel):
            parts.insert(0, (focused.title_text, focused.help_text))
        self.app.push_screen(HelpCard("Monitor", parts, self.key_rows()))
