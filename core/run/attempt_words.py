"""Attempts in words: which one this is, why there is another one, and with what it differs from the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainwiz.core.language import mark, tr
from trainwiz.core.plain import plain_text
from trainwiz.core.run.state import Attempt

CAUSE_WORDS: Mapping[str, str] = {
    "cuda_oom": mark("GPU memory ran out"),
    "host_oom": mark("RAM ran out"),
    "disk_full": mark("the disk was full"),
    "nccl_timeout": mark("NCCL timed out"),
    "nccl_error": mark("NCCL failed"),
    "dataloader_worker_killed": mark("a loader worker was killed"),
    "shared_memory": mark("shared memory ran out"),
    "port_in_use": mark("its port was in use"),
    "nan_loss": mark("the loss was not a number"),
    "gpu_lost": mark("a GPU was lost"),
    "unknown": mark("it failed"),
}
"""Cause -> what happened, as part of a sentence. Files and --json have the cause itself."""
MICRO, ACCUMULATION = "batch.micro_batch_size", "batch.gradient_accumulation_steps"
EVALUATION, WORKERS = "batch.eval_micro_batch_size", "data.workers"
CHECKPOINT = "checkpoint-"


def cause_words(attempt: Attempt) -> str:
    """Why trainwiz started it; of a cause that nobody foresaw, its own name."""
    cause = attempt.because or "unknown"
    if cause == "unknown" and attempt.signal:
        return tr("{signal} from outside ended it", signal=plain_text(attempt.signal, 20))
    return tr(CAUSE_WORDS[cause]) if cause in CAUSE_WORDS else plain_text(cause, 80).replace("_", " ")


def attempt_words(attempt: Attempt, batch: Mapping[str, Any]) -> str:
    """ "attempt 2, as GPU memory ran out; from step 5: 3 × 16 instead of 6 × 8"; `batch` is that of plan.json.

    Empty for a first attempt that runs as planned.
    """
    changes = "; ".join(change_words(attempt.changes, batch))
    if attempt.number <= 1 and not changes:
        return ""
    values = {"number": attempt.number, "where": origin_words(attempt.resume)}
    if attempt.because is None:
        said = tr("attempt {number}, {where}", **values)
    else:
        said = tr("attempt {number}, as {cause}; {where}", cause=cause_words(attempt), **values)
    return tr("{attempt}: {changes}", attempt=said, changes=changes) if changes else said


def recovered_attempts(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Those that trainwiz started by itself since a person last started the run."""
    last_by_hand = max((place for place, attempt in enumerate(attempts) if attempt.because is None), default=-1)
    return list(attempts[last_by_hand + 1 :])


def origin_words(resume: str | None) -> str:
    """Where an attempt began; `resume` is the name of a checkpoint."""
    if resume is None:
        return tr("from the beginning")
    step = resume.removeprefix(CHECKPOINT)
    return tr("from step {step}", step=f"{int(step):,}") if step.isdecimal() else tr("from {name}", name=resume)


def change_words(changes: Mapping[str, Any], batch: Mapping[str, Any]) -> Iterator[str]:
    """What differs from the plan, one part for each thing; the two factors of the batch are one."""
    if MICRO in changes or ACCUMULATION in changes:
        planned = batch.get("micro_batch"), batch.get("accumulation")
        now = changes.get(MICRO, planned[0]), changes.get(ACCUMULATION, planned[1])
        yield tr("{new} instead of {old}", new=_product(now), old=_product(planned))
    if EVALUATION in changes:
        yield tr("evaluation in batches of {size}", size=plain_text(changes[EVALUATION], 20))
    if WORKERS in changes:
        yield tr("loader workers: {count}", count=plain_text(changes[WORKERS], 20))
    for key, value in changes.items():
        if key not in (MICRO, ACCUMULATION, EVALUATION, WORKERS):
            yield f"{plain_text(key, 60)} = {plain_text(value, 60)}"


def _product(factors: tuple[Any, Any]) -> str:
    return " × ".join(f"{factor:,}" if isinstance(factor, int) else "?" for factor in factors)
