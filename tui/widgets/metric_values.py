"""The line below a plot: the newest values of the most telling metrics, or what the cursor reads."""

from __future__ import annotations

from collections.abc import Mapping

from textual.content import Content
from trainwiz.core.language import mark, tr
from trainwiz.core.plain import plain_text
from trainwiz.core.telemetry.metrics import MetricSummary
from trainwiz.core.telemetry.series import Curve
from trainwiz.tui.metric_names import held_out_name, held_out_word
from trainwiz.tui.metric_words import measured
from trainwiz.tui.widgets.axes import value_label
from trainwiz.tui.widgets.plot_cursor import Reading, read_at

BESIDE_TRAINING = (("learning_rate", mark("lr")), ("grad_norm", mark("grad")))
BESIDE_EVALUATION = (("eval_bleu", "BLEU"), ("eval_perplexity", mark("ppl")))


def newest_values(metrics: Mapping[str, MetricSummary], name: str) -> list[Content]:
    """The last value of `name`, then what is worth seeing beside it; what does not fit goes from the end."""
    first = []
    if (last := _last(metrics, name)) is not None:
        first.append(Content.styled(value_label(last), "bold"))
    trained = [
        Content.assemble((f"{tr(short)} ", "$muted"), value_label(value))
        for other, short in BESIDE_TRAINING
        if other != name and (value := _last(metrics, other)) is not None
    ]
    held_out = []
    pair = held_out_name(name, metrics)
    evaluation = metrics.get(pair) if pair is not None else None
    if pair is not None and evaluation is not None and evaluation.last is not None and evaluation.last_step is not None:
        words = tr("{value} at {step}", value=value_label(evaluation.last), step=f"{evaluation.last_step:,.0f}")
        held_out.append(Content.assemble((f"{held_out_word(pair)} ", "$muted"), words))
    held_out += [
        Content.assemble((f"{tr(short)} ", "$muted"), measured(other, value))
        for other, short in BESIDE_EVALUATION
        if other != name and (value := _last(metrics, other)) is not None
    ]
    # Where text is generated, its score says more than the gradient.
    return [*first, *held_out, *trained] if "eval_bleu" in metrics else [*first, *trained, *held_out]


def values_at(step: float, curve: Curve, points: Curve, points_word: str) -> list[Content]:
    """What was logged at or nearest to `step`."""
    reading, point = read_at(curve, step), read_at(points, step)
    parts = []
    if reading is not None:
        parts.append(Content.assemble((tr("step") + " ", "$muted"), f"{reading.step:,.0f}"))
        parts.append(Content.styled(_words(reading), "bold"))
        if reading.points > 1:
            spread = tr(
                "mean of {n}, {low} to {high}",
                n=f"{reading.points:,}",
                low=value_label(reading.low),
                high=value_label(reading.high),
            )
            parts.append(Content.styled(spread, "$muted"))
    if point is not None:
        value = tr("{value} at {step}", value=_words(point), step=f"{point.step:,.0f}")
        parts.append(Content.assemble((f"{plain_text(points_word)} ", "$muted"), value))
    return parts


def _words(reading: Reading) -> str:
    return tr("not a number") if reading.value != reading.value else value_label(reading.value)


def _last(metrics: Mapping[str, MetricSummary], name: str) -> float | None:
    summary = metrics.get(name)
    return None if summary is None else summary.last
