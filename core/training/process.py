"""A training process beside its training: what it does now, how it is stopped, what it says, how it fails. Loads no torch."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, NoReturn

from trainwiz.core.config import RunConfig
from trainwiz.core.errors import NO_ROOM, TrainwizError
from trainwiz.core.language import chosen_language, use_language
from trainwiz.core.processes import NEVER_USED, private_stdout
from trainwiz.core.run.attempts import Phase, write_phase
from trainwiz.core.run.folder import RunFolder, write_json_atomic
from trainwiz.core.supervise.ties import hold_to


def rank_of_this_process() -> int:
    """RANK as torchrun sets it; 0 for a single process."""
    return int(os.environ.get("RANK") or 0)


def first_line(error: BaseException) -> str:
    """What an exception says that was not meant for users, without its full stop."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def packages_without_use(config: RunConfig) -> tuple[str, ...]:
    """What transformers and peft import where it is installed, and a run of this configuration does not need."""
    if config.model.trust_remote_code or not {"none", "tensorboard"}.issuperset(config.logging.report_to):
        return ()
    in_few_bits = config.engine.base_precision in ("nf4", "int8") or "8bit" in (config.engine.optimizer or "")
    return NEVER_USED if in_few_bits else (*NEVER_USED, "bitsandbytes")


def begin_answering(program: str) -> BinaryIO:
    """Begin a process that answers another one, `--parent PID`: it ends with that one, speaks the user's language, and gets
    a pipe for its answers that no library knows."""
    parser = argparse.ArgumentParser(prog=f"trainwiz.core.training.{program}")
    parser.add_argument("--parent", type=int, required=True)
    hold_to(parser.parse_args().parent)
    use_language(chosen_language(None, os.environ))
    return os.fdopen(private_stdout(), "wb")


# Phases: phase.json as the training goes from one kind of work to the next.
#
# One for each process, so that code deep inside can say what it does without being handed a folder. Rank 0 writes; how far
# work has come that whichever process comes first does is told by that one (`whoever=True`). Outside a run nothing is written.

DETAIL_EVERY_S = 2.0
"""How far a long work has come is written at most this often."""


class Phases:
    """What this process does now. Never raises: a phase that cannot be written must not end a run."""

    def __init__(self) -> None:
        self.folder: RunFolder | None = None
        self.now: Phase | None = None
        """None before anything began."""
        self.step: int | None = None
        """Optimizer steps that are done."""
        self._writes = False
        self._since_s = time.time()
        self._next_detail = 0.0

    def begin(self, folder: RunFolder) -> None:
        self.folder = folder
        self._writes = rank_of_this_process() == 0
        self.step = None
        self.enter("preparing")

    def enter(self, phase: Phase, step: int | None = None, detail: str = "") -> None:
        """From now on it is `phase`. `step`: optimizer steps done; the last number known without it."""
        self.now, self._since_s = phase, time.time()
        self.step = self.step if step is None else step
        if self._writes:
            self._write(detail)

    @contextmanager
    def during(self, phase: Phase, step: int | None = None, detail: str = "") -> Iterator[None]:
        """`phase` inside the block; after it what was before. After an error nothing more is said."""
        before: Phase = self.now or "preparing"
        self.enter(phase, step, detail)
        yield
        self.enter(before)

    def tell(self, detail: str, *, whoever: bool = False) -> None:
        """How far the present work has come, for people. Called as often as one likes."""
        now = time.monotonic()
        if now >= self._next_detail and (self._writes or whoever):
            self._next_detail = now + DETAIL_EVERY_S
            self._write(detail)

    def _write(self, detail: str) -> None:
        if self.folder is not None and self.now is not None:
            # The training goes on without it where the disk is full.
            with suppress(OSError):
                write_phase(self.folder, self.now, self.step, detail, self._since_s)


phases = Phases()
"""Of this process."""


# A stop that keeps the work: the first signal asks for a checkpoint, a later second one ends at once.

SAME_REQUEST_S = 3.0
"""A supervisor and torchrun may both pass on the same stop; a signal within this time is no second one."""


@dataclass(slots=True)
class StopRequest:
    """Whether this process was asked to stop (SIGTERM or SIGINT)."""

    asked_at: float | None = None

    @classmethod
    def install(cls) -> StopRequest:
        request = cls()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, request._handle)
        return request

    @property
    def requested(self) -> bool:
        return self.asked_at is not None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.asked_at is None:
            self.asked_at = now
        elif now - self.asked_at > SAME_REQUEST_S:
            os._exit(128 + number)


# What a training says while its disk is full: never a reason to end. Room for checkpoints is another matter (CheckpointSaver).

MOST_KEPT_LINES = 100_000


class LastingOutput(io.FileIO):
    """A file descriptor; what it has no room for is dropped."""

    def write(self, data: Any) -> int:
        content = left = bytes(data)
        while left:
            try:
                left = left[os.write(self.fileno(), left) :]
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                break
        return len(content)


def let_output_be_dropped() -> None:
    """train.log may lie on a full disk: a line that finds no room there is lost, and the training goes on."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        raw: Any = LastingOutput(descriptor, "w", closefd=False)
        setattr(sys, name, io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True))


class LastingLines:
    """Lines at the end of a file. What finds no room is kept in memory and written, in order, before the next one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: list[str] = []

    def write(self, line: str) -> None:
        """`line` without its end. Raises OSError for every reason but lack of room."""
        self._kept = [*self._kept, line][-MOST_KEPT_LINES:]
        self.flush()

    def flush(self) -> None:
        """Try again to write what was kept. Raises OSError as `write` does."""
        if not self._kept:
            return
        content = "".join(f"{line}\n" for line in self._kept).encode()
        try:
            with self._path.open("ab", buffering=0) as file:
                whole = file.seek(0, os.SEEK_END)
                if file.write(content) < len(content):
                    # Half a line would spoil the one after it.
                    file.truncate(whole)
                    return
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return
        self._kept = []


# failure-rank<N>.json: why a training process died, for the supervisor.


def write_failure(folder: Path, error: BaseException) -> None:
    """Write failure-rank<N>.json: type, message, traceback, time_s (Unix seconds), step, phase, rank and findings."""
    rank = rank_of_this_process()
    document = {
        "type": type(error).__name__,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(error)),
        "time_s": time.time(),
        "step": phases.step,
        "phase": phases.now,
        "rank": rank,
        "findings": [finding.to_json() for finding in error.findings] if isinstance(error, TrainwizError) else [],
    }
    write_json_atomic(RunFolder(folder).failure_json(rank), document)


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
