"""One trace in a process of its own, so that it can be killed and cannot harm the tracer."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from trainwiz.core.estimate.trace.answering import answer, problem
from trainwiz.core.estimate.trace.parent import hold_to
from trainwiz.core.language import tr

FULL_NICENESS = 10
"""A full trace computes for seconds beside the front end and perhaps a training."""
READ_BYTES = 1 << 16


class RunningTrace:
    """A child that traces. `output` becomes readable when it has something to say, or ended."""

    def __init__(self, pid: int, output: int, reap: Callable[[], int]) -> None:
        self.pid = pid
        self.output = output
        self._reap = reap
        self._text = b""

    def read(self) -> dict[str, Any] | None:
        """The answer, once the child has ended; None before."""
        chunk = os.read(self.output, READ_BYTES)
        if chunk:
            self._text += chunk
            return None
        os.close(self.output)
        status = self._reap()
        try:
            document = json.loads(self._text)
        except ValueError:
            return problem("worker_died", _end(status))
        return document if isinstance(document, dict) else problem("worker_died", _end(status))

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.output)
        self._reap()


def _end(status: int) -> str:
    """`status` as subprocess counts: below 0 the signal that ended it."""
    if status == -signal.SIGKILL:
        return tr("the trace was killed, perhaps because memory ran out")
    how = tr("signal {number}", number=-status) if status < 0 else tr("exit status {number}", number=status)
    return tr("the trace ended without an answer ({reason})", reason=how)


def forked_trace(tier: str, values: dict[str, Any], closed: tuple[int, ...]) -> RunningTrace:
    """A copy of this process, with all that it imported; says what it `imported` besides.

    `closed`: descriptors that are not the child's. Raises OSError.
    """
    server = os.getpid()
    output, writer = os.pipe()
    # What is imported is never collected: the copies go on sharing its pages.
    gc.freeze()
    pid = os.fork()
    if pid == 0:
        _trace_and_end(server, tier, values, writer, (*closed, output))
    os.close(writer)
    return RunningTrace(pid, output, lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _trace_and_end(server: int, tier: str, values: dict[str, Any], writer: int, closed: tuple[int, ...]) -> None:
    try:
        hold_to(server)
        for descriptor in closed:
            os.close(descriptor)
        if tier == "full":
            os.nice(FULL_NICENESS)
        before = set(sys.modules)
        said = answer(tier, values, forks=True)
        write_all(
            writer, json.dumps({**said, "imported": [name for name in sys.modules if name not in before]}).encode()
        )
    finally:
        # Never back into the server's code.
        os._exit(0)


def spawned_trace(tier: str, values: dict[str, Any], closed: tuple[int, ...]) -> RunningTrace:
    """A new interpreter that imports everything again: for systems where a fork is not safe. Raises OSError."""
    command = [sys.executable, "-P", "-m", "trainwiz.core.estimate.trace", "--one", "--parent", str(os.getpid())]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdin is not None and process.stdout is not None
    # It reads before it imports anything; one that dies meanwhile shows at its output.
    with contextlib.suppress(OSError), process.stdin:
        process.stdin.write(json.dumps({"tier": tier, "request": values}).encode())
    output = os.dup(process.stdout.fileno())
    process.stdout.close()
    return RunningTrace(process.pid, output, process.wait)


def trace_of_stdin(answers: int) -> None:
    """The other end of `spawned_trace`."""
    asked = json.load(sys.stdin)
    if asked["tier"] == "full":
        os.nice(FULL_NICENESS)
    write_all(answers, json.dumps(answer(asked["tier"], asked["request"])).encode())


def write_all(descriptor: int, text: bytes) -> None:
    while text:
        text = text[os.write(descriptor, text) :]
