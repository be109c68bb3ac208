"""How a followed run ended: one line for people, one document for programs, one exit code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED, EXIT_TRAINING_FAILED
from trainwiz.core.history.run import Benchmark, benchmark_of, is_benchmark
from trainwiz.core.language import tr, trn
from trainwiz.core.model.found import next_commands
from trainwiz.core.run.attempts import attempt_words, recovered_attempts
from trainwiz.core.run.checkpoints import newest_complete
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.listing import last_metrics
from trainwiz.core.run.state import RunState, result_sentences
from trainwiz.core.text import number, object_in, plain_text
from trainwiz.tui.output import Row
from trainwiz.tui.run_words import engine_problems, evaluation_parts
from trainwiz.tui.text import count, duration, duration_range, size

# A benchmark in words: each figure beside the one of the plan.


def benchmark_rows(measured: Benchmark | None) -> list[Row]:
    if measured is None:
        return []
    step = tr(
        "{median} ({range} over {steps})",
        median=duration(measured.step_s),
        range=duration_range(measured.step_low_s, measured.step_high_s),
        steps=trn("{n} step", "{n} steps", measured.steps),
    )
    rate, real = count(measured.tokens_per_s), count(measured.real_tokens_per_s)
    planned_step = duration_range(measured.planned_step_low_s, measured.planned_step_high_s)
    figures = (
        (tr("Step"), step, planned_step),
        (
            tr("Speed"),
            tr("{count} tokens/s, {real} non-padding", count=rate, real=real),
            count(measured.planned_tokens_per_s),
        ),
        (tr("Memory"), size(measured.peak_allocated_bytes), size(measured.planned_allocated_bytes)),
        (tr("RAM"), size(measured.host_ram_bytes), size(measured.planned_host_ram_bytes)),
    )
    unknown = tr("unknown")
    return [
        (label, said if planned == unknown else tr("{measured}; planned {planned}", measured=said, planned=planned))
        for label, said, planned in figures
        if unknown not in said
    ]


EXIT_CODES = {"finished": EXIT_FINISHED, "stopped": EXIT_STOPPED}


def exit_code(state: RunState) -> int:
    return EXIT_CODES.get(state.status, EXIT_TRAINING_FAILED)


def measured_steps(folder: RunFolder, state: RunState) -> Benchmark | None:
    """The steps beside the plan, of a run that was started to measure them."""
    return benchmark_of(folder) if is_benchmark(folder) and not state.is_active else None


def ending_of(folder: RunFolder, state: RunState) -> dict[str, Any]:
    """`evaluation` is the last measurement on held-out rows, `results` why the training ended early; `attempts` what
    trainwiz started by itself since somebody last started the run, and why no more followed; `next` what to do with
    the model."""
    outcome, exit_, measured = state.outcome or {}, state.exit, measured_steps(folder, state)
    finished = state.status == "finished"
    model = shown_path(folder.final_model) if finished and folder.final_model.is_dir() else None
    checkpoint = None if finished else newest_complete(folder)
    planned = object_in((read_json(folder.plan_json) or {}).get("time"))
    evaluation = {
        name: value for name, value in outcome.items() if name.startswith("eval_") and number(value) is not None
    }
    return {
        "status": state.status,
        "exit_code": exit_code(state),
        "run": shown_path(folder.path),
        "model": model,
        "checkpoint": checkpoint.name if checkpoint else None,
        # A run that was killed has no outcome.
        "step": outcome.get("step", last_metrics(folder.metrics_jsonl).get("step")),
        "max_steps": outcome.get("max_steps") or state.max_steps,
        "first_loss": outcome.get("first_loss"),
        "last_loss": outcome.get("last_loss"),
        "seconds": seconds_of(state),
        "planned_low_s": planned.get("total_low_s"),
        "planned_high_s": planned.get("total_high_s"),
        "cause": exit_.cause if exit_ else None,
        "message": exit_.message if exit_ else None,
        "remedy": exit_.remedy if exit_ else None,
        "evaluation": evaluation,
        "engine": {key: state.engine.get(key) for key in ("planned", "actual", "findings")},
        "benchmark": measured.to_json() if measured else None,
        "attempts": attempts_of(folder, state),
        "results": result_sentences(outcome),
        "next": next_commands(folder) if model else [],
    }


def ending_rows(folder: RunFolder, state: RunState) -> list[Row]:
    """The last word of the run in its own words, then what there is of each of these."""
    known = ending_of(folder, state)
    run, low_s, high_s = plain_text(known["run"]), known["planned_low_s"], known["planned_high_s"]
    time = "" if known["seconds"] is None else duration(known["seconds"])
    if time and None not in (low_s, high_s):
        time = tr("{time} (planned {planned})", time=time, planned=duration_range(low_s, high_s))
    problems = engine_problems(state.engine) if state.status == "finished" else []
    rows = [
        (tr("End"), plain_text(known["message"] or tr("The run ended without reporting a reason."))),
        (tr("Time"), time),
        (tr("Eval"), tr(", ").join(evaluation_parts(known["evaluation"]))),
        *benchmark_rows(measured_steps(folder, state)),
        *((tr("Engine"), f"! {plain_text(problem)}") for problem in problems),
        (tr("Model"), plain_text(known["model"] or "")),
        (tr("Log"), "" if state.status in EXIT_CODES else f"{run}/train.log"),
        (tr("Saved"), f"{run}/{known['checkpoint']}" if known["checkpoint"] else ""),
        *_under(tr("Attempts"), known["attempts"]),
        (tr("Next"), plain_text(known["remedy"] or "")),
        *_under(tr("Next"), [f"{line}   {does}" for does, line in known["next"]]),
    ]
    return [row for row in rows if row[1]]


def _under(label: str, texts: list[str]) -> list[Row]:
    return [("" if place else label, text) for place, text in enumerate(texts)]


def planned_batch(folder: RunFolder) -> Mapping[str, Any]:
    return object_in((read_json(folder.plan_json) or {}).get("batch"))


def attempts_of(folder: RunFolder, state: RunState) -> list[str]:
    recovered, batch = recovered_attempts(state.attempts), planned_batch(folder)
    why = state.attempts[-1].not_retried if state.attempts and state.status == "failed" else None
    return [*(attempt_words(attempt, batch) for attempt in recovered), *([plain_text(why)] if why else [])]


def seconds_of(state: RunState) -> float | None:
    """Since somebody last started the run: attempts that followed by themselves are part of it."""
    by_hand = [attempt.started_s for attempt in state.attempts if attempt.because is None]
    began = by_hand[-1] if by_hand else state.started_s
    return None if began is None or state.ended_s is None else max(0.0, state.ended_s - began)


def shown_path(path: Path) -> str:
    """Relative to the current folder where it is below it: short, and it can be pasted."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return os.fspath(path)
