"""Windows over the monitor: commands, one GPU, all metrics, which steps to plot; and what asks before a run is stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.telemetry.metrics import MetricSummary
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import KeyBinding, bindings, keys_of
from trainwiz.tui.run_words import held_out_name, now_words, ordered_names, with_checkpoint_words
from trainwiz.tui.screens.plan_state import Offer
from trainwiz.tui.text import cells, gib, pad, value_label
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.chooser import Chooser
from trainwiz.tui.widgets.device_panel import VALUE_WIDTH, card_lines, held_words, processes_lines, short_name
from trainwiz.tui.widgets.field_row import ActionButton
from trainwiz.tui.widgets.frame import EntryDialog, KeyBar, Window
from trainwiz.tui.widgets.lists import Pressed, TextLines
from trainwiz.tui.widgets.monitor_panel import LABEL_WIDTH, bar_meter, frame_title, spark_meter
from trainwiz.tui.widgets.plot import HOW_TO_TYPE, StepRange, parse_range

if TYPE_CHECKING:
    from trainwiz.core.launch.actions import StopCost
    from trainwiz.core.telemetry.snapshot import GpuReading, Snapshot


HINT = mark("Press a digit to copy. If the terminal can't copy (OSC 52), select the line with shift and the mouse.")


class CommandCard(Window[None]):
    """The first command is copied when the card opens."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("dialog", "command")]
    AUTO_FOCUS = "VerticalScroll"

    DEFAULT_CSS = """
    CommandCard > VerticalScroll { width: 104; max-height: 92%; border-title-color: $muted; padding: 1 2; }
    CommandCard #copied { color: $accent; margin-top: 1; }
    CommandCard .hint { color: $muted; }
    """

    def __init__(self, commands: Mapping[str, str]) -> None:
        """`commands`: what it does -> the command."""
        super().__init__()
        self._commands = list(commands.items())

    def compose(self) -> ComposeResult:
        with VerticalScroll() as card:
            card.border_title = frame_title(tr("command"))
            for number, (what, command) in enumerate(self._commands, start=1):
                yield Static(Content.styled(f"{number}  {plain_text(what)}", "$muted"), markup=False)
                yield Static(Content(plain_text(command)), markup=False)
            yield Static("", id="copied", markup=False)
            yield Static(tr(HINT), classes="hint", markup=False)

    def on_mount(self) -> None:
        self.action_copy(1)

    def action_copy(self, number: int) -> None:
        if 1 <= number <= len(self._commands):
            what, command = self._commands[number - 1]
            self.app.copy_to_clipboard(command)
            copied = tr("Copied {number}: {what}.", number=number, what=plain_text(what))
            self.query_one("#copied", Static).update(copied)


REFRESH_S = 1.0
ALL_LINES = 99
SENSOR_WORDS = {
    "utilization_percent": mark("util"),
    "memory_used_bytes": mark("memory used"),
    "memory_total_bytes": mark("memory"),
    "temperature_c": mark("temp"),
    "power_w": mark("power"),
    "power_limit_w": mark("power limit"),
    "throttle_reasons": mark("throttle reasons"),
    "fan_percent": mark("fan"),
    "clock_mhz": mark("clock"),
    "clock_limit_mhz": mark("max clock"),
    "processes": mark("processes"),
}


class GpuCard(Window[None]):
    """Drawn anew from each look. `place` is that of the card among those of the run; the arrow keys go to the others."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("dialog", "gpu")]
    AUTO_FOCUS = "VerticalScroll"

    DEFAULT_CSS = """
    GpuCard { background: $background; }
    GpuCard > VerticalScroll {
        height: 1fr; max-width: 100%; max-height: 100%; background: $background; border: round $line;
        border-title-color: $muted;
    }
    """

    def __init__(self, look: Callable[[], Snapshot | None], place: int) -> None:
        """`look` gives the newest look."""
        super().__init__()
        self._look, self._place = look, place

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield TextLines()
        yield KeyBar(self.key_rows)

    def key_rows(self) -> list[KeyBinding]:
        snapshot = self._look()
        several = snapshot is not None and len(snapshot.used_gpus) > 1
        return [*keys_of("dialog"), *(keys_of("gpu") if several else ())]

    def on_mount(self) -> None:
        self.call_after_refresh(self.draw)
        self.set_interval(REFRESH_S, self.draw)

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        snapshot, scroll = self._look(), self.query_one(VerticalScroll)
        width = scroll.scrollable_content_region.width
        if snapshot is None or width <= 0:
            return
        gpus = snapshot.used_gpus
        gpu = gpus[min(self._place, len(gpus) - 1)] if gpus else None
        title = "GPU" if gpu is None else f"GPU {gpu.index} {marks.dot} {short_name(gpu.name)}"
        if str(scroll.border_title) != title:
            scroll.border_title = frame_title(title)
        lines = gpu_page(snapshot, gpu, width)
        self.query_one(TextLines).show([line.truncate(width, ellipsis=True) for line in lines])

    def action_other_card(self, by: int) -> None:
        snapshot = self._look()
        if snapshot is not None and snapshot.used_gpus:
            self._place = (self._place + by) % len(snapshot.used_gpus)
            self.draw()


def gpu_page(snapshot: Snapshot, gpu: GpuReading | None, width: int) -> list[Content]:
    """All lines about a card; what has no room is scrolled to."""
    if gpu is None:
        return [Content.styled(tr("GPU lost: no GPU is visible any more."), "$warning")]
    facts = [(tr("name"), gpu.name), ("UUID", gpu.uuid or tr("unknown")), *([("MIG", gpu.mig)] if gpu.mig else [])]
    identity = [Content.assemble((pad(label, LABEL_WIDTH), "$muted"), plain_text(text, 80)) for label, text in facts]
    lines = card_lines(gpu, snapshot.planned, width, ALL_LINES)
    if gpu.problem:
        return [*lines, *identity]
    if gpu.memory_history and gpu.memory_total_bytes:
        value = Content(f"{gib(gpu.memory_used_bytes)} GiB")
        lines.insert(2, spark_meter("", gpu.memory_history, gpu.memory_total_bytes, value, width, VALUE_WIDTH))
    if gpu.fan_percent is not None:
        value = Content(f"{gpu.fan_percent:.0f}%")
        lines.append(bar_meter(tr("fan"), gpu.fan_percent / 100, value, width, None, VALUE_WIDTH))
    prefix = f"gpus.{gpu.index}."
    reason = snapshot.unavailable.get(f"{prefix}processes")
    said = tr("Processes: {reason}", reason=plain_text(reason)) if reason else tr("No process uses memory.")
    processes = processes_lines(gpu)
    head = Content.styled(tr("Processes on this GPU"), "bold") if processes else Content.styled(said, "$muted")
    unreadable = [
        tr("{sensor}: {reason}", sensor=tr(SENSOR_WORDS[sensor]), reason=plain_text(reason, 120))
        for key, reason in snapshot.unavailable.items()
        if key.startswith(prefix) and (sensor := key.removeprefix(prefix)) in SENSOR_WORDS
    ]
    lines += [Content(), Content(held_words(gpu)), Content(), head, *processes, Content(), *identity]
    return lines + [Content.styled(sentence, "$muted") for sentence in unreadable]


WIDEST_NAME = 44
VALUES_WIDTH = 28
"""Of the last value and the count, which every line has; the range stands where there is room for it."""


def all_names(metrics: Mapping[str, MetricSummary]) -> list[str]:
    """Every metric, each followed by its like on held-out rows."""
    pairs = ((name, held_out_name(name, metrics)) for name in ordered_names(metrics))
    ordered = [name for pair in pairs for name in pair if name is not None]
    return list(dict.fromkeys([*ordered, *metrics]))


class MetricCard(Chooser):
    """Answers the name of a metric, or None when it was closed."""

    MOST = 10_000
    HINT = mark("enter plot   ↑↓ move   esc close")

    DEFAULT_CSS = """
    MetricCard > Vertical { width: 114; }
    MetricCard OptionList { scrollbar-gutter: stable; }
    """

    def __init__(self, metrics: Mapping[str, MetricSummary], current: str) -> None:
        names = all_names(metrics)
        heading = trn("Metric to plot: {n} available", "Metric to plot: {n} available", len(names), n=f"{len(names):,}")
        super().__init__(heading, [Offer(name, plain_text(name)) for name in names], current)
        self._metrics = metrics

    def line(self, place: int, mark: str, width: int) -> Content:
        # The list of metrics has no mark, and a gutter of its own.
        name = self._shown[place].value
        return metric_line(
            name, self._metrics[name], max(20, self.options.scrollable_content_region.width or width + 4)
        )


def metric_line(name: str, summary: MetricSummary, width: int) -> Content:
    """Name, last value, count, range and the number of values that are not numbers, in `width` cells."""
    room = min(WIDEST_NAME, max(12, width - VALUES_WIDTH))
    shown = Content(plain_text(name)).truncate(room, ellipsis=True)
    last = "—" if summary.last is None else value_label(summary.last)
    values = trn("{n} value", "{n} values", summary.count, n=f"{summary.count:,}")
    bad = "  " + tr("{n} NaN/inf", n=f"{summary.non_finite:,}") if summary.non_finite else ""
    parts = [(pad(last, 10, right=True), ""), ("  " + pad(values, 16, right=True), "$muted")]
    if summary.minimum is not None and summary.maximum is not None:
        between = "  " + tr("{low} to {high}", low=value_label(summary.minimum), high=value_label(summary.maximum))
        if room + VALUES_WIDTH + cells(between) + cells(bad) <= width:
            parts.append((between, "$muted"))
    line = Content.assemble(shown, " " * max(0, room - shown.cell_length), *parts, (bad, "$error"))
    return line.truncate(width, ellipsis=True)


def range_dialog(low: float, high: float) -> EntryDialog[StepRange]:
    """Answers a range inside the steps `low` to `high`, or None when it was closed."""
    heading = tr("Steps to show ({first} to {last})", first=f"{low:,.0f}", last=f"{high:,.0f}")
    hint = tr(HOW_TO_TYPE) + "\n" + tr("enter apply   esc close")
    return EntryDialog(heading, "400-900", hint, lambda text: parse_range(text, low, high))


# Dialogs that ask before something is done to a run.

CANCEL = "cancel"
GOES_DETACHED = mark("It runs detached, as before: closing this monitor does not stop it.")


class AskDialog(Window[str]):
    """A title, sentences, and a button for each answer; None is the answer of the button CANCEL and of closing.

    `find` reads files: it runs in a thread, and its sentences take the place of the first ones when it is done.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("confirm")]
    AUTO_FOCUS = "ActionButton"

    DEFAULT_CSS = """
    AskDialog > Vertical { width: 76; max-height: 96%; padding: 1 2; }
    AskDialog Static { margin-bottom: 1; }
    AskDialog Horizontal { height: auto; }
    """

    def __init__(
        self,
        title: str,
        sentences: Sequence[str],
        answers: Sequence[tuple[str, str]],
        find: Callable[[], Sequence[str]],
        focus: str | None = None,
    ) -> None:
        """`answers`: what stands on a button, and the answer; `focus` is the answer whose button has the focus."""
        super().__init__()
        self._title, self._sentences, self._answers, self._find = title, sentences, answers, find
        self._first_focus = focus

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content.styled(self._title, "bold"), markup=False)
            for sentence in self._sentences:
                yield Static(sentence, classes="sentence", markup=False)
            with Horizontal():
                for label, answer in self._answers:
                    yield ActionButton(label, answer)

    def on_mount(self) -> None:
        if self._first_focus is not None:
            self.query_one(f"#button-{self._first_focus}").focus()
        self._look_up()

    @work(thread=True, exit_on_error=False)
    def _look_up(self) -> None:
        self.app.call_from_thread(self._show, self._find())

    def _show(self, sentences: Sequence[str]) -> None:
        for static, sentence in zip(self.query(".sentence").results(Static), sentences, strict=False):
            static.update(plain_text(sentence))

    @on(Pressed)
    def action_press(self) -> None:
        """A click has put the focus on its button."""
        if isinstance(self.focused, ActionButton):
            self.dismiss(None if self.focused.action == CANCEL else self.focused.action)


def resume_dialog(find_start: Callable[[], str]) -> AskDialog:
    """Asks before a run that has ended is started again; answers "resume". `find_start` says where it goes on."""
    return AskDialog(
        tr("Resume this run?"),
        (tr("Searching for its newest complete checkpoint."), tr(GOES_DETACHED)),
        ((tr("resume"), "resume"), (tr("cancel"), CANCEL)),
        lambda: (find_start(),),
    )


def stop_dialog(is_stopping: bool, find_cost: Callable[[], StopCost], *, now: bool = False) -> AskDialog:
    """Asks before a run is stopped, and says what each way costs; answers "checkpoint" or "now".

    `now` puts the focus on the stop at once, for the key that asks for it.
    """

    def sentences(cost: StopCost | None) -> tuple[str, str]:
        return with_checkpoint_words(cost, stopping=is_stopping), now_words(cost)

    answers = [(tr("with a checkpoint"), "checkpoint"), (tr("keep running"), CANCEL), (tr("now"), "now")]
    if is_stopping:
        answers = [(tr("wait for the checkpoint"), CANCEL), (tr("stop now"), "now")]
    title = tr("The run is already stopping.") if is_stopping else tr("Stop this run?")
    return AskDialog(title, sentences(None), answers, lambda: sentences(find_cost()), "now" if now else None)
