"""`trainwiz bench`: a few real steps of a plan on this machine, measured; with --choose beside its alternatives."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED, os_reason
from trainwiz.core.history.measurement import append, history_path, load
from trainwiz.core.history.rates import kept_rates
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.launch.alternatives import LONGEST_S as LONGEST_CHOICE_S
from trainwiz.core.launch.alternatives import Turns, compare
from trainwiz.core.launch.probe import LONGEST_S, Probe, check_probe
from trainwiz.core.launch.probe_order import ProbeResult
from trainwiz.core.plan.gather import gather
from trainwiz.core.plan.refine import Refiner
from trainwiz.core.plan.result import Plan
from trainwiz.core.text import plain_text
from trainwiz.tui.choices import parse_choices
from trainwiz.tui.commands.plan import model_text
from trainwiz.tui.commands.profiles import value_words
from trainwiz.tui.output import Row, Waiting, interrupted_by_signals, say, say_json, say_rows, under
from trainwiz.tui.plan_words import batch_text
from trainwiz.tui.text import count, duration, duration_range, size


def run_bench(values: Mapping[str, Any], *, seconds: float | None = None, choose: bool = False) -> int:
    """`values` are the choices as they were typed. Raises TrainwizError for what cannot be measured."""
    choices = parse_choices(values)
    try:
        with interrupted_by_signals(), Waiting(tr("reading machine, model and data")) as waiting:
            gathered = gather(choices.request)
            plan = Refiner(None, load, kept_rates).plan(gathered)
            check_probe(plan)
            if choose:
                compared = list(compare(plan, gathered.data, seconds or LONGEST_CHOICE_S, waiting.say))
            else:
                waiting.say(tr("starting the probe processes"))
                with Probe(plan, gathered.data, limit_s=seconds or LONGEST_S) as running:
                    result = running.run(lambda line: waiting.say(progress_words(line)))
    except KeyboardInterrupt:
        say(tr("Stopped. Nothing was saved, and no process is left running."), sys.stderr)
        return EXIT_STOPPED
    if choose:
        _say_compared(plan, compared, as_json=choices.json)
        return EXIT_FINISHED
    note = keep(result)
    if choices.json:
        planned = {name: getattr(plan.time, name) for name in OF_TIME}
        planned |= {name: getattr(plan.memory, name) for name in OF_MEMORY}
        say_json({"probe": result.to_json(), "plan": planned, "history": str(history_path()), "note": note})
        return EXIT_FINISHED
    say_rows(bench_rows(plan, result))
    say()
    say(note or tr("Saved to {path}. The next plan for this machine and model uses it.", path=history_path()))
    return EXIT_FINISHED


def keep(result: ProbeResult) -> str:
    """Into the history; the sentence that says why not."""
    assert result.measurement is not None
    try:
        append(result.measurement)
    except OSError as error:
        return tr("Could not save the measurement to {path}: {reason}.", path=history_path(), reason=os_reason(error))
    return ""


def progress_words(line: Mapping[str, Any]) -> str:
    """Of a line of the probe: "trial" searches for the largest micro-batch."""
    if line.get("event") == "trial":
        return tr("searching for the largest micro-batch: {size}", size=line.get("micro_batch"))
    return tr("measuring steps")


OF_TIME = ("step_s", "step_low_s", "step_high_s", "basis")
OF_MEMORY = (
    "allocated_bytes",
    "reserved_bytes",
    "device_used_bytes",
    "low_bytes",
    "high_bytes",
    "needed_bytes",
    "needed_high_bytes",
    "tier",
)
ROWS = {
    "data": mark("dataset rows"),
    "lengths": mark("synthetic rows with the lengths of the dataset"),
    "longest": mark("synthetic rows of full length"),
}


def bench_rows(plan: Plan, result: ProbeResult) -> Iterator[Row]:
    measured, time = result.measurement, plan.time
    assert measured is not None
    device, seconds = plain_text(tr(plan.memory.device)), f"{result.seconds:.0f}"
    words = tr("{model} on {device}, {seconds} s in total", model=model_text(plan), device=device, seconds=seconds)
    yield tr("Measured"), words
    factors = [measured.micro_batch, measured.accumulation] + [measured.world_size] * (measured.world_size > 1)
    words = tr(
        "{batch} sequences of at most {length} tokens; {rows}",
        batch=" × ".join(map(count, factors)),
        length=count(measured.length),
        rows=tr(ROWS[result.rows]),
    )
    yield from under(tr("Batch"), words, plain_text(result.rows_note, 200))
    spread = duration_range(measured.step_low_s, measured.step_high_s)
    median, steps = duration(measured.step_s), count(measured.steps)
    words = tr("{time} ({spread} over {count} steps)", time=median, spread=spread, count=steps)
    if measured.tokens_per_step is not None:
        pace = count(round(measured.tokens_per_step / measured.step_s))
        words = tr("{step}, {pace} tokens/s including padding", step=words, pace=pace)
    yield tr("Step"), words
    if time.step_low_s is not None:
        planned, basis = duration_range(time.step_low_s, time.step_high_s), time.basis_text or tr(time.basis)
        yield "", tr("planned {time} ({basis})", time=planned, basis=basis)
    if measured.peak_allocated_bytes is not None:
        peak, planned = size(measured.peak_allocated_bytes), size(plan.memory.allocated_bytes)
        yield tr("Memory"), tr("{measured}; planned {planned}", measured=peak, planned=planned)
    if measured.host_rss_bytes is not None:
        held, processes = size(measured.host_rss_bytes), measured.world_size
        yield tr("RAM"), trn("peak {size}", "peak {size} in each process", processes, size=held)
    was_sought = result.searched and measured.largest_micro_batch is not None
    largest = measured.largest_micro_batch if was_sought else measured.micro_batch
    why = plain_text(measured.largest_note) if was_sought else tr("larger ones were not tried")
    yield tr("Largest"), tr("; ").join(filter(None, (tr("micro-batch {size} fits", size=count(largest)), why)))
    if result.problem:
        yield "", tr("the probe ended early: {reason}", reason=plain_text(result.problem, 300))


# `trainwiz bench --choose`: the settings of a plan and their alternatives in turns; the table says what to set.


def _say_compared(plan: Plan, compared: Sequence[Turns], *, as_json: bool) -> None:
    names = ("task", "precision", "strategy", "offload", "world_size", "micro_batch", "accumulation", "length")
    figures = {"model_name": plan.config.model.name, **{name: getattr(plan.work, name) for name in names}}
    if as_json:
        say_json({"comparison": {**figures, "alternatives": [asdict(turns) for turns in compared]}})
        return
    own = f"{model_text(plan)} · {batch_text(plan)} · {figures['precision']}"
    say_rows([(tr("Compared"), own), *((tr(TITLES[turns.key]), turns_words(turns)) for turns in compared)])


TITLES = {
    "engine.attention": mark("Attention"),
    "engine.precision": mark("Precision"),
    "engine.optimizer": mark("Optimizer"),
    "engine.compile": mark("Compile"),
}


UNCLEAR = mark("too few rounds to tell; allow more time (--seconds)")
VERDICTS = {"slower": mark("slower"), "no_difference": mark("no difference beyond the spread")}


def turns_words(turns: Turns) -> str:
    """ "fp32 instead of bf16: 0.81 times the pace (0.78 to 0.84 in 8 turns); slower"."""
    key, value = turns.key, turns.changes[turns.key]
    subject = tr("{value} instead of {base}", value=value_words(value), base=value_words(turns.base[key]))
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
    verdict = tr(VERDICTS.get(turns.verdict, UNCLEAR))
    if turns.verdict == "faster":
        verdict = tr("faster: --set {setting}", setting=f"{key}={str(value).lower()}")
    once = tr("compiling takes {time}", time=duration(turns.once_s)) if turns.once_s else ""
    return tr("{subject}: {result}", subject=subject, result=tr("; ").join(filter(None, (figures, verdict, once))))
