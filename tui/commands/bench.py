"""`trainwiz bench`: a few real steps of a plan on this machine, measured, and kept for the next plan."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED, UsageError
from trainwiz.core.history.store import append, history_path, load
from trainwiz.core.launch.probe import LONGEST_S, Probe
from trainwiz.core.launch.probe_refusal import check_probe
from trainwiz.core.launch.probe_result import ProbeResult
from trainwiz.core.plain import plain_text
from trainwiz.core.plan.gather import gather
from trainwiz.core.plan.refine import Refiner
from trainwiz.core.plan.result import Plan
from trainwiz.tui.choices import Choices, parse_choices, wrong
from trainwiz.tui.figures import count, duration, duration_range, size
from trainwiz.tui.headless.plan_text import model_text
from trainwiz.tui.headless.waiting import Waiting
from trainwiz.tui.help import OTHER_MACHINE
from trainwiz.tui.output import labelled, say, say_json, say_labelled


def run_bench(values: Mapping[str, Any], *, limit_s: float = LONGEST_S) -> int:
    """`values` are the choices as typer read them. Raises TrainwizError for what cannot be measured."""
    choices = parse_choices(values)
    refused = [flag for flag in OTHER_MACHINE if flag in choices.given]
    if refused:
        words = "it plans for another machine, and a probe measures this one; leave it out"
        raise UsageError([wrong(flag, words) for flag in refused])
    try:
        plan, result = measured(choices, limit_s)
    except KeyboardInterrupt:
        say("Stopped: nothing was kept, and nothing runs any more.", sys.stderr)
        return EXIT_STOPPED
    note = keep(result)
    if choices.json:
        say_json(
            {"probe": result.to_json(), "plan": planned_figures(plan), "history": str(history_path()), "note": note}
        )
        return EXIT_FINISHED
    for text in bench_lines(plan, result):
        say_labelled(text)
    say()
    say(note or f"Kept in {history_path()}: the next plan for this machine and model uses it.")
    return EXIT_FINISHED


def measured(choices: Choices, limit_s: float) -> tuple[Plan, ProbeResult]:
    """The plan and its probe. Raises TrainwizError, and KeyboardInterrupt once all is cleared up."""
    with interrupted_by_signals(), Waiting("reading machine, model and data") as waiting:
        gathered = gather(choices.request)
        plan = Refiner(None, load).plan(gathered)
        check_probe(plan)
        waiting.say("starting the processes of the probe")
        with Probe(plan, gathered.data, limit_s=limit_s) as probe:
            return plan, probe.run(lambda line: waiting.say(progress_words(line)))


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command as Ctrl-C does, so that the probe is cleared up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = [signal.SIGTERM]
    # nohup sets it to be ignored, and that is what the user wants then.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def keep(result: ProbeResult) -> str:
    """Into the history; the sentence that says why not."""
    assert result.measurement is not None
    try:
        append(result.measurement)
    except OSError as error:
        return f"The measurement could not be kept in {history_path()}: {error.strerror or error}."
    return ""


def progress_words(line: Mapping[str, Any]) -> str:
    """What the probe does now, after `line` of it."""
    match line.get("event"):
        case "ready":
            return "the first steps, on the longest batch"
        case "memory" | "step":
            return "measuring steps"
        case "trial":
            return f"looking for the largest micro-batch: {line.get('micro_batch')}"
        case "end" | "largest":
            return "closing"
        case _:
            return "measuring"


def planned_figures(plan: Plan) -> dict[str, Any]:
    """What the plan said before."""
    time, memory = plan.time, plan.memory
    return {
        "step_s": time.step_s,
        "step_low_s": time.step_low_s,
        "step_high_s": time.step_high_s,
        "basis": time.basis,
        "allocated_bytes": memory.allocated_bytes,
        "reserved_bytes": memory.reserved_bytes,
        "device_used_bytes": memory.device_used_bytes,
        "low_bytes": memory.low_bytes,
        "high_bytes": memory.high_bytes,
        "tier": memory.tier,
    }


def bench_lines(plan: Plan, result: ProbeResult) -> list[str]:
    """The result, one subject a line, each figure beside the one of the plan."""
    measured = result.measurement
    assert measured is not None
    batch = f"{count(measured.micro_batch)} × {count(measured.accumulation)}"
    if measured.world_size > 1:
        batch += f" × {count(measured.world_size)}"
    lines = [
        labelled("Measured", f"{model_text(plan)} on {plain_text(plan.memory.device)}, {result.seconds:.0f} s in all"),
        labelled("Batch", f"{batch} sequences of at most {count(measured.length)} tokens; {rows_words(result)}"),
    ]
    if result.planned_fits is False:
        words = f"{count(plan.batch.micro_batch)} does not fit here; measured with {count(measured.micro_batch)}"
        lines.append(labelled("", words))
    spread = f"{duration_range(measured.step_low_s, measured.step_high_s)} in {count(measured.steps)} steps"
    lines.append(
        labelled(
            "Step", f"{duration(measured.step_s)} ({spread}){pace_words(measured.tokens_per_step, measured.step_s)}"
        )
    )
    if plan.time.step_low_s is not None:
        said = duration_range(plan.time.step_low_s, plan.time.step_high_s)
        lines.append(labelled("", f"the plan said {said}, by {plan.time.basis_text or plan.time.basis}"))
    if measured.peak_allocated_bytes is not None:
        peak = f"{size(measured.peak_allocated_bytes)} allocated, {size(measured.peak_reserved_bytes)} reserved"
        used = f", {size(measured.device_used_bytes)} in use" if measured.device_used_bytes else ""
        said = f"; the plan said {size(plan.memory.allocated_bytes)} allocated"
        lines.append(labelled("Memory", f"{peak}{used}{said}"))
    if measured.host_rss_bytes is not None:
        each = "" if measured.world_size == 1 else " in each process"
        lines.append(labelled("Host RAM", f"{size(measured.host_rss_bytes)} at its most{each}"))
    lines.append(labelled("Largest", largest_words(result)))
    if result.problem:
        lines.append(labelled("", f"the probe ended early: {plain_text(result.problem, 300)}"))
    return lines


def rows_words(result: ProbeResult) -> str:
    words = {
        "data": "rows of the data",
        "lengths": "generated rows with the lengths of the data",
        "longest": "generated rows of full length",
    }[result.rows]
    return f"{words} ({plain_text(result.rows_note, 200)})" if result.rows_note else words


def pace_words(tokens: float | None, seconds: float) -> str:
    return "" if tokens is None else f", {count(round(tokens / seconds))} tokens/s with padding"


def largest_words(result: ProbeResult) -> str:
    """The largest micro-batch, and how far the search went."""
    measured = result.measurement
    assert measured is not None
    if not result.searched or measured.largest_micro_batch is None:
        return f"micro-batch {count(measured.micro_batch)} fits; there was no time to try larger ones (--seconds)"
    why = measured.largest_note
    return f"micro-batch {count(measured.largest_micro_batch)} fits" + (
        f"; the search ended: {plain_text(why)}" if why else ""
    )
