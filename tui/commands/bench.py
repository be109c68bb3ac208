"""`trainwiz bench`: a few real steps of a plan on this machine, measured; with --choose beside its alternatives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED, os_reason
from trainwiz.core.history.measurement import Measurement, append, history_path, load
from trainwiz.core.history.rates import kept_rates
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.launch.alternatives import LONGEST_S as LONGEST_CHOICE_S
from trainwiz.core.launch.alternatives import Turns, compare
from trainwiz.core.launch.probe import LONGEST_S, Probe, check_probe
from trainwiz.core.launch.probe_order import ProbeResult
from trainwiz.core.plan.gather import Gathered, gather
from trainwiz.core.plan.refine import Refiner
from trainwiz.core.plan.result import Plan
from trainwiz.core.text import plain_text
from trainwiz.tui.choices import Choices, parse_choices
from trainwiz.tui.commands.plan import model_text
from trainwiz.tui.output import Row, Waiting, interrupted_by_signals, say, say_json, say_rows
from trainwiz.tui.text import count, duration, duration_range, size


def run_bench(values: Mapping[str, Any], *, seconds: float | None = None, choose: bool = False) -> int:
    """`values` are the choices as they were typed. Raises TrainwizError for what cannot be measured."""
    if choose:
        return run_choose(values, limit_s=seconds)

    def probe(plan: Plan, gathered: Gathered, waiting: Waiting) -> ProbeResult:
        waiting.say(tr("starting the probe processes"))
        with Probe(plan, gathered.data, limit_s=seconds or LONGEST_S) as running:
            return running.run(lambda line: waiting.say(progress_words(line)))

    choices, plan, result = measured(values, probe)
    if plan is None or result is None:
        return EXIT_STOPPED
    note = keep(result)
    if choices.json:
        say_json(
            {"probe": result.to_json(), "plan": planned_figures(plan), "history": str(history_path()), "note": note}
        )
        return EXIT_FINISHED
    say_rows(row for row in bench_rows(plan, result) if row[1])
    say()
    say(note or tr("Saved to {path}. The next plan for this machine and model uses it.", path=history_path()))
    return EXIT_FINISHED


Measured = TypeVar("Measured")


def measured(
    values: Mapping[str, Any], measure: Callable[[Plan, Gathered, Waiting], Measured]
) -> tuple[Choices, Plan | None, Measured | None]:
    """The choices, their plan and what `measure` found of it; no plan where Ctrl-C ended it, once all is cleared up."""
    choices = parse_choices(values)
    try:
        with interrupted_by_signals(), Waiting(tr("reading machine, model and data")) as waiting:
            gathered = gather(choices.request)
            plan = Refiner(None, load, kept_rates).plan(gathered)
            check_probe(plan)
            return choices, plan, measure(plan, gathered, waiting)
    except KeyboardInterrupt:
        say(tr("Stopped. Nothing was saved, and no process is left running."), sys.stderr)
        return choices, None, None


def keep(result: ProbeResult) -> str:
    """Into the history; the sentence that says why not."""
    assert result.measurement is not None
    try:
        append(result.measurement)
    except OSError as error:
        return tr(
            "Could not save the measurement to {path}: {reason}.",
            path=history_path(),
            reason=os_reason(error),
        )
    return ""


def progress_words(line: Mapping[str, Any]) -> str:
    """Of a line of the probe: "trial" searches for the largest micro-batch."""
    if line.get("event") == "trial":
        return tr("searching for the largest micro-batch: {size}", size=line.get("micro_batch"))
    return tr("measuring steps")


def planned_figures(plan: Plan) -> dict[str, Any]:
    of_time = ("step_s", "step_low_s", "step_high_s", "basis")
    of_memory = (
        "allocated_bytes",
        "reserved_bytes",
        "device_used_bytes",
        "low_bytes",
        "high_bytes",
        "needed_bytes",
        "needed_high_bytes",
        "tier",
    )
    return {name: getattr(plan.time if name in of_time else plan.memory, name) for name in (*of_time, *of_memory)}


ROWS = {
    "data": mark("dataset rows"),
    "lengths": mark("synthetic rows with the lengths of the dataset"),
    "longest": mark("synthetic rows of full length"),
}


def bench_rows(plan: Plan, result: ProbeResult) -> Iterator[Row]:
    measured = result.measurement
    assert measured is not None
    model, device = model_text(plan), plain_text(tr(plan.memory.device))
    said = tr("{model} on {device}, {seconds} s in total", model=model, device=device, seconds=f"{result.seconds:.0f}")
    yield tr("Measured"), said
    factors = [measured.micro_batch, measured.accumulation] + [measured.world_size] * (measured.world_size > 1)
    batch, rows = " × ".join(map(count, factors)), tr(ROWS[result.rows])
    length = count(measured.length)
    yield (
        tr("Batch"),
        tr("{batch} sequences of at most {length} tokens; {rows}", batch=batch, length=length, rows=rows),
    )
    yield "", plain_text(result.rows_note, 200)
    yield tr("Step"), step_words(measured)
    if plan.time.step_low_s is not None:
        planned = duration_range(plan.time.step_low_s, plan.time.step_high_s)
        yield "", tr("planned {time} ({basis})", time=planned, basis=plan.time.basis_text or tr(plan.time.basis))
    if measured.peak_allocated_bytes is not None:
        allocated, planned = size(measured.peak_allocated_bytes), size(plan.memory.allocated_bytes)
        words = tr(
            "{measured}; planned {size} allocated", measured=tr("{size} allocated", size=allocated), size=planned
        )
        yield tr("Memory"), words
    if measured.host_rss_bytes is not None:
        held, processes = size(measured.host_rss_bytes), measured.world_size
        yield tr("RAM"), trn("peak {size}", "peak {size} in each process", processes, size=held)
    yield tr("Largest"), largest_words(result, measured)
    if result.problem:
        yield "", tr("the probe ended early: {reason}", reason=plain_text(result.problem, 300))


def step_words(measured: Measurement) -> str:
    words = tr(
        "{time} ({spread} over {count} steps)",
        time=duration(measured.step_s),
        spread=duration_range(measured.step_low_s, measured.step_high_s),
        count=count(measured.steps),
    )
    if measured.tokens_per_step is None:
        return words
    pace = count(round(measured.tokens_per_step / measured.step_s))
    return tr("{step}, {pace} tokens/s including padding", step=words, pace=pace)


def largest_words(result: ProbeResult, measured: Measurement) -> str:
    if not result.searched or measured.largest_micro_batch is None:
        tried = count(measured.micro_batch)
        return tr("micro-batch {size} fits; larger ones were not tried", size=tried)
    largest, why = count(measured.largest_micro_batch), plain_text(measured.largest_note)
    if not why:
        return tr("micro-batch {size} fits", size=largest)
    return tr("micro-batch {size} fits; search ended: {reason}", size=largest, reason=why)


# `trainwiz bench --choose`: the settings of a plan and their alternatives in turns; the table says what to set.


def run_choose(values: Mapping[str, Any], *, limit_s: float | None = None) -> int:

    def in_turns(plan: Plan, gathered: Gathered, waiting: Waiting) -> list[Turns]:
        return list(compare(plan, gathered.data, limit_s or LONGEST_CHOICE_S, waiting.say))

    choices, plan, compared = measured(values, in_turns)
    if plan is None or compared is None:
        return EXIT_STOPPED
    names = ("task", "precision", "strategy", "offload", "world_size", "micro_batch", "accumulation", "length")
    figures = {"model_name": plan.config.model.name, **{name: getattr(plan.work, name) for name in names}}
    if choices.json:
        say_json({"comparison": {**figures, "alternatives": [asdict(turns) for turns in compared]}})
        return EXIT_FINISHED
    own = tr(
        "{model}, {batch} sequences of at most {length} tokens, in {precision}",
        model=model_text(plan),
        batch=f"{count(figures['micro_batch'])} × {count(figures['accumulation'])}",
        length=count(figures["length"]),
        precision=figures["precision"],
    )
    say_rows(((tr("Compared"), own), *((title_of(turns), turns_words(turns)) for turns in compared)))
    return EXIT_FINISHED


TITLES = {
    "engine.attention": mark("Attention"),
    "engine.optimizer": mark("Optimizer"),
    "engine.precision": mark("Precision"),
    "engine.compile": mark("Compile"),
}


def title_of(turns: Turns) -> str:
    return tr(TITLES[next(iter(turns.changes))])


def turns_words(turns: Turns) -> str:
    """ "eager instead of sdpa: 0.81 times the pace (0.78 to 0.84 in 8 turns); slower"."""
    (key, value), base = next(iter(turns.changes.items())), next(iter(turns.base.values()))
    subject = tr("{value} instead of {base}", value=_value(value), base=_value(base))
    if turns.gain is None or turns.verdict == "failed":
        form = mark("failed: {reason}") if turns.verdict == "failed" else mark("not measured: {reason}")
        return tr("{subject}: {result}", subject=subject, result=tr(form, reason=plain_text(turns.note, 200)))
    figures = tr(
        "{gain}x the speed ({low}x to {high}x over {turns})",
        gain=f"{turns.gain:.2f}",
        low=f"{turns.gain_low:.2f}",
        high=f"{turns.gain_high:.2f}",
        turns=trn("{n} round", "{n} rounds", turns.turns),
    )
    verdicts = {
        "faster": tr("faster: --set {setting}", setting=f"{key}={str(value).lower()}"),
        "slower": tr("slower"),
        "no_difference": tr("no difference beyond the spread"),
    }
    parts = [figures, verdicts.get(turns.verdict, tr("too few rounds to tell; allow more time (--seconds)"))]
    saved_s = (turns.step_s or 0.0) * (1 - 1 / turns.gain)
    if turns.once_s and turns.verdict == "faster" and saved_s > 0:
        steps, once = count(round(turns.once_s / saved_s) + 1), duration(turns.once_s)
        parts.append(tr("compiling takes {time}, recovered after {steps} steps", time=once, steps=steps))
    return tr("{subject}: {result}", subject=subject, result=tr("; ").join(parts))


def _value(value: Any) -> str:
    return (tr("on") if value else tr("off")) if isinstance(value, bool) else str(value)
