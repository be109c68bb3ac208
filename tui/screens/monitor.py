"""MonitorScreen: one look at a job tells the truth. It holds nothing that is not in the files and processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.events import DescendantBlur, DescendantFocus
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.worker import Worker, WorkerState
from trainwiz.core.language import mark, tr
from trainwiz.core.launch import actions
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import ACTIVE
from trainwiz.tui.keys import KeyBinding, Need, bindings, keys_of
from trainwiz.tui.widgets.frame import HelpCard, KeyBar, failure_words
from trainwiz.tui.widgets.log_panel import LogPanel
from trainwiz.tui.widgets.machine_panels import DevicePanel, HostPanel
from trainwiz.tui.widgets.metric_panel import MetricPanel
from trainwiz.tui.widgets.monitor_panel import AdvicePanel, AnswersPanel, MonitorPanel, SnapshotView
from trainwiz.tui.widgets.run_header import MonitorSummary, PacePanel, RunHeader

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Action, Snapshot
    from trainwiz.core.telemetry.target import Source, Target
    from trainwiz.tui.app import TrainwizApp


INTERVAL_S = 1.0

ABOUT = mark(
    "The monitor only reads files and watches processes. You can close it and open it again at any time, in this or "
    "another terminal; the run continues. Press tab to move between panels; then f1 explains the panel. A digit shows one "
    "panel alone, at any terminal size. A colon lists all actions by name."
)


class MonitorScreen(Screen[None]):
    """Looks at a target again and again in a thread, one look at a time, and shows each look.

    `readonly` takes away every key that changes the run. `clock` gives Unix time in seconds.
    """

    AUTO_FOCUS = ""
    ALLOW_IN_MAXIMIZED_VIEW = "RunHeader, KeyBar"

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("monitor")]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (76, "-medium"), (100, "-wide"), (150, "-huge")]
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (22, "-low"), (34, "-high"), (48, "-tall")]

    class Looked(Message, bubble=False):
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
        self.target, self.readonly = target, readonly
        self.snapshot: Snapshot | None = None
        self.panels: list[MonitorPanel] = [
            MetricPanel(),
            PacePanel(tr("speed")),
            DevicePanel(tr("device")),
            HostPanel(tr("RAM and disk")),
            AdvicePanel(tr("advice")),
            LogPanel(),
            AnswersPanel(tr("answers")),
        ]
        """In the order of their digits: the answers, which not every run has, come last."""
        self._interval_s, self._clock = interval_s, clock
        self._source: Source | None = None
        self._looking = False
        self._said = ""

    def compose(self) -> ComposeResult:
        metric, pace, device, host, advice, log, answers = self.panels
        yield RunHeader(self.target.name)
        with Container(id="panels"):
            yield Vertical(metric, pace, answers, id="left")
            yield Vertical(device, host, advice, id="right")
        yield MonitorSummary()
        yield log
        yield KeyBar(self.key_rows)

    # Panels

    @property
    def focused_panel(self) -> MonitorPanel | None:
        return self.focused if isinstance(self.focused, MonitorPanel) else None

    def action_next_panel(self, by: int) -> None:
        """Go to a panel `by` places on. While one has the whole screen, the next takes its place."""
        shown = [panel for panel in self.panels if self.maximized is not None or _is_shown(panel)]
        here = self.focused_panel
        place = shown.index(here) + by if here in shown else (0 if by > 0 else -1)
        if self.maximized is not None:
            self.show_alone(shown[place % len(shown)])
        elif shown:
            shown[place % len(shown)].focus()

    def action_one_panel(self, place: int) -> None:
        """The panel at `place` (from 1) fills the screen, or gives the room back."""
        panel = self.panels[place - 1]
        self.show_alone(None if panel is self.maximized else panel)

    def action_back(self) -> None:
        self.show_alone(None)

    def action_open_panel(self) -> None:
        self.show_alone(None if self.maximized is not None else self.focused_panel)

    def show_alone(self, panel: MonitorPanel | None) -> None:
        """Give the whole screen to `panel`; None gives the room back to all of them."""
        self.maximized = panel
        if panel is not None:
            panel.focus(scroll_visible=False)

    # Looking

    def on_mount(self) -> None:
        self.call_after_refresh(self.look)
        self.set_interval(self._interval_s, self.look)

    def look(self) -> None:
        """Start a look unless one is under way."""
        if self._looking:
            return
        self._looking = True
        curves = self.query_one(MetricPanel).wanted_curves()
        # Not a worker of Textual, whose states are three messages more each time.
        asyncio.get_running_loop().run_in_executor(None, self._take_look, curves).add_done_callback(self._look_is_done)

    def _take_look(self, curves: tuple[str, ...]) -> Snapshot:
        try:
            if self._source is None:
                # Loaded here, after the first frame.
                from trainwiz.core.telemetry.target import open_source

                self._source = open_source(self.target, clock=self._clock)
            snapshot = self._source.poll(curves)
            if not self.is_attached:
                self._source.close()
            return snapshot
        finally:
            self._looking = False

    def _look_is_done(self, look: asyncio.Future[Snapshot]) -> None:
        if look.cancelled():
            return
        error = look.exception()
        if error is None:
            self.post_message(self.Looked(look.result()))
        elif self.is_attached and (sentence := failure_words(error)) != self._said:
            # A look that fails again and again says it once.
            self._said = sentence
            self.notify(sentence, severity="error", markup=False)

    def on_unmount(self) -> None:
        # A look that is under way closes the source itself.
        if self._source is not None and not self._looking:
            self._source.close()

    @on(Looked)
    def _take(self, message: Looked) -> None:
        self.snapshot = message.snapshot
        self._said = ""
        self._show(message.snapshot)
        if message.snapshot.behind or self.query_one(MetricPanel).lacks_curves(message.snapshot):
            self.look()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """The one place where a failed worker speaks."""
        if event.state == WorkerState.ERROR and event.worker.error is not None:
            self.notify(failure_words(event.worker.error), severity="error", markup=False)

    # Showing

    def _show(self, snapshot: Snapshot) -> None:
        for view in self.query(SnapshotView):
            view.show(snapshot)
        self._show_keys()
        app = cast("TrainwizApp", self.app)
        if app.sub_title != snapshot.status:
            app.sub_title = snapshot.status
        if snapshot.ending is not None and app.farewell:
            # Where leaving says that the run was started, it now says how the run ended.
            remedy = "\n" + tr("Next: {remedy}", remedy=snapshot.ending.remedy) if snapshot.ending.remedy else ""
            app.farewell = snapshot.ending.text + remedy

    def key_rows(self) -> list[KeyBinding]:
        """The keys that work now."""
        panel, now = self.focused_panel, self.snapshot
        own = keys_of(panel.key_table) if panel is not None and panel.key_table else ()
        goes_on = now is not None and now.status in ACTIVE and now.replayed_s is None and not self.has_class("-narrow")
        leave = mark("quit (the run continues)") if goes_on else mark("quit")
        of_app = (replace(row, description=leave) if row.id == "app.quit" else row for row in keys_of("app"))
        return [*(row for row in keys_of("monitor") if self.offers(row.needs)), *own, *of_app]

    @on(DescendantFocus)
    @on(DescendantBlur)
    def _show_keys(self) -> None:
        """The bar follows what works now and what has the focus."""
        self.query_one(KeyBar).refresh_changed()

    # Keys that show something

    def action_choose_metric(self) -> None:
        if self.snapshot is None or not self.snapshot.metrics:
            self.notify(tr("No metrics to choose from yet."), markup=False)
            return

        from trainwiz.tui.screens.monitor_cards import metric_chooser

        def plot(name: str | None) -> None:
            if name is not None:
                self.query_one(MetricPanel).choose(name)
                self.look()

        self.app.push_screen(metric_chooser(self.snapshot.metrics, self.query_one(MetricPanel).metric), plot)

    def action_next_metric(self, by: int) -> None:
        if self.snapshot is not None:
            self.query_one(MetricPanel).next_metric(self.snapshot, by)
            self.look()

    def action_zoom(self) -> None:
        self.query_one(MetricPanel).zoom()

    def action_log_scale(self) -> None:
        self.query_one(MetricPanel).toggle_scale()

    def action_show_log(self) -> None:
        self.show_alone(self.query_one(LogPanel))

    def action_help(self) -> None:
        panel, parts = self.focused_panel, [(tr("The monitor"), tr(ABOUT))]
        if panel is not None:
            parts.insert(0, (panel.title_text, tr(panel.help_text)))
        # The keys of the panel that is explained come first.
        rows = sorted(self.key_rows(), key=lambda row: row.screen in ("monitor", "app"))
        self.app.push_screen(HelpCard(tr("Monitor"), parts, rows))

    # Keys that do something to the run. Each asks first where it cannot be undone; one that is not possible says why.

    @property
    def folder(self) -> RunFolder:
        """The run folder of a run of ours; other targets have none to act on."""
        return RunFolder(self.target.path)

    def offers(self, need: Need) -> bool:
        if need == "replay":
            return self.snapshot is not None and self.snapshot.replayed_s is not None
        return not need or not actions.why_not(need, self.snapshot, readonly=self.readonly)

    def _may(self, *wanted: Action) -> bool:
        """Whether one of the actions is possible; where none is, says why."""
        reasons = [actions.why_not(action, self.snapshot, readonly=self.readonly) for action in wanted]
        if all(reasons):
            self.notify(reasons[0], markup=False)
        return not all(reasons)

    @work(thread=True, group="act", exit_on_error=False)
    def _act(self, do: Callable[[], object]) -> None:
        do()
        self.app.call_from_thread(self.look)

    def action_pause(self) -> None:
        from trainwiz.core.telemetry.run_source import ReplaySource

        if isinstance(self._source, ReplaySource):
            self._source.toggle()
            self.look()

    def action_stop(self) -> None:
        snapshot = self.snapshot

        def stop(how: str | None) -> None:
            if how is not None:
                said = tr("Requesting an immediate stop.") if how == "now" else tr("Requesting a stop.")
                self.notify(said, markup=False)
                self._act(lambda: actions.stop(self.folder, now=how == "now"))

        if self._may("stop", "stop_now") and snapshot is not None:
            from trainwiz.tui.screens.monitor_cards import stop_dialog

            cost = partial(actions.stop_cost, self.folder, snapshot)
            self.app.push_screen(stop_dialog(snapshot.status == "stopping", cost), stop)

    def action_resume(self) -> None:
        def resume(answer: str | None) -> None:
            if answer is not None:
                self.notify(tr("Resuming the run."), markup=False)
                self._act(lambda: actions.resume(self.folder))

        if self._may("resume"):
            from trainwiz.tui.screens.monitor_cards import resume_dialog

            self.app.push_screen(resume_dialog(lambda: actions.resume_start(self.folder)), resume)

    def action_copy_command(self) -> None:
        def copy(command: str | None) -> None:
            if command is not None:
                self.app.copy_to_clipboard(command)
                self.notify(tr("Copied: {command}", command=command), markup=False)

        if self._may("command") and self.snapshot is not None:
            from trainwiz.tui.screens.monitor_cards import command_chooser

            self.app.push_screen(command_chooser(actions.commands_of(self.folder, self.snapshot.actions)), copy)

    def action_show_plan(self) -> None:
        if self._may("plan"):
            from trainwiz.tui.screens.monitor_cards import PlanCard

            self.app.push_screen(PlanCard(self.folder))


def _is_shown(widget: Widget) -> bool:
    return all(node.display for node in widget.ancestors_with_self if isinstance(node, Widget))
