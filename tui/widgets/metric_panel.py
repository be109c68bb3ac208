"""MetricPanel: the plot of one metric, and the newest values."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.events import Click, MouseScrollDown, MouseScrollUp, Resize
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from trainwiz.core.language import mark, tr
from trainwiz.core.telemetry.metrics import EMPTY_CURVE, Curve, MetricSummary
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import ScreenName, bindings
from trainwiz.tui.run_words import first_choice, held_out_name, held_out_word, measured, ordered_names
from trainwiz.tui.text import value_label
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.canvas import choose_glyphs
from trainwiz.tui.widgets.drawing import Picture, PlotData, Reading, draw_plot, read_at, step_beside
from trainwiz.tui.widgets.lists import LineKey, TextLines, refresh_lines
from trainwiz.tui.widgets.monitor_panel import MonitorPanel, join_fitting, quiet

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot


# Plot: one metric over the steps, which of them it shows, and its cursor.


ZOOM_SHARES = (1.0, 0.2, 0.04)
NARROWEST = 1e-6
"""Share of all steps below which a range is not narrowed further."""


@dataclass(frozen=True, slots=True)
class StepRange:
    """An end that is None is open: it follows the run. `share` counts from the last step."""

    first: float | None = None
    last: float | None = None
    share: float = 1.0
    """Only the newest share of all steps, where neither end is given."""

    def ends(self, low: float, high: float) -> tuple[float | None, float | None]:
        """The steps to draw of a run that has values from `low` to `high`; None leaves that end to the plot."""
        if self.first is not None or self.last is not None:
            return self.first, self.last
        return (None if self.share >= 1 else high - (high - low) * self.share), None

    def words(self) -> str:
        """What stands in the title; empty where all steps are shown."""
        first, last = ("" if end is None else f"{end:,.0f}" for end in (self.first, self.last))
        if first and last:
            return tr("steps {first} to {last}", first=first, last=last)
        if first or last:
            return tr("from step {step}", step=first) if first else tr("to step {step}", step=last)
        return "" if self.share == 1 else tr("last {share}", share=f"{self.share * 100:g}%")

    def next_zoom(self) -> StepRange:
        """All steps, the last fifth, the last 4 %, all again."""
        own = self in [StepRange(share=share) for share in ZOOM_SHARES]
        place = ZOOM_SHARES.index(self.share) + 1 if own else 1
        return StepRange(share=ZOOM_SHARES[place % len(ZOOM_SHARES)])

    def resized(self, factor: float, low: float, high: float, about: float | None = None) -> StepRange:
        """`factor` times as many steps around `about`; without it the last step shown stays where it is."""
        first, last = self._closed(low, high)
        length = (last - first) * factor
        if length >= high - low:
            return StepRange()
        if length < (high - low) * NARROWEST or length <= 0:
            return self
        if about is None:
            return StepRange(last - length, None if last >= high else last)
        start = about - length * (about - first) / (last - first)
        return StepRange(start, start + length)._within(low, high)

    def moved(self, direction: int, low: float, high: float) -> StepRange:
        """Half of its length to the left (-1) or to the right (1); it stops at the ends of the run."""
        first, last = self._closed(low, high)
        if last - first >= high - low:
            return self
        by = direction * (last - first) / 2
        return StepRange(first + by, last + by)._within(low, high)

    def _closed(self, low: float, high: float) -> tuple[float, float]:
        first, last = self.ends(low, high)
        return low if first is None else first, high if last is None else last

    def _within(self, low: float, high: float) -> StepRange:
        """The same length inside [low, high]; at the end of the run it follows the run."""
        assert self.first is not None and self.last is not None
        length = self.last - self.first
        first = min(max(self.first, low), high - length)
        return StepRange(first, None if first + length >= high else first + length)


REST = 300
"""So many times as long as a drawing takes no other one is made for new values: those of a long run take 10 ms."""
ROLES = ("raw", "line", "point", "bad", "label", "legend", "cursor")


class Plot(Widget):
    """Shows a PlotData. A mouse points at a step."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"plot--{role}" for role in ROLES}

    DEFAULT_CSS = """
    Plot { height: 1fr; width: 1fr; }
    Plot > .plot--raw { color: $muted 55%; }
    Plot > .plot--line { color: $accent; }
    Plot > .plot--point { color: $foreground; text-style: bold; }
    Plot > .plot--bad { color: $error; text-style: bold; }
    Plot > .plot--label { color: $muted; }
    Plot > .plot--legend { color: $muted; }
    Plot > .plot--cursor { color: $foreground; text-style: bold; }
    """

    class Pointed(Message):
        """A step was clicked, or the wheel turned over it: then `factor` times as many steps are wanted."""

        def __init__(self, step: float, factor: float = 1.0) -> None:
            super().__init__()
            self.step, self.factor = step, factor

    def __init__(self) -> None:
        super().__init__()
        self._data = PlotData()
        self._glyphs = choose_glyphs(marks.ascii_only)
        self.picture = Picture([])
        """What is drawn now, with the place of its steps."""
        self._drawn: Sequence[LineKey] = ()
        self._rests_until_s = 0.0

    def show(self, data: PlotData) -> None:
        """Draw this from now on; where nothing but the curves can be other, not more often than they are worth."""
        before = self._data
        if self.picture.rows and data[2:] == before[2:]:
            # Curves are compared by identity: that is cheap.
            is_same = data.curve is before.curve and data.points is before.points
            if is_same or time.monotonic() < self._rests_until_s:
                return
        self._data = data
        began_s = time.thread_time()
        self._draw(data)
        self._rests_until_s = time.monotonic() + REST * (time.thread_time() - began_s)

    def on_resize(self, event: Resize) -> None:
        self._draw(self._data)

    def _draw(self, data: PlotData) -> None:
        self.picture = draw_plot(data, self.size.width, self.size.height, self._glyphs)
        self._drawn = refresh_lines(self, self._drawn, self.picture.rows)

    def render_line(self, y: int) -> Strip:
        rows, width = self.picture.rows, self.size.width
        if y >= len(rows):
            return Strip.blank(width, self.rich_style)
        strip = Strip([Segment(text, self.get_component_rich_style(f"plot--{role}")) for text, role in rows[y]])
        # The style of the widget is worked out for each question, and most lines need no filling.
        return strip if strip.cell_length == width else strip.adjust_cell_length(width, self.rich_style)

    # Mouse

    def on_click(self, event: Click) -> None:
        if (step := self.picture.step_at(event.x)) is not None:
            self.post_message(self.Pointed(step))

    @on(MouseScrollUp)
    @on(MouseScrollDown)
    def _wheel(self, event: MouseScrollUp | MouseScrollDown) -> None:
        if (step := self.picture.step_at(event.x)) is not None:
            event.stop()
            self.post_message(self.Pointed(step, 0.5 if isinstance(event, MouseScrollUp) else 2.0))


# The line below a plot: the newest values of the most telling metrics, or what the cursor reads.

BESIDE_TRAINING = (("learning_rate", mark("lr")), ("grad_norm", mark("grad")))
BESIDE_EVALUATION = (("eval_bleu", "BLEU"), ("eval_f1", "F1"), ("eval_perplexity", mark("ppl")))


def newest_values(metrics: Mapping[str, MetricSummary], name: str) -> list[Content]:
    """The last value of `name`, then what is worth seeing beside it; what does not fit goes from the end."""
    last = {key: summary.last for key, summary in metrics.items() if summary.last is not None}
    first = [Content.styled(value_label(last[name]), "bold")] if name in last else []
    trained = [
        quiet(tr(short), value_label(last[key])) for key, short in BESIDE_TRAINING if key != name and key in last
    ]
    held_out = []
    pair = held_out_name(name, metrics)
    if pair is not None and pair in last and (step := metrics[pair].last_step) is not None:
        held_out.append(_at_step(held_out_word(pair), value_label(last[pair]), step))
    held_out += [
        quiet(tr(short), measured(key, last[key])) for key, short in BESIDE_EVALUATION if key != name and key in last
    ]
    # Where text is generated, its score says more than the gradient.
    return [*first, *held_out, *trained] if "eval_bleu" in metrics else [*first, *trained, *held_out]


def values_at(step: float, curve: Curve, points: Curve, points_word: str) -> list[Content]:
    """What was logged at or nearest to `step`."""
    reading, point = read_at(curve, step), read_at(points, step)
    parts = []
    if reading is not None:
        parts += [quiet(tr("step"), f"{reading.step:,.0f}"), Content.styled(_words(reading), "bold")]
        if reading.points > 1:
            low, high = value_label(reading.low), value_label(reading.high)
            spread = tr("mean of {n}, {low} to {high}", n=f"{reading.points:,}", low=low, high=high)
            parts.append(Content.styled(spread, "$muted"))
    return parts if point is None else [*parts, _at_step(plain_text(points_word), _words(point), point.step)]


def _words(reading: Reading) -> str:
    return tr("NaN") if reading.value != reading.value else value_label(reading.value)


def _at_step(label: str, value: str, step: float) -> Content:
    return quiet(label, tr("{value} at {step}", value=value, step=f"{step:,.0f}"))


LONGEST_NAME = 60

NOT_STARTED = mark("This run has not been started: start it with bash launch.sh in its folder.")
NOT_YET = mark("No values yet; they appear after the first logged step.")
NEVER = mark("The run ended before its first logged step.")


class MetricPanel(MonitorPanel):
    help_text = mark(
        "Dots are the logged values, the line is their moving average over neighboring steps. Marks are the same "
        "metric on held-out rows. A NaN or infinite value leaves a gap, labeled with its step. m chooses "
        "the metric, . and , go to the next and the previous one. z shows only the last steps, e toggles "
        "the logarithmic scale. Left and right read the value of a step. + and - show fewer or more "
        "steps, < and > scroll, 0 shows all. With a mouse: click to read a value, use the wheel to zoom."
    )
    key_table: ClassVar[ScreenName | None] = "metric"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("metric")]

    DEFAULT_CSS: ClassVar[str] = """
    MetricPanel { layout: vertical; }
    MetricPanel > #values { height: 1; color: $foreground; }
    """

    def __init__(self) -> None:
        super().__init__("loss")
        self.metric = "loss"
        self.range = StepRange()
        self.logarithmic = False
        self.cursor: float | None = None
        """The step that is read."""
        self._chosen = False
        self._data = PlotData()

    def compose(self) -> ComposeResult:
        yield Plot()
        yield TextLines(id="values")

    # What is plotted

    def wanted_curves(self) -> tuple[str, ...]:
        """Names of the curves that the next look should bring."""
        pair = self._pair
        return (self.metric,) if pair is None else (self.metric, pair)

    def lacks_curves(self, snapshot: Snapshot) -> bool:
        """Whether a look brought no curve of what is plotted now: another look is worth it at once."""
        return any(name in snapshot.metrics and name not in snapshot.curves for name in self.wanted_curves())

    @property
    def _pair(self) -> str | None:
        """The metric that is drawn as marks into the same plot."""
        return f"eval_{self.metric}" if self.snapshot is None else held_out_name(self.metric, self.snapshot.metrics)

    def choose(self, name: str) -> None:
        """Plot this metric from the next look on; the steps shown stay."""
        self.metric, self._chosen = name, True
        self._redraw()

    def next_metric(self, snapshot: Snapshot, by: int = 1) -> None:
        names = ordered_names(snapshot.metrics)
        if names:
            place = names.index(self.metric) + by if self.metric in names else 0
            self.choose(names[place % len(names)])

    def title_of(self, snapshot: Snapshot) -> str:
        return f" {marks.dot} ".join([plain_text(self.metric, LONGEST_NAME), *self._notes()])

    def _notes(self) -> list[str]:
        scale = self.query_one(Plot).picture.scale if self.is_mounted else None
        log = tr("log scale") if scale is None or scale.logarithmic else tr("no log scale below 0")
        return [note for note in (self.range.words(), log if self.logarithmic else "") if note]

    def show(self, snapshot: Snapshot) -> None:
        if not self._chosen and self.metric not in snapshot.metrics:
            self.metric = first_choice(snapshot.metrics) or self.metric
        super().show(snapshot)

    def show_curves(self, snapshot: Snapshot) -> None:
        """Plot the curves that this snapshot brought; one that was asked for another metric changes nothing."""
        if self.metric in snapshot.metrics and self.metric not in snapshot.curves:
            return
        pair = self._pair
        curve, points = snapshot.curve(self.metric), EMPTY_CURVE if pair is None else snapshot.curve(pair)
        words = self._empty_text(snapshot)
        data = PlotData(curve, points, held_out_word(pair or ""), empty_text=words, name=self.metric)
        self._data = data
        first, last = self.range.ends(*(data.whole_range or (0.0, 0.0)))
        if self.cursor is not None:
            nearest = read_at(self._read_curve, self.cursor)
            self.cursor = None if nearest is None else nearest.step
        shown = data._replace(first=first, last=last, logarithmic=self.logarithmic, cursor=self.cursor)
        self.query_one(Plot).show(shown)
        self._show_values(snapshot)

    def _empty_text(self, snapshot: Snapshot) -> str:
        if snapshot.metrics:
            return tr("{metric} was not logged.", metric=plain_text(self.metric, LONGEST_NAME))
        words = NOT_STARTED if snapshot.status == "prepared" else NOT_YET if snapshot.ending is None else NEVER
        return plain_text(snapshot.unavailable.get("metrics") or tr(words))

    def _show_values(self, snapshot: Snapshot) -> None:
        if self.cursor is None:
            parts = newest_values(snapshot.metrics, self.metric)
        else:
            parts = values_at(self.cursor, self._data.curve, self._data.points, self._data.points_name)
        if not self.styles.border_top[0]:
            # Without a frame there is no title.
            parts.insert(0, Content.styled(plain_text(self.title_of(snapshot), 40), "$muted"))
        line = join_fitting(parts, max(1, self.content_size.width)) if parts else Content()
        self.query_one(TextLines).show([line])

    @property
    def _read_curve(self) -> Curve:
        """What the cursor goes along."""
        data = self._data
        return data.curve if len(data.curve) or data.curve.non_finite_steps else data.points

    def _redraw(self) -> None:
        if self.snapshot is not None:
            self.show_curves(self.snapshot)
            self.show(self.snapshot)

    # Which steps, which scale

    def toggle_scale(self) -> None:
        self.logarithmic = not self.logarithmic
        self._redraw()

    def show_range(self, wanted: StepRange) -> None:
        self.range = wanted
        self._redraw()

    def action_resize_range(self, factor: float) -> None:
        if (whole := self._data.whole_range) is not None:
            self.show_range(self.range.resized(factor, *whole, about=self.cursor))

    def action_move_range(self, direction: int) -> None:
        if (whole := self._data.whole_range) is not None:
            self.show_range(self.range.moved(direction, *whole))

    def action_show_all(self) -> None:
        self.cursor = None
        self.show_range(StepRange())

    # The cursor

    def action_move_cursor(self, columns: int) -> None:
        picture = self.query_one(Plot).picture
        if self.cursor is None:
            # From the other end a key goes inwards.
            self.action_cursor_to_end(-columns)
        elif picture.columns:
            by = columns * (picture.last - picture.first) / picture.columns
            self._put_cursor(step_beside(self._read_curve, self.cursor, by))

    def action_cursor_to_end(self, side: int) -> None:
        picture = self.query_one(Plot).picture
        self._read_near(picture.first if side < 0 else picture.last)

    def _read_near(self, step: float) -> None:
        reading = read_at(self._read_curve, step)
        self._put_cursor(None if reading is None else reading.step)

    def _put_cursor(self, step: float | None) -> None:
        """Put it there; a range that does not hold the step is moved so that it does."""
        whole = self._data.whole_range
        if step is None or whole is None:
            return
        self.cursor = step
        picture = self.query_one(Plot).picture
        if not picture.first <= step <= picture.last:
            self.range = self.range.moved(-1 if step < picture.first else 1, *whole)
        self._redraw()

    @on(Plot.Pointed)
    def _pointed(self, message: Plot.Pointed) -> None:
        if message.factor == 1:
            self._read_near(message.step)
        elif (whole := self._data.whole_range) is not None:
            self.show_range(self.range.resized(message.factor, *whole, about=message.step))
