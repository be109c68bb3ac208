"""How a followed run ended: one line for people, one document for programs, one exit code."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
    steps = trn("{n} step", "{n} steps", measured.steps)
    spread = duration_range(measured.step_low_s, measured.step_high_s)
    step = tr("{median} ({range} over {steps})", median=duration(measured.step_s), range=spread, steps=steps)
    planned_step_s = measured.planned_step_low_s, measured.planned_step_high_s
    pace = ""
    if measured.tokens_per_s is not None and measured.real_tokens_per_s is not None:
        rate, real = count(measured.tokens_per_s), count(measured.real_tokens_per_s)
        pace = tr("{count} tokens/s, {real} non-padding", count=rate, real=real)
    figures = (
        (tr("Step"), step, "" if None in planned_step_s else duration_range(*planned_step_s)),
        (tr("Speed"), pace, _known(count, measured.planned_tokens_per_s)),
        (tr("Memory"), _known(size, measured.peak_allocated_bytes), _known(size, measured.planned_allocated_bytes)),
        (tr("RAM"), _known(size, measured.host_ram_bytes), _known(size, measured.planned_host_ram_bytes)),
    )
    return [
        (label, tr("{measured}; planned {planned}", measured=said, planned=planned) if planned else said)
        for label, said, planned in figures
        if said
    ]


def _known(words: Callable[[float], str], value: float | None) -> str:
    return "" if value is None else words(value)


@dataclass(frozen=True, slots=True)
class Ending:
    status: str
    exit_code: int
    run: str
    model: str | None
    checkpoint: str | None
    step: int | None
    max_steps: int | None
    first_loss: float | None
    last_loss: float | None
    seconds: float | None
    planned_low_s: float | None
    planned_high_s: float | None
    cause: str | None
    message: str | None
    remedy: str | None
    evaluation: dict[str, float]
    """The last measurement on held-out rows: names that begin with eval_."""
    engine: dict[str, Any]
    """{planned, actual}, one word each, and findings where they differ."""
    benchmark: Benchmark | None = None
    """The steps beside the plan, of a run that was started to measure them."""
    attempts: tuple[str, ...] = ()
    """What trainwiz started by itself since somebody last started the run, one phrase each, and why no more followed."""
    results: tuple[str, ...] = ()
    """Why the training ended early, and which weights final_model has, where they are not those of the last step."""
    next: tuple[tuple[str, str], ...] = ()
    """(what it does, command): what to do with the model."""

    def to_json(self) -> dict[str, Any]:
        document = {name: getattr(self, name) for name in self.__slots__}
        return {**document, "benchmark": self.benchmark.to_json() if self.benchmark else None}


def ending_of(folder: RunFolder, state: RunState) -> Ending:
    outcome = state.outcome or {}
    planned = object_in((read_json(folder.plan_json) or {}).get("time"))
    model = folder.final_model if state.status == "finished" and folder.final_model.is_dir() else None
    checkpoint = newest_complete(folder) if state.status != "finished" else None
    return Ending(
        status=state.status,
        exit_code=EXIT_CODES.get(state.status, EXIT_TRAINING_FAILED),
        run=shown_path(folder.path),
        model=shown_path(model) if model else None,
        checkpoint=checkpoint.name if checkpoint else None,
        step=outcome.get("step", last_metrics(folder.metrics_jsonl).get("step")),
        max_steps=outcome.get("max_steps") or state.max_steps,
        first_loss=outcome.get("first_loss"),
        last_loss=outcome.get("last_loss"),
        seconds=seconds_of(state),
        planned_low_s=planned.get("total_low_s"),
        planned_high_s=planned.get("total_high_s"),
        cause=state.exit.cause if state.exit else None,
        message=state.exit.message if state.exit else None,
        remedy=state.exit.remedy if state.exit else None,
        evaluation={
            name: value for name, value in outcome.items() if name.startswith("eval_") and number(value) is not None
        },
        engine={key: state.engine.get(key) for key in ("planned", "actual", "findings")},
        benchmark=benchmark_of(folder) if is_benchmark(folder) and not state.is_active else None,
        attempts=attempts_of(folder, state),
        results=tuple(result_sentences(outcome)),
        next=tuple(next_commands(folder)) if model is not None else (),
    )


def planned_batch(folder: RunFolder) -> Mapping[str, Any]:
    return object_in((read_json(folder.plan_json) or {}).get("batch"))


def attempts_of(folder: RunFolder, state: RunState) -> tuple[str, ...]:
    recovered = recovered_attempts(state.attempts)
    batch = planned_batch(folder) if recovered else {}
    said = [attempt_words(attempt, batch) for attempt in recovered]
    why = state.attempts[-1].not_retried if state.attempts and state.status == "failed" else None
    return (*said, *([plain_text(why)] if why else []))


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


EXIT_CODES = {"finished": EXIT_FINISHED, "stopped": EXIT_STOPPED}


def ending_rows(ending: Ending) -> list[Row]:
    """The last word of the run in its own words, then what there is of each of these."""
    failed = ending.status not in EXIT_CODES
    problems, run = engine_problems(ending.engine), plain_text(ending.run)
    rows = [
        (tr("End"), plain_text(ending.message or tr("The run ended without reporting a reason."))),
        (tr("Time"), "" if ending.seconds is None else time_text(ending)),
        (tr("Eval"), tr(", ").join(evaluation_parts(ending.evaluation))),
        *benchmark_rows(ending.benchmark),
        *((tr("Engine"), f"! {plain_text(problem)}") for problem in problems if ending.status == "finished"),
        (tr("Model"), plain_text(ending.model or "")),
        (tr("Log"), f"{run}/train.log" if failed else ""),
        (tr("Saved"), f"{run}/{ending.checkpoint}" if ending.checkpoint else ""),
        *((tr("Attempts") if not place else "", text) for place, text in enumerate(ending.attempts)),
        (tr("Next"), plain_text(ending.remedy or "")),
        *(("" if place else tr("Next"), f"{line}   {does}") for place, (does, line) in enumerate(ending.next)),
    ]
    return [row for row in rows if row[1]]


def time_text(ending: Ending) -> str:
    took = duration(ending.seconds)
    if ending.planned_low_s is None or ending.planned_high_s is None:
        return took
    planned = duration_range(ending.planned_low_s, ending.planned_high_s)
    return tr("{time} (planned {planned})", time=took, planned=planned)
