"""Windows over the monitor: commands, one GPU, all metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.telemetry.metrics import MetricSummary
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import KeyBinding, bindings, keys_of
from trainwiz.tui.run_words import held_out_name, ordered_names
from trainwiz.tui.text import cells, gib, pad
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.canvas import value_label
from trainwiz.tui.widgets.frame import KeyBar
from trainwiz.tui.widgets.gpu_lines import card_lines, held_words, processes_lines, short_name
from trainwiz.tui.widgets.monitor_panel import LABEL_WIDTH, bar_meter, frame_title, spark_meter

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import GpuReading, Snapshot


# SnapshotCard: a window over the monitor that is drawn anew from each look.

REFRESH_S = 1.0


class SnapshotCard(ModalScreen[None]):
    """`look` gives the newest look; subclasses say in `lines` what they show of it."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("dialog")]
    AUTO_FOCUS = "VerticalScroll"

    DEFAULT_CSS = """
    SnapshotCard { background: $background; }
    SnapshotCard VerticalScroll { height: 1fr; border: round $line; border-title-color: $muted; padding: 0 1; }
    SnapshotCard Static { height: auto; }
    """

    def __init__(self, look: Callable[[], Snapshot | None], marks: Marks) -> None:
        super().__init__()
        self._look = look
        self.marks = marks
        self._drawn: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static("", markup=False)
        yield KeyBar(self.key_rows)

    def key_rows(self) -> list[KeyBinding]:
        return [*keys_of("dialog")]

    def on_mount(self) -> None:
        self.call_after_refresh(self.draw)
        self.set_interval(REFRESH_S, self.draw)

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def title_of(self, snapshot: Snapshot) -> str:
        raise NotImplementedError

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        """All lines; what has no room is scrolled to."""
        raise NotImplementedError

    def draw(self) -> None:
        snapshot = self._look()
        scroll = self.query_one(VerticalScroll)
        width = scroll.scrollable_content_region.width
        if snapshot is None or width <= 0:
            return
        content = Content("\n").join([line.truncate(width, ellipsis=True) for line in self.lines(snapshot, width)])
        drawn = (self.title_of(snapshot), content.plain, tuple(content.spans))
        if drawn != self._drawn:
            self._drawn = drawn
            scroll.border_title = frame_title(self.title_of(snapshot))
            self.query_one(Static).update(content)

    def action_close(self) -> None:
        self.dismiss(None)


# CommandCard: the commands of a run as text, and a digit copies one into the clipboard of the terminal.

HINT = mark("A digit copies. Where the terminal takes no copy (OSC 52), select the line with shift and the mouse.")


class CommandCard(ModalScreen[None]):
    """The first command is copied when the card opens."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("dialog"),
        *bindings("command"),
    ]
    AUTO_FOCUS = "VerticalScroll"

    DEFAULT_CSS = """
    CommandCard { align: center middle; background: $background 60%; }
    CommandCard > VerticalScroll {
        width: 104; max-width: 96%; height: auto; max-height: 92%;
        background: $surface; border: round $accent; border-title-color: $muted; padding: 1 2;
    }
    CommandCard Static { height: auto; }
    CommandCard #copied { color: $accent; margin-top: 1; }
    CommandCard .hint { color: $muted; }
    """

    def __init__(self, commands: Mapping[str, str]) -> None:
        """`commands`: what it does -> the command."""
        super().__init__()
        self._commands = dict(commands)

    def compose(self) -> ComposeResult:
        with VerticalScroll() as card:
            card.border_title = frame_title(tr("command"))
            for number, (what, command) in enumerate(self._commands.items(), start=1):
                yield Static(Content.assemble((f"{number}  {plain_text(what)}", "$muted")), markup=False)
                yield Static(Content(plain_text(command)), markup=False)
            yield Static("", id="copied", markup=False)
            yield Static(tr(HINT), classes="hint", markup=False)

    def on_mount(self) -> None:
        self.action_copy(1)

    def action_copy(self, number: int) -> None:
        """Hand command `number` to the terminal."""
        entries = list(self._commands.items())
        if not 1 <= number <= len(entries):
            return
        what, command = entries[number - 1]
        self.app.copy_to_clipboard(command)
        self.query_one("#copied", Static).update(tr("Copied {number}: {what}.", number=number, what=plain_text(what)))

    def action_close(self) -> None:
        self.dismiss(None)


# GpuCard: all that is known of one GPU: its recent past, its clocks, and who holds its memory.

ALL_LINES = 99
SENSOR_WORDS = {
    "utilization_percent": mark("busy"),
    "memory_used_bytes": mark("memory in use"),
    "memory_total_bytes": mark("memory"),
    "temperature_c": mark("heat"),
    "power_w": mark("power"),
    "power_limit_w": mark("power limit"),
    "throttle_reasons": mark("what holds the clock back"),
    "fan_percent": mark("fan"),
    "clock_mhz": mark("clock"),
    "clock_limit_mhz": mark("highest clock"),
    "processes": mark("processes"),
}


class GpuCard(SnapshotCard):
    """`place` is the place of the card among those of the run; the arrow keys go to the others."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("gpu")]

    def __init__(self, look: Callable[[], Snapshot | None], place: int, marks: Marks) -> None:
        super().__init__(look, marks)
        self._place = place

    def key_rows(self) -> list[KeyBinding]:
        snapshot = self._look()
        several = snapshot is not None and len(snapshot.used_gpus) > 1
        return [*keys_of("dialog"), *(keys_of("gpu") if several else ())]

    def action_other_card(self, by: int) -> None:
        snapshot = self._look()
        if snapshot is not None and snapshot.used_gpus:
            self._place = (self._place + by) % len(snapshot.used_gpus)
            self.draw()

    def _gpu(self, snapshot: Snapshot) -> GpuReading | None:
        return snapshot.used_gpus[min(self._place, len(snapshot.used_gpus) - 1)] if snapshot.used_gpus else None

    def title_of(self, snapshot: Snapshot) -> str:
        gpu = self._gpu(snapshot)
        return "GPU" if gpu is None else f"GPU {gpu.index} {self.marks.dot} {short_name(gpu.name)}"

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        gpu = self._gpu(snapshot)
        if gpu is None:
            return [Content.styled(tr("The GPU is gone: no card is visible any more."), "$warning")]
        lines = card_lines(gpu, snapshot.planned, width, ALL_LINES, self.marks)
        if gpu.problem:
            return [*lines, *self._identity(gpu)]
        if gpu.memory_history and gpu.memory_total_bytes:
            total = gpu.memory_total_bytes
            value = Content(f"{gib(gpu.memory_used_bytes)} GiB")
            lines.insert(2, spark_meter("", gpu.memory_history, total, value, width, self.marks, 15))
        if gpu.fan_percent is not None:
            value = Content(f"{gpu.fan_percent:.0f} %")
            lines.append(bar_meter(tr("fan"), gpu.fan_percent / 100, value, width, self.marks, None, 15))
        lines += [Content(), Content(held_words(gpu)), Content(), *self._processes(snapshot, gpu)]
        lines += [Content(), *self._identity(gpu), *self._unreadable(snapshot, gpu)]
        return lines

    def _processes(self, snapshot: Snapshot, gpu: GpuReading) -> list[Content]:
        lines = processes_lines(gpu, self.marks)
        reason = snapshot.unavailable.get(f"gpus.{gpu.index}.processes")
        if lines:
            return [Content.styled(tr("Processes on this card"), "bold"), *lines]
        said = tr("Processes: {reason}", reason=plain_text(reason)) if reason else tr("No process holds memory.")
        return [Content.styled(said, "$muted")]

    def _identity(self, gpu: GpuReading) -> list[Content]:
        facts = [(tr("name"), gpu.name), ("UUID", gpu.uuid or tr("unknown")), *([("MIG", gpu.mig)] if gpu.mig else [])]
        return [Content.assemble((pad(label, LABEL_WIDTH), "$muted"), plain_text(text, 80)) for label, text in facts]

    def _unreadable(self, snapshot: Snapshot, gpu: GpuReading) -> list[Content]:
        """Each sensor that the card does not report, with the reason."""
        prefix = f"gpus.{gpu.index}."
        lines = []
        for key, reason in snapshot.unavailable.items():
            sensor = key.removeprefix(prefix)
            if key.startswith(prefix) and sensor in SENSOR_WORDS:
                lines.append(
                    Content.styled(
                        tr("{sensor}: {reason}", sensor=tr(SENSOR_WORDS[sensor]), reason=plain_text(reason, 120)),
                        "$muted",
                    )
                )
        return lines


# MetricCard: all metrics of a run in one list, narrowed by typing; the answer is what is plotted next.

WIDEST_NAME = 44
VALUES_WIDTH = 28
"""Of the last value and the count, which every line has; the range stands where there is room for it."""


def matching_names(names: Sequence[str], text: str) -> list[str]:
    """The names that hold every word of `text`, those that begin with it first."""
    words = text.lower().split()
    found = [name for name in names if all(word in plain_text(name).lower() for word in words)]
    return sorted(found, key=lambda name: not plain_text(name).lower().startswith(text.lower().strip()))


def all_names(metrics: Mapping[str, MetricSummary]) -> list[str]:
    """Every metric, each followed by its like on held-out rows."""
    names: list[str] = []
    for name in ordered_names(metrics):
        pair = held_out_name(name, metrics)
        names += [entry for entry in (name, pair) if entry is not None and entry not in names]
    return names + [name for name in metrics if name not in names]


class MetricCard(ModalScreen[str | None]):
    """Answers the name of a metric, or None when it was closed."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("list")]

    DEFAULT_CSS = """
    MetricCard { align: center middle; background: $background 60%; }
    MetricCard > Vertical {
        width: 114; max-width: 96%; height: auto; max-height: 90%;
        background: $surface; border: round $accent; padding: 0 1;
    }
    MetricCard Input { border: none; height: 1; padding: 0; background: $panel; margin: 0 0 1 0; }
    MetricCard OptionList { border: none; height: auto; max-height: 26; background: $surface; padding: 0; scrollbar-gutter: stable; }
    MetricCard .hint { color: $muted; height: auto; margin: 1 0 0 0; }
    """

    def __init__(self, metrics: Mapping[str, MetricSummary], current: str) -> None:
        super().__init__()
        self._metrics = metrics
        self._names = all_names(metrics)
        self._current = current
        self._shown: list[str] = []

    def compose(self) -> ComposeResult:
        with Vertical():
            count = len(self._names)
            heading = trn("What to plot: {n} metric", "What to plot: {n} metrics", count, n=f"{count:,}")
            yield Static(Content.styled(heading, "bold"), markup=False)
            entry = Input(placeholder=tr("type to search"), max_length=200, compact=True)
            entry.cursor_blink = False
            yield entry
            options: OptionList = OptionList(markup=False)
            options.can_focus = False
            yield options
            yield Static(tr("enter plot   ↑↓ move   esc close"), classes="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        # The width of the lines is known after the first layout.
        self.call_after_refresh(self._fill, "")

    def on_resize(self) -> None:
        self.call_after_refresh(self._fill, self.query_one(Input).value)

    def _fill(self, text: str) -> None:
        self._shown = matching_names(self._names, text)
        options = self.query_one(OptionList)
        options.clear_options()
        width = max(20, options.scrollable_content_region.width or options.size.width)
        options.add_options([Option(metric_line(name, self._metrics[name], width)) for name in self._shown])
        if self._shown:
            wanted = self._current if not text and self._current in self._shown else self._shown[0]
            options.highlighted = self._shown.index(wanted)
        else:
            options.add_option(Option(tr("No metric has that in its name."), disabled=True))

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._fill(event.value)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        index = self.query_one(OptionList).highlighted
        if index is not None and index < len(self._shown):
            self.dismiss(self._shown[index])

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_index < len(self._shown):
            self.dismiss(self._shown[event.option_index])

    def action_move(self, by: int) -> None:
        options = self.query_one(OptionList)
        if self._shown:
            options.highlighted = ((options.highlighted or 0) + by) % len(self._shown)

    def action_close(self) -> None:
        self.dismiss(None)


def metric_line(name: str, summary: MetricSummary, width: int) -> Content:
    """Name, last value, count, range and the number of values that are not numbers, in `width` cells."""
    room = min(WIDEST_NAME, max(12, width - VALUES_WIDTH))
    shown = Content(plain_text(name)).truncate(room, ellipsis=True)
    last = "—" if summary.last is None else value_label(summary.last)
    values = trn("{n} value", "{n} values", summary.count, n=f"{summary.count:,}")
    bad = "  " + tr("{n} not a number", n=f"{summary.non_finite:,}") if summary.non_finite else ""
    parts = [(pad(last, 10, right=True), ""), ("  " + pad(values, 16, right=True), "$muted")]
    if summary.minimum is not None and summary.maximum is not None:
        between = "  " + tr("{low} to {high}", low=value_label(summary.minimum), high=value_label(summary.maximum))
        if room + VALUES_WIDTH + cells(between) + cells(bad) <= width:
            parts.append((between, "$muted"))
    parts.append((bad, "$error"))
    line = Content.assemble(shown, " " * max(0, room - shown.cell_length), *parts)
    return line.truncate(width, ellipsis=True)
