"""`trainwiz bench --choose`: the settings of a plan and their alternatives in turns; the table says what to set."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED
from trainwiz.core.history.store import load
from trainwiz.core.language import tr, trn
from trainwiz.core.launch.probe_refusal import check_probe
from trainwiz.core.launch.turns import LONGEST_S, Turns, compare
from trainwiz.core.plain import plain_text
from trainwiz.core.plan.gather import gather
from trainwiz.core.plan.refine import Refiner
from trainwiz.core.plan.result import Plan
from trainwiz.tui.commands.bench import bench_choices, interrupted_by_signals
from trainwiz.tui.figures import count, duration
from trainwiz.tui.headless.plan_text import model_text
from trainwiz.tui.headless.waiting import Waiting
from trainwiz.tui.output import labelled, say, say_json, say_labelled


def run_choose(values: Mapping[str, Any], *, limit_s: float | None = None) -> int:
    """`values` are the choices as typer read them. Raises TrainwizError for what cannot be measured."""
    choices = bench_choices(values)
    try:
        with interrupted_by_signals(), Waiting(tr("reading machine, model and data")) as waiting:
            gathered = gather(choices.request)
            plan = Refiner(None, load).plan(gathered)
            check_probe(plan)
            compared = list(compare(plan, gathered.data, limit_s or LONGEST_S, waiting.say))
    except KeyboardInterrupt:
        say(tr("Stopped: nothing was kept, and nothing runs any more."), sys.stderr)
        return EXIT_STOPPED
    if choices.json:
        say_json({"comparison": {**measured_on(plan), "alternatives": [asdict(one) for one in compared]}})
        return EXIT_FINISHED
    figures = measured_on(plan)
    own = tr(
        "{model}, {batch} sequences of at most {length} tokens, in {precision}",
        model=model_text(plan),
        batch=f"{count(figures['micro_batch'])} × {count(figures['accumulation'])}",
        length=count(figures["length"]),
        precision=figures["precision"],
    )
    say_labelled(labelled(tr("Compared"), own))
    for one in compared:
        say_labelled(labelled(title_of(one), turns_words(one)))
    return EXIT_FINISHED


def measured_on(plan: Plan) -> dict[str, Any]:
    names = ("task", "precision", "strategy", "offload", "world_size", "micro_batch", "accumulation", "length")
    return {"model_name": plan.config.model.name, **{name: getattr(plan.work, name) for name in names}}


def title_of(one: Turns) -> str:
    """ "Attention"."""
    titles = {
        "engine.attention": tr("Attention"),
        "engine.optimizer": tr("Optimizer"),
        "engine.precision": tr("Precision"),
        "engine.compile": tr("Compile"),
    }
    return titles[next(iter(one.changes))]


def turns_words(one: Turns) -> str:
    """ "eager instead of sdpa: 0.81 times the pace (0.78 to 0.84 in 8 turns); slower"."""
    (key, value), base = next(iter(one.changes.items())), next(iter(one.base.values()))
    subject = tr("{value} instead of {base}", value=_value(value), base=_value(base))
    if one.gain is None or one.verdict == "failed":
        why = plain_text(one.note, 200)
        said = (
            tr("failed: {reason}", reason=why) if one.verdict == "failed" else tr("not measured: {reason}", reason=why)
        )
        return tr("{subject}: {result}", subject=subject, result=said)
    figures = tr(
        "{gain} times the pace ({low} to {high} in {turns})",
        gain=f"{one.gain:.2f}",
        low=f"{one.gain_low:.2f}",
        high=f"{one.gain_high:.2f}",
        turns=trn("{n} turn", "{n} turns", one.turns),
    )
    parts = [figures]
    verdicts = {
        "faster": tr("faster: --set {setting}", setting=f"{key}={str(value).lower()}"),
        "slower": tr("slower"),
        "no_difference": tr("no difference beyond the spread"),
    }
    parts.append(verdicts.get(one.verdict, tr("too few turns to tell; give it longer (--seconds)")))
    saved_s = (one.step_s or 0.0) * (1 - 1 / one.gain)
    if one.once_s and one.verdict == "faster" and saved_s > 0:
        steps = count(round(one.once_s / saved_s) + 1)
        parts.append(
            tr("compiling takes {time}, which {steps} steps save again", time=duration(one.once_s), steps=steps)
        )
    return tr("{subject}: {result}", subject=subject, result=tr("; ").join(parts))


def _value(value: Any) -> str:
    return (tr("on") if value else tr("off")) if isinstance(value, bool) else str(value)
