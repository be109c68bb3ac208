"""Starting the launcher below the keeper."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from trainwiz.core.run.folder import RUN_MARK_VARIABLE, RunFolder
from trainwiz.core.run.processid import this_process
from trainwiz.core.supervise.lifeline import KEEPER_VARIABLE, keeper_value
from trainwiz.core.supervise.linux import die_with_parent
from trainwiz.core.supervise.order import StartOrder


def training_environment(order: StartOrder) -> dict[str, str]:
    """The environment of the launcher: the keeper's own, the run's variables, and the marks."""
    environment = {**os.environ, **order.environment}
    # The log is followed while it is written; a crash in native code leaves its stack there.
    environment["PYTHONUNBUFFERED"] = environment["PYTHONFAULTHANDLER"] = "1"
    # ninja and other tools that DeepSpeed compiles with lie beside the interpreter.
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    environment[RUN_MARK_VARIABLE] = order.mark
    environment[KEEPER_VARIABLE] = keeper_value(this_process())
    return environment


def spawn_launcher(run: RunFolder, order: StartOrder, checkpoint: Path | None) -> subprocess.Popen[bytes]:
    """Start the launcher in the run folder, its output appended to train.log. Raises OSError.

    It dies with the keeper (SIGKILL), and takes signals in their default way even where the front
    end was started with some ignored (nohup, a shell's `&`).
    """
    command = [*order.command, *(["--resume", str(checkpoint)] if checkpoint is not None else [])]
    command += ["--accept", ",".join(order.accept)] if order.accept else []
    keeper = os.getpid()

    def in_child() -> None:
        die_with_parent(keeper)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])

    with run.train_log.open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=run.path,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=training_environment(order),
            preexec_fn=in_child,
        )


def mark_log(run: RunFolder, number: int, checkpoint: Path | None) -> int:
    """Write the line that separates attempts in train.log; returns the byte where this attempt begins."""
    origin = f"resumes from {checkpoint.name}" if checkpoint else "starts from the beginning"
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    with run.train_log.open("a", encoding="utf-8") as log:
        offset = log.tell()
        log.write(f"=== trainwiz: attempt {number}, {when}, {origin} ===\n")
    return offset
