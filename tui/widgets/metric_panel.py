"""MetricPanel: the plot of one metric, with the newest values of the most telling ones below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult, RenderResult
from textual.content import Content
from textual.widgets import Static
from trainwiz.core.plain import plain_text
from trainwiz.tui.metric_words import measured
from trainwiz.tui.theme import UNICODE_MARKS, Marks
from trainwiz.tui.widgets.axes import value_label
from trainwiz.tui.widgets.canvas import BRAILLE, Glyphs
from trainwiz.tui.widgets.drawing import PlotData
from trainwiz.tui.widgets.meters import join_fitting
from trainwiz.tui.widgets.monitor_panel import MonitorPanel
from trainwiz.tui.widgets.plot import Plot

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot

FIRST_METRICS = (
    "loss",
    "eval_bleu",
    "eval_perplexity",
    "learning_rate",
    "grad_norm",
    "real_tokens_per_s",
    "tokens_per_s",
    "step_s",
)
ZOOMS: tuple[tuple[float, str], ...] = ((1.0, ""), (0.2, "last fifth"), (0.04, "last 4 %"))

EMPTY_TEXTS = {
    "prepared": "This run was not started yet: bash launch.sh in its folder starts it.",
    "starting": "The run is starting; values come with the first logged step.",
    "running": "No values yet; they come with the first logged step.",
    "stopping": "The run is stopping; it has logged no values.",
    "failed": "The run ended before its first logged step.",
    "stopped": "The run was stopped before its first logged step.",
    "lost": "The run was lost before its first logged step.",
}


class MetricPanel(MonitorPanel):
    help_text = (
        "Dots are the logged values, the line is their running mean over the steps around. Marks are evaluations. "
        "A step whose value is not a number leaves a gap with its number beside it. m goes to the next metric, "
        "z shows the last steps only, e switches the logarithmic scale."
    )

    DEFAULT_CSS: ClassVar[str] = """
    MetricPanel { layout: vertical; }
    MetricPanel > #values { height: 1; color: $foreground; }
    """

    def __init__(self, *, marks: Marks = UNICODE_MARKS, glyphs: Glyphs = BRAILLE, id: str | None = None) -> None:
        super().__init__("loss", marks=marks, id=id)
        self.metric = "loss"
        self.zoom = 0
        self.logarithmic = False
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        yield Plot(glyphs=self._glyphs)
        yield Static("", id="values", markup=False)

    def render(self) -> RenderResult:
        return Content()

    def wanted_curves(self) -> tuple[str, ...]:
        """Names of the curves that the next look should bring."""
        return self.metric, f"eval_{self.metric}"

    def title_of(self, snapshot: Snapshot) -> str:
        notes = [ZOOMS[self.zoom][1], "log scale" if self.logarithmic else ""]
        return f" {self.marks.dot} ".join([plain_text(self.metric, 40), *(note for note in notes if note)])

    def next_metric(self, snapshot: Snapshot) -> None:
        names = metric_names(snapshot)
        place = names.index(self.metric) + 1 if self.metric in names else 0
        self.metric = names[place % len(names)]

    def next_zoom(self) -> None:
        self.zoom = (self.zoom + 1) % len(ZOOMS)
        self._redraw()

    def toggle_scale(self) -> None:
        self.logarithmic = not self.logarithmic
        self._redraw()

    def _redraw(self) -> None:
        if self.snapshot is not None:
            self.show(self.snapshot)
            self.show_curves(self.snapshot)

    def show_curves(self, snapshot: Snapshot) -> None:
        """Plot the curves that this snapshot brought; one that was asked for another metric changes nothing."""
        if self.metric not in snapshot.curves:
            return
        curve, points = snapshot.curve(self.metric), snapshot.curve(f"eval_{self.metric}")
        first = None
        steps = [step for step in (curve.first_step, points.first_step) if step is not None]
        ends = [step for step in (curve.last_step, points.last_step) if step is not None]
        share = ZOOMS[self.zoom][0]
        if share < 1 and steps and ends:
            first = max(ends) - (max(ends) - min(steps)) * share
        self.query_one(Plot).show(
            PlotData(
                curve=curve,
                points=points,
                first=first,
                logarithmic=self.logarithmic,
                empty_text=EMPTY_TEXTS.get(snapshot.status, "No values."),
            )
        )
        self.query_one("#values", Static).update(self._values(snapshot))

    def _values(self, snapshot: Snapshot) -> Content:
        metrics = snapshot.metrics
        first = []
        if self.metric in metrics and metrics[self.metric].last is not None:
            first.append(Content.styled(value_label(metrics[self.metric].last or 0.0), "bold"))
        trained = []
        for name, short in (("learning_rate", "lr"), ("grad_norm", "grad")):
            if name in metrics and name != self.metric and metrics[name].last is not None:
                trained.append(Content.assemble((f"{short} ", "$muted"), value_label(metrics[name].last or 0.0)))
        held_out = []
        evaluation = metrics.get(f"eval_{self.metric}")
        if evaluation is not None and evaluation.last is not None and evaluation.last_step is not None:
            value = f"{value_label(evaluation.last)} at {evaluation.last_step:,.0f}"
            held_out.append(Content.assemble(("eval ", "$muted"), value))
        for name, short in (("eval_bleu", "BLEU"), ("eval_perplexity", "ppl")):
            known = metrics.get(name)
            if name != self.metric and known is not None and known.last is not None:
                held_out.append(Content.assemble((f"{short} ", "$muted"), measured(name, known.last)))
        # What does not fit goes from the end: where text is generated, its score says more than the gradient.
        rest = [*held_out, *trained] if "eval_bleu" in metrics else [*trained, *held_out]
        parts = [*first, *rest]
        return join_fitting(parts, max(1, self.content_size.width)) if parts else Content()


def metric_names(snapshot: Snapshot) -> list[str]:
    """Metrics in the order of the key m: the telling ones, then the others; evaluation goes with its metric."""
    names = [name for name in FIRST_METRICS if name in snapshot.metrics]
    others = [
        name
        for name in snapshot.metrics
        if name not in names and not (name.startswith("eval_") and name.removeprefix("eval_") in snapshot.metrics)
    ]
    return names + others
