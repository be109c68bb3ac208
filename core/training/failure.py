"""failure-rank<N>.json: why a training process died, for the supervisor."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from trainwiz.core.errors import TrainwizError
from trainwiz.core.run.folder import RunFolder, write_json_atomic

current_step: int | None = None
"""Last optimizer step that this process finished; kept by the metrics callback."""
current_phase: str | None = None
"""What it is at ("training", "evaluating", ...); kept by the phases."""


def note_step(step: int) -> None:
    global current_step
    current_step = step


def note_phase(phase: str) -> None:
    global current_phase
    current_phase = phase


def rank_of_this_process() -> int:
    """RANK as torchrun sets it; 0 for a single process."""
    rank = os.environ.get("RANK", "0")
    return int(rank) if rank.isdigit() else 0


def write_failure(folder: Path, error: BaseException) -> None:
    """Write failure-rank<N>.json: type, message, traceback, time_s (Unix seconds), step, phase, rank and findings."""
    rank = rank_of_this_process()
    findings = [finding.to_json() for finding in error.findings] if isinstance(error, TrainwizError) else []
    write_json_atomic(
        RunFolder(folder).failure_json(rank),
        {
            "type": type(error).__name__,
            "message": str(error),
            "traceback": "".join(traceback.format_exception(error)),
            "time_s": time.time(),
            "step": current_step,
            "phase": current_phase,
            "rank": rank,
            "findings": findings,
        },
    )


def exit_after_failure(folder: Path, error: BaseException, last_word: Callable[[int], None] | None = None) -> NoReturn:
    """Write the failure, say it in the log, and end this process with a code that is not 0."""
    try:
        write_failure(folder, error)
    except OSError as problem:
        print(f"cannot write the failure file: {problem}", file=sys.stderr)
    if isinstance(error, TrainwizError):
        for finding in error.findings:
            print(f"{finding.severity}: {finding.message}", file=sys.stderr)
    else:
        traceback.print_exception(error)
    if last_word is not None:
        last_word(1)
    sys.stdout.flush()
    sys.stderr.flush()
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        # A clean interpreter exit waits for collectives in which the other processes still hang.
        os._exit(1)
    sys.exit(1)
