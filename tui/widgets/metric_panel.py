"""MetricPanel: the plot of one metric, and the newest values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from trainwiz.core.language import mark, tr
from trainwiz.core.telemetry.metrics import MetricSummary
from trainwiz.core.telemetry.series import EMPTY_CURVE, Curve
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import ScreenName, bindings
from trainwiz.tui.run_words import first_choice, held_out_name, held_out_word, measured, ordered_names
from trainwiz.tui.text import value_label
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.drawing import PlotData, Reading, read_at, step_beside
from trainwiz.tui.widgets.lists import TextLines
from trainwiz.tui.widgets.monitor_panel import MonitorPanel, join_fitting, quiet
from trainwiz.tui.widgets.plot import Plot, StepRange

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot


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
