"""MonitorScreen: one look at a job tells the truth. It holds nothing that is not in the files and processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.events import DescendantBlur, DescendantFocus, Resize
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.worker import Worker, WorkerState
from trainwiz.core.language import mark, tr
from trainwiz.core.launch import actions
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import ACTIVE
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import KeyBinding, Need, bindings, keys_of
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.device_panel import DevicePanel
from trainwiz.tui.widgets.frame import HelpCard, KeyBar, failure_words
from trainwiz.tui.widgets.host_panel import HostPanel, MonitorSummary, PacePanel
from trainwiz.tui.widgets.log_view import LogView
from trainwiz.tui.widgets.metric_panel import MetricPanel
from trainwiz.tui.widgets.monitor_panel import AdvicePanel, AnswersPanel, MonitorPanel, SnapshotView
from trainwiz.tui.widgets.run_header import RunHeader

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Action, Snapshot
    from trainwiz.core.telemetry.target import Source, Target
    from trainwiz.tui.app import TrainwizApp


PANEL = "panel"
"""CSS class of what counts as a panel, in the order of the tab key."""
COLUMN = "column"
"""CSS class of what holds panels one below the other."""


INTERVAL_S = 1.0

ABOUT = mark(
    "The monitor only reads files and watches processes. You can close it and open it again at any time, in this or "
    "another terminal; the run continues. Press tab to move between panels; then f1 explains the panel. A digit shows one "
    "panel alone, at any terminal size. A colon lists all actions by name."
)
LOG_HELP = mark(
    "The newest log lines of the job; a progress bar is one line. Press enter or l to open the log on the "
    "whole screen, where you can search and filter."
)
NO_LOG = mark("No log of this job was found.")


class MonitorScreen(Screen[None]):
    """Looks at a target again and again in a thread, one look at a time, and shows each look.

    `readonly` takes away every key that changes the run. `clock` gives Unix time in seconds. A panel can have the whole
    screen: it sets classes and moves the focus, and the style sheet says what they look like: -none (it has nothing to
    show), -alone (has the screen), -away (a column without that panel), -one-panel (the screen). Which panel was chosen
    outlives sizes at which it has no room.
    """

    AUTO_FOCUS = ""
    _chosen: Widget | None = None

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
        self._interval_s, self._clock = interval_s, clock
        self._source: Source | None = None
        self._looking = self._look_again = False
        self._said = ""

    def compose(self) -> ComposeResult:
        yield RunHeader(self.target.name)
        with Container(id="panels", classes=COLUMN):
            with Vertical(id="left", classes=COLUMN):
                yield MetricPanel().add_class(PANEL)
                yield PacePanel(tr("speed")).add_class(PANEL)
                yield AnswersPanel(tr("answers")).add_class(PANEL, "-none")
            with Vertical(id="right", classes=COLUMN):
                yield DevicePanel(tr("device")).add_class(PANEL)
                yield HostPanel(tr("RAM and disk")).add_class(PANEL)
                yield AdvicePanel(tr("advice")).add_class(PANEL)
        yield MonitorSummary().add_class("aside")
        log = LogView(empty_text=tr("No output yet.") if self.target.kind == "run" else tr(NO_LOG), id="log")
        log.border_title = tr("log")
        yield log.add_class(PANEL)
        yield KeyBar(self.key_rows)

    @property
    def panels(self) -> list[Widget]:
        """In the order of their digits: the answers, which not every run has, come last."""
        return sorted(self.query(f".{PANEL}").results(Widget), key=lambda panel: isinstance(panel, AnswersPanel))

    # Panels

    @property
    def focused_panel(self) -> Widget | None:
        """The panel that has the focus, or what has it inside."""
        if self.focused is None:
            return None
        nodes = (node for node in self.focused.ancestors_with_self if isinstance(node, Widget))
        return next((node for node in nodes if node.has_class(PANEL)), None)

    @property
    def alone(self) -> Widget | None:
        return next((panel for panel in self.panels if panel.has_class("-alone")), None)

    def action_next_panel(self, by: int) -> None:
        """Go to a panel `by` places on. While one has the whole screen, the next takes its place."""
        panels = self.panels if self.alone is not None else [panel for panel in self.panels if _is_shown(panel)]
        if not panels:
            return
        here = self.alone or self.focused_panel
        place = panels.index(here) + by if here in panels else (0 if by > 0 else -1)
        panel = panels[place % len(panels)]
        if self.alone is not None:
            self.show_alone(panel)
        else:
            self._chosen = panel
            panel.focus()

    def action_one_panel(self, place: int) -> None:
        """The panel at `place` (from 1) fills the screen, or gives the room back."""
        panel = self.panels[place - 1]
        self.show_alone(None if panel is self.alone else panel)

    def action_back(self) -> None:
        self.show_alone(None)

    def show_alone(self, panel: Widget | None) -> None:
        """Give the whole screen to `panel`; None gives the room back to all of them."""
        if panel is self.alone:
            return
        for other in self.panels:
            other.set_class(other is panel, "-alone")
        for column in self.query(f".{COLUMN}").results(Widget):
            column.set_class(panel is not None and panel not in column.query(f".{PANEL}"), "-away")
        self.set_class(panel is not None, "-one-panel")
        if panel is not None:
            self._chosen = panel
            # It can take the focus only once it is shown.
            self.call_after_refresh(panel.focus)
        elif self._chosen is not None:
            self.call_after_refresh(self._focus_chosen)

    @on(DescendantFocus)
    def _remember(self) -> None:
        """A click chooses too; what gets the focus because the chosen one has no room does not."""
        panel = self.focused_panel
        if panel is not None and (self._chosen is None or _is_shown(self._chosen)):
            self._chosen = panel

    @on(Resize)
    def _keep_focus(self) -> None:
        self.call_after_refresh(self._focus_chosen)

    def _focus_chosen(self) -> None:
        if self._chosen is not None and self._chosen.focusable and self.focused_panel is not self._chosen:
            self._chosen.focus()

    # Looking

    def on_mount(self) -> None:
        self.call_after_refresh(self.look)
        self.set_interval(self._interval_s, self.look)

    def look(self) -> None:
        """Start a look unless one is under way; then another one follows it."""
        if self._looking:
            self._look_again = True
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
        if self._look_again or message.snapshot.behind or self.query_one(MetricPanel).lacks_curves(message.snapshot):
            self._look_again = False
            self.look()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """The one place where a failed worker speaks."""
        if event.state == WorkerState.ERROR and event.worker.error is not None:
            self.notify(failure_words(event.worker.error), severity="error", markup=False)

    # Showing

    def _show(self, snapshot: Snapshot) -> None:
        for view in self.query(SnapshotView):
            view.show(snapshot)
        self.query_one(MetricPanel).show_curves(snapshot)
        log = self.query_one("#log", LogView)
        if snapshot.log_path is not None:
            log.say_when_empty(tr("{path} has no lines yet.", path=plain_text(snapshot.log_path)))
        elif snapshot.unavailable.get("log"):
            log.say_when_empty(plain_text(snapshot.unavailable["log"]))
        log.show(snapshot.log)
        self._show_keys()
        if self.app.sub_title != snapshot.status:
            self.app.sub_title = snapshot.status
        if (ending := snapshot.ending) is not None and bool(getattr(self.app, "farewell", "")):
            # Where leaving says that the run was started, it now says how the run ended.
            remedy = "\n" + tr("Next: {remedy}", remedy=ending.remedy) if ending.remedy else ""
            cast("TrainwizApp", self.app).farewell = ending.text + remedy

    def key_rows(self) -> list[KeyBinding]:
        """The keys that work now; a key of the focused panel goes before the same key of the screen."""
        panel, now = self.focused_panel, self.snapshot
        own = keys_of(panel.key_table) if isinstance(panel, MonitorPanel) and panel.key_table else ()
        taken = {key for row in own for key in row.key.split(",")}
        rows = [row for row in keys_of("monitor") if self.offers(row.needs) and not taken & set(row.key.split(","))]
        goes_on = now is not None and now.status in ACTIVE and now.replayed_s is None and not self.has_class("-narrow")
        leave = mark("quit (the run continues)") if goes_on else mark("quit")
        of_app = (replace(row, description=leave) if row.id == "app.quit" else row for row in keys_of("app"))
        return [*rows, *own, *of_app]

    @on(DescendantFocus)
    @on(DescendantBlur)
    def _show_keys(self) -> None:
        """The bar and the title of the log follow what works now and what has the focus."""
        log = self.query_one("#log", LogView)
        title = f"{marks.here} {tr('log')}" if log.has_focus else tr("log")
        if str(log.border_title) != title:
            log.border_title = title
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
        panel = self.query_one(MetricPanel)
        panel.show_range(panel.range.next_zoom())

    def action_log_scale(self) -> None:
        self.query_one(MetricPanel).toggle_scale()

    def action_show_log(self) -> None:
        snapshot = self.snapshot
        if snapshot is None or snapshot.log_path is None or snapshot.replayed_s is not None:
            # A replay shows no line of its future.
            self.show_alone(self.query_one("#log"))
            return
        from trainwiz.tui.screens.log_card import LogCard

        self.app.push_screen(LogCard(Path(snapshot.log_path)))

    def action_open_panel(self) -> None:
        """Enter opens the whole log; another panel gets the whole screen, or gives it back."""
        panel = self.focused_panel
        if isinstance(panel, LogView):
            self.action_show_log()
        elif panel is not None:
            self.show_alone(None if panel is self.alone else panel)

    def action_help(self) -> None:
        panel = self.focused_panel
        parts = [(tr("The monitor"), tr(ABOUT))]
        if isinstance(panel, MonitorPanel):
            parts.insert(0, (panel.title_text, tr(panel.help_text)))
        elif isinstance(panel, LogView):
            parts.insert(0, (tr("log"), tr(LOG_HELP)))
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
        if self._may("command") and self.snapshot is not None:
            from trainwiz.tui.screens.monitor_cards import CommandCard

            self.app.push_screen(CommandCard(actions.commands_of(self.folder, self.snapshot.actions)))

    def action_show_plan(self) -> None:
        from trainwiz.tui.screens.monitor_cards import PlanCard

        if self._may("plan"):
            self.app.push_screen(PlanCard(self.folder))


def _is_shown(widget: Widget) -> bool:
    return all(node.display for node in widget.ancestors_with_self if isinstance(node, Widget))
