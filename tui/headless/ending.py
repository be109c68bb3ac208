"""How a followed run ended: one line for people, one document for programs, one exit code."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
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


EXIT_CODES = {"finished": EXIT_FINISHED, "stopped": EXIT_STOPPED}


class Ending:
    """What there is to say of a run that has ended."""

    def __init__(self, folder: RunFolder, state: RunState) -> None:
        finished = state.status == "finished"
        checkpoint = None if finished else newest_complete(folder)
        planned = object_in((read_json(folder.plan_json) or {}).get("time"))
        self.state = state
        self.exit_code = EXIT_CODES.get(state.status, EXIT_TRAINING_FAILED)
        self.run = shown_path(folder.path)
        self.model = shown_path(folder.final_model) if finished and folder.final_model.is_dir() else None
        self.checkpoint = checkpoint.name if checkpoint else None
        self.outcome: Mapping[str, Any] = state.outcome or {}
        # A run that was killed has no outcome.
        self.step = self.outcome.get("step", last_metrics(folder.metrics_jsonl).get("step"))
        self.seconds = seconds_of(state)
        self.planned_s = planned.get("total_low_s"), planned.get("total_high_s")
        self.benchmark = benchmark_of(folder) if is_benchmark(folder) and not state.is_active else None
        """The steps beside the plan, of a run that was started to measure them."""
        self.attempts = attempts_of(folder, state)
        """What trainwiz started by itself since somebody last started the run, and why no more followed."""
        self.next = next_commands(folder) if self.model else []
        """(what it does, command): what to do with the model."""

    def to_json(self) -> dict[str, Any]:
        """`evaluation` is the last measurement on held-out rows, `results` why the training ended early."""
        state, outcome, exit_ = self.state, self.outcome, self.state.exit
        measured = {name: value for name, value in outcome.items() if name.startswith("eval_")}
        return {
            "status": state.status,
            "exit_code": self.exit_code,
            "run": self.run,
            "model": self.model,
            "checkpoint": self.checkpoint,
            "step": self.step,
            "max_steps": outcome.get("max_steps") or state.max_steps,
            "first_loss": outcome.get("first_loss"),
            "last_loss": outcome.get("last_loss"),
            "seconds": self.seconds,
            "planned_low_s": self.planned_s[0],
            "planned_high_s": self.planned_s[1],
            "cause": exit_.cause if exit_ else None,
            "message": exit_.message if exit_ else None,
            "remedy": exit_.remedy if exit_ else None,
            "evaluation": {name: value for name, value in measured.items() if number(value) is not None},
            "engine": {key: state.engine.get(key) for key in ("planned", "actual", "findings")},
            "benchmark": self.benchmark.to_json() if self.benchmark else None,
            "attempts": self.attempts,
            "results": result_sentences(outcome),
            "next": self.next,
        }

    def rows(self) -> list[Row]:
        """The last word of the run in its own words, then what there is of each of these."""
        status, exit_, run = self.state.status, self.state.exit, plain_text(self.run)
        problems = engine_problems(self.state.engine) if status == "finished" else []
        message = exit_.message if exit_ else tr("The run ended without reporting a reason.")
        rows = [
            (tr("End"), plain_text(message)),
            (tr("Time"), self._time_words()),
            (tr("Eval"), tr(", ").join(evaluation_parts(self.outcome))),
            *benchmark_rows(self.benchmark),
            *((tr("Engine"), f"! {plain_text(problem)}") for problem in problems),
            (tr("Model"), plain_text(self.model or "")),
            (tr("Log"), "" if status in EXIT_CODES else f"{run}/train.log"),
            (tr("Saved"), f"{run}/{self.checkpoint}" if self.checkpoint else ""),
            *(("" if place else tr("Attempts"), text) for place, text in enumerate(self.attempts)),
            (tr("Next"), plain_text(exit_.remedy or "") if exit_ else ""),
            *(("" if place else tr("Next"), f"{line}   {does}") for place, (does, line) in enumerate(self.next)),
        ]
        return [row for row in rows if row[1]]

    def _time_words(self) -> str:
        if self.seconds is None:
            return ""
        if None in self.planned_s:
            return duration(self.seconds)
        return tr("{time} (planned {planned})", time=duration(self.seconds), planned=duration_range(*self.planned_s))


def planned_batch(folder: RunFolder) -> Mapping[str, Any]:
    return object_in((read_json(folder.plan_json) or {}).get("batch"))


def attempts_of(folder: RunFolder, state: RunState) -> list[str]:
    recovered = recovered_attempts(state.attempts)
    batch = planned_batch(folder) if recovered else {}
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
