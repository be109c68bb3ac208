"""MetricPanel: the plot of one metric, and the newest values."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.segment import Segment
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.events import Resize
from textual.strip import Strip
from textual.widget import Widget
from trainwiz.core.language import mark, tr
from trainwiz.core.telemetry.metrics import EMPTY_CURVE, MetricSummary
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import ScreenName, bindings
from trainwiz.tui.run_words import first_choice, held_out_name, held_out_word, measured, ordered_names
from trainwiz.tui.text import value_label
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.drawing import PlotData, Row, Scale, choose_glyphs, draw_plot, step_words
from trainwiz.tui.widgets.lists import LineKey, TextLines, refresh_lines
from trainwiz.tui.widgets.monitor_panel import MonitorPanel, frame_title, join_fitting, quiet

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot


NARROWEST = 1e-6
"""Share of all steps below which a range is not narrowed further."""
ZOOM = 0.2


class StepRange(NamedTuple):
    """The steps that are plotted. An end that is None is open: the last one follows the run."""

    first: float | None = None
    last: float | None = None

    def words(self) -> str:
        """What stands in the title; empty where all steps are shown."""
        if self.first is None:
            return ""
        first = step_words(self.first)
        if self.last is None:
            return tr("from step {step}", step=first)
        return tr("steps {first} to {last}", first=first, last=step_words(self.last))

    def resized(self, factor: float, low: float, high: float) -> StepRange:
        """`factor` times as many steps of a run that has values from `low` to `high`; the last one shown stays."""
        first, last = self._closed(low, high)
        length = (last - first) * factor
        if length >= high - low:
            return ALL_STEPS
        return self if length < (high - low) * NARROWEST else StepRange(last - length, self.last)

    def moved(self, direction: int, low: float, high: float) -> StepRange:
        """Half of its length to the left (-1) or to the right (1), as far as the run goes."""
        first, last = self._closed(low, high)
        if self == ALL_STEPS:
            return self
        by = min(max(direction * (last - first) / 2, low - first), high - last)
        return StepRange(first + by, None if last + by >= high else last + by)

    def _closed(self, low: float, high: float) -> tuple[float, float]:
        return low if self.first is None else self.first, high if self.last is None else self.last


ALL_STEPS = StepRange()

REST = 300
"""So many times as long as a drawing takes no other one is made for new values: those of a long run take 10 ms."""


class Plot(Widget):
    """Shows a PlotData."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"plot--{role}" for role in ("raw", "line", "point", "bad", "label")}

    DEFAULT_CSS = """
    Plot { height: 1fr; width: 1fr; }
    Plot > .plot--raw { color: $muted 55%; }
    Plot > .plot--line { color: $accent; }
    Plot > .plot--point { color: $foreground; text-style: bold; }
    Plot > .plot--bad { color: $error; text-style: bold; }
    Plot > .plot--label { color: $muted; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.glyphs = choose_glyphs(marks.ascii_only)
        self.rows: list[Row] = []
        """What is drawn now."""
        self.scale: Scale | None = None
        self._data = PlotData()
        self._drawn: Sequence[LineKey] = ()
        self._rests_until_s = 0.0

    def show(self, data: PlotData) -> None:
        """Draw this from now on; where nothing but the curves can be other, not more often than they are worth."""
        before = self._data
        if self.rows and data[2:] == before[2:]:
            # Curves are compared by identity: that is cheap.
            is_same = data.curve is before.curve and data.points is before.points
            if is_same or time.monotonic() < self._rests_until_s:
                return
        began_s = time.thread_time()
        self._draw(data)
        self._rests_until_s = time.monotonic() + REST * (time.thread_time() - began_s)

    def on_resize(self, event: Resize) -> None:
        self._draw(self._data)

    def _draw(self, data: PlotData) -> None:
        self._data = data
        self.rows, self.scale = draw_plot(data, self.size.width, self.size.height, self.glyphs)
        self._drawn = refresh_lines(self, self._drawn, self.rows)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y >= len(self.rows):
            return Strip.blank(width, self.rich_style)
        strip = Strip([Segment(text, self.get_component_rich_style(f"plot--{role}")) for text, role in self.rows[y]])
        # The style of the widget is worked out for each question, and most lines need no filling.
        return strip if strip.cell_length == width else strip.adjust_cell_length(width, self.rich_style)


BESIDE = (
    ("eval_bleu", "BLEU"),
    ("eval_f1", "F1"),
    ("eval_perplexity", mark("ppl")),
    ("learning_rate", mark("lr")),
    ("grad_norm", mark("grad")),
)
"""What is worth seeing below each plot, and how it is called there."""


def newest_values(metrics: Mapping[str, MetricSummary], name: str) -> list[Content]:
    """The last value of `name`, that on held-out rows, then others; what does not fit goes from the end."""
    last = {key: summary.last for key, summary in metrics.items() if summary.last is not None}
    parts = [Content.styled(value_label(last[name]), "bold")] if name in last else []
    pair = held_out_name(name, last)
    if pair is not None:
        value, step = value_label(last[pair]), step_words(metrics[pair].last_step or 0)
        parts.append(quiet(held_out_word(pair), tr("{value} at {step}", value=value, step=step)))
    others = [(key, short) for key, short in BESIDE if key != name and key in last]
    return parts + [
        quiet(tr(short), measured(key, last[key]) if key.startswith("eval_") else value_label(last[key]))
        for key, short in others
    ]


LONGEST_NAME = 60

NOT_STARTED = mark("This run has not been started: start it with bash launch.sh in its folder.")
NOT_YET = mark("No values yet; they appear after the first logged step.")
NEVER = mark("The run ended before its first logged step.")


class MetricPanel(MonitorPanel):
    help_text = mark(
        "Dots are the logged values, the line is their moving average over neighboring steps. Marks are the same "
        "metric on held-out rows. A NaN or infinite value leaves a gap, labeled with its step. m chooses "
        "the metric, . and , go to the next and the previous one. z shows only the last steps, e toggles "
        "the logarithmic scale. + and - show fewer or more steps, left and right scroll."
    )
    key_table: ClassVar[ScreenName | None] = "metric"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("metric")]

    DEFAULT_CSS: ClassVar[str] = """
    MetricPanel { layout: vertical; border-subtitle-color: $muted; }
    MetricPanel > #values { height: 1; color: $foreground; }
    """

    def __init__(self) -> None:
        super().__init__("loss")
        self.metric = "loss"
        self.range = ALL_STEPS
        self.logarithmic = False
        self._chosen = False
        self._whole: tuple[float, float] | None = None
        """The first and the last step that could be shown."""

    def compose(self) -> ComposeResult:
        yield Plot()
        yield TextLines(id="values")

    # What is plotted

    def wanted_curves(self) -> tuple[str, ...]:
        """Names of the curves that the next look should bring."""
        return tuple(filter(None, (self.metric, self._pair)))

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
        scale = self.query_one(Plot).scale if self.is_mounted else None
        log = tr("log scale") if scale is None or scale.logarithmic else tr("no log scale below 0")
        notes = (plain_text(self.metric, LONGEST_NAME), self.range.words(), log if self.logarithmic else "")
        return f" {marks.dot} ".join(filter(None, notes))

    def show(self, snapshot: Snapshot) -> None:
        """Plot the curves that this snapshot brought; one that was asked for another metric changes nothing."""
        if not self._chosen and self.metric not in snapshot.metrics:
            self.metric = first_choice(snapshot.metrics) or self.metric
        self.snapshot = snapshot
        if self.metric not in snapshot.metrics or self.metric in snapshot.curves:
            pair = self._pair
            data = PlotData(
                snapshot.curve(self.metric),
                snapshot.curve(pair) if pair else EMPTY_CURVE,
                *self.range,
                self.logarithmic,
                self._empty_text(snapshot),
                self.metric,
            )
            self._whole = data.whole_range
            self.query_one(Plot).show(data)
            legend = self._legend(snapshot)
            if str(self.border_subtitle) != legend:
                self.border_subtitle = frame_title(legend)
            self._show_values(snapshot)
        super().show(snapshot)

    def _legend(self, snapshot: Snapshot) -> str:
        """What dots, line and marks are; empty where nothing is drawn."""
        plot, pair = self.query_one(Plot), self._pair
        if plot.scale is None:
            return ""
        return plot.glyphs.legend(held_out_word(pair) if pair and pair in snapshot.curves else "")

    def _empty_text(self, snapshot: Snapshot) -> str:
        if snapshot.metrics:
            return tr("{metric} was not logged.", metric=plain_text(self.metric, LONGEST_NAME))
        words = NOT_STARTED if snapshot.status == "prepared" else NOT_YET if snapshot.ending is None else NEVER
        return plain_text(snapshot.unavailable.get("metrics") or tr(words))

    def _show_values(self, snapshot: Snapshot) -> None:
        parts = newest_values(snapshot.metrics, self.metric)
        if not self.styles.border_top[0]:
            # Without a frame there is no title.
            parts.insert(0, Content.styled(plain_text(self.title_of(snapshot), 40), "$muted"))
        self.query_one(TextLines).show([join_fitting(parts, max(1, self.content_size.width))])

    def _redraw(self) -> None:
        if self.snapshot is not None:
            self.show(self.snapshot)

    # Which steps, which scale

    def toggle_scale(self) -> None:
        self.logarithmic = not self.logarithmic
        self._redraw()

    def _show_range(self, wanted: StepRange) -> None:
        self.range = wanted
        self._redraw()

    def zoom(self) -> None:
        """The last fifth of the steps, or all of them again."""
        if self.range == ALL_STEPS:
            self.action_resize_range(ZOOM)
        else:
            self._show_range(ALL_STEPS)

    def action_resize_range(self, factor: float) -> None:
        if self._whole is not None:
            self._show_range(self.range.resized(factor, *self._whole))

    def action_move_range(self, direction: int) -> None:
        if self._whole is not None:
            self._show_range(self.range.moved(direction, *self._whole))
