"""`trainwiz bench --choose`: settings of a plan and their alternatives, measured in turns; the next plan takes the faster."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED, os_reason
from trainwiz.core.history.comparison import Alternative, Comparison
from trainwiz.core.history.measurement import Measurement
from trainwiz.core.history.store import append, append_comparison, comparisons_path, load
from trainwiz.core.language import tr, trn
from trainwiz.core.launch.comparing import LONGEST_S, OFFERED, Choosing
from trainwiz.core.launch.probe_refusal import check_probe
from trainwiz.core.plain import plain_text
from trainwiz.core.plan.gather import gather
from trainwiz.core.plan.refine import Refiner
from trainwiz.core.plan.result import Plan
from trainwiz.tui.choices import Choices
from trainwiz.tui.commands.bench import bench_choices, interrupted_by_signals
from trainwiz.tui.figures import count, duration, percent
from trainwiz.tui.headless.plan_text import model_text
from trainwiz.tui.headless.waiting import Waiting
from trainwiz.tui.output import labelled, say, say_json, say_labelled


def run_choose(values: Mapping[str, Any], *, limit_s: float | None = None) -> int:
    """`values` are the choices as typer read them. Raises TrainwizError for what cannot be measured."""
    choices = bench_choices(values)
    try:
        plan, comparison, measurements = compared(choices, limit_s or LONGEST_S)
    except KeyboardInterrupt:
        say(tr("Stopped: nothing was kept, and nothing runs any more."), sys.stderr)
        return EXIT_STOPPED
    note = keep(comparison, measurements)
    if choices.json:
        say_json({"comparison": comparison.to_json(), "history": str(comparisons_path()), "note": note})
        return EXIT_FINISHED
    for text in comparison_lines(plan, comparison):
        say_labelled(text)
    say()
    say(note or tr("Kept in {path}: the next plan for this machine and model uses it.", path=comparisons_path()))
    return EXIT_FINISHED


def compared(choices: Choices, limit_s: float) -> tuple[Plan, Comparison, list[Measurement]]:
    """The plan, without what was chosen before, and its comparison. Raises as `measured` in bench.py."""
    with interrupted_by_signals(), Waiting(tr("reading machine, model and data")) as waiting:
        gathered = gather(choices.request)
        plan = Refiner(None, load).plan(gathered)
        check_probe(plan)
        choosing = Choosing(plan, gathered.data, limit_s, waiting.say)
        return plan, choosing.run(), choosing.measurements


def keep(comparison: Comparison, measurements: list[Measurement]) -> str:
    """Into the history; the sentence that says why not."""
    if all(one.verdict == "not_measured" for one in comparison.alternatives):
        return tr("Nothing was compared, so nothing was kept; where the time was up, give it longer (--seconds).")
    try:
        append_comparison(comparison)
        for one in measurements:
            append(one)
    except OSError as error:
        return tr(
            "The measurement could not be kept in {path}: {reason}.", path=comparisons_path(), reason=os_reason(error)
        )
    return ""


def comparison_lines(plan: Plan, comparison: Comparison) -> list[str]:
    """One alternative a line, under what they are compared with."""
    batch = " × ".join(map(count, (comparison.micro_batch, comparison.accumulation)))
    own = tr(
        "{model}, {batch} sequences of at most {length} tokens, in {precision}",
        model=model_text(plan),
        batch=batch,
        length=count(comparison.length),
        precision=comparison.precision,
    )
    lines = [labelled(tr("Compared"), own)]
    if comparison.step_s is not None:
        lines.append(labelled("", tr("a step of the plan's own settings: {time}", time=duration(comparison.step_s))))
    if comparison.noise is not None:
        words = tr("two processes of these settings differed by {share}", share=percent(comparison.noise - 1))
        lines.append(labelled("", words))
    others = [labelled(title_of(one), alternative_words(one, comparison, plan)) for one in comparison.alternatives]
    return [*lines, *others]


def title_of(one: Alternative) -> str:
    """ "Attention"."""
    titles = {
        "engine.attention": tr("Attention"),
        "engine.optimizer": tr("Optimizer"),
        "engine.tf32": tr("TF32"),
        "engine.precision": tr("Precision"),
        "engine.compile": tr("Compile"),
    }
    return titles.get(one.key, tr("Together"))


def alternative_words(one: Alternative, comparison: Comparison, plan: Plan) -> str:
    """ "eager instead of sdpa: 0.81 times the pace (0.78 to 0.84 in 8 turns); slower"."""
    subject = tr(", ").join(
        tr("{value} instead of {base}", value=_value(value), base=_value(one.base[key]))
        for key, value in one.changes.items()
    )
    if one.gain is None:
        reason = plain_text(one.note, 200) or tr("the time was up")
        why = (
            tr("failed: {reason}", reason=reason)
            if one.verdict == "failed"
            else tr("not measured: {reason}", reason=reason)
        )
        return tr("{subject}: {result}", subject=subject, result=why)
    turns = trn("{n} turn", "{n} turns", one.turns)
    figures = tr(
        "{gain} times the pace ({low} to {high} in {turns})",
        gain=f"{one.gain:.2f}",
        low=f"{one.gain_low:.2f}",
        high=f"{one.gain_high:.2f}",
        turns=turns,
    )
    return tr("{subject}: {result}", subject=subject, result=tr("; ").join([figures, _verdict(one, comparison, plan)]))


def _value(value: Any) -> str:
    return (tr("on") if value else tr("off")) if isinstance(value, bool) else str(value)


def _verdict(one: Alternative, comparison: Comparison, plan: Plan) -> str:
    if one.verdict == "differs":
        return tr("not taken: {reason}", reason=one.note)
    if one.verdict == "slower":
        return tr("slower")
    if one.verdict == "no_difference":
        return tr("no difference")
    if not one.taken:
        if one.key in OFFERED:
            return tr("yours to choose: --precision {value}", value=one.changes[one.key])
        return one.note or tr("another one is faster")
    if one.changes.get("engine.compile") and one.key:
        return _compile_words(one, comparison, plan)
    return tr("taken") if one.key == "" or _is_open(plan, one) else tr("faster; the profile says otherwise")


def _is_open(plan: Plan, one: Alternative) -> bool:
    return plan.config.origin(one.key).origin != "profile"


def _compile_words(one: Alternative, comparison: Comparison, plan: Plan) -> str:
    """When it pays what it costs."""
    once_s, step_s = one.once_s or 0.0, comparison.step_s or 0.0
    each_s = step_s * (1 - 1 / (one.gain or 1.0))
    if each_s <= 0:
        return tr("faster")
    steps = count(round(once_s / each_s) + 1)
    words = tr("compiling takes {time}, which {steps} steps save again", time=duration(once_s), steps=steps)
    if plan.time.steps is None:
        return words
    return tr("{words}; this run has {n}", words=words, n=count(plan.time.steps))
