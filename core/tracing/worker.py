"""TraceWorker: asks a child process for traces. It never raises, never waits longer than it says, and holds no torch."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainwiz.core.errors import os_reason
from trainwiz.core.hardware.install import missing
from trainwiz.core.language import tr
from trainwiz.core.text import parse_json, plain_text
from trainwiz.core.tracing.request import (
    LONGEST_MESSAGE,
    TraceAnswer,
    TraceCache,
    TraceProblem,
    TraceRequest,
    TraceResult,
    problem_of,
)

OnDone = Callable[[TraceAnswer], None]
WorkerState = Literal["starting", "ready", "dead"]
TIMEOUT_S = 60.0
CLOSE_S = 3.0
MOST_RESTARTS = 3
"""Starts after the first, without an answer between them."""
LONGEST_LINE_BYTES = 4 << 20
"""More without a line end is no answer."""
ENVIRONMENT = {
    # Tensors without data need no threads, and none of this may reach the network or a GPU.
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONWARNINGS": "ignore",
}


def tracer_command() -> list[str]:
    """`-P`: a torch.py in the working folder must not stand in for torch."""
    return [sys.executable, "-P", "-m", "trainwiz.core.estimate.trace.server", str(os.getpid())]


class BrokenTracerError(Exception):
    """The process ended, or says what it should not."""


@dataclass(frozen=True, eq=False)
class Handle:
    """One request that was submitted."""

    number: int
    request: TraceRequest
    on_done: OnDone
    limit_s: float


class TraceWorker:
    """One child process, kept warm: it imports torch once and forks for each trace. For several threads at once.

    The child is started by `start` or by the first request, and again by the next request after it
    died, at most MOST_RESTARTS times without an answer between. It ends with `close`, and with this
    process however that ends. Answers are kept in the cache, and taken from it.
    """

    def __init__(self, cache: TraceCache | None = None, *, command: Sequence[str] | None = None) -> None:
        self.state: WorkerState = "starting"
        """`starting` also before the first start; `dead` after the child died, until a request starts it again."""
        self._cache = TraceCache() if cache is None else cache
        self._command = command
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._handles: dict[int, Handle] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._starts_left = MOST_RESTARTS + 1
        self._failure: TraceProblem | None = None
        """Why no child is started any more."""

    def start(self) -> TraceProblem | None:
        """Returns at once; None where a child runs from now on, else why there is none."""
        with self._lock:
            if self._thread is not None or self._failure is not None:
                return self._failure
            if self._command is None and (lacking := missing()):
                text = tr("tracing needs {missing}, which is not installed; see trainwiz doctor", missing=lacking[0])
                return self._give_up(text)
            if not self._starts_left:
                n = MOST_RESTARTS + 1
                often = tr("the tracer failed {n} times without a result and will not be restarted", n=n)
                return TraceProblem("worker_died", often)
            self._starts_left -= 1
            self.state = "starting"
            self._thread = threading.Thread(target=self._serve, name="trainwiz-tracer", daemon=True)
            self._thread.start()
            return None

    def ask(self, request: TraceRequest, timeout_s: float = TIMEOUT_S) -> TraceAnswer:
        """Waits at most `timeout_s` for the answer, starting and queueing included."""
        answers: queue.SimpleQueue[TraceAnswer] = queue.SimpleQueue()
        handle = self.submit(request, answers.put, timeout_s=timeout_s)
        try:
            return answers.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            self.cancel(handle)
        late = tr("the trace exceeded {seconds} s and was stopped", seconds=f"{timeout_s:g}")
        return TraceProblem("timeout", late)

    def submit(self, request: TraceRequest, on_done: OnDone, *, timeout_s: float = TIMEOUT_S) -> Handle:
        """Returns at once. `on_done` gets the answer, now or later in a thread of this worker, unless it is cancelled
        before; it must not wait. `timeout_s` counts from the start of the trace: two are computed at once.
        """
        handle = Handle(next(self._numbers), request, on_done, timeout_s)
        answer: TraceAnswer | None = self._cache.get(request)
        if answer is None:
            with self._lock:
                answer = self.start()
                if answer is None:
                    self._handles[handle.number] = handle
                    self._send(handle)
        if answer is not None:
            on_done(answer)
        return handle

    def cancel(self, handle: Handle) -> None:
        """Its trace is killed, or never started; `on_done` is not called any more."""
        with self._lock:
            if self._handles.pop(handle.number, None) is not None:
                self._send(handle)

    def close(self) -> None:
        """Kill the child; what was not answered is answered with a problem. May be called twice."""
        with self._lock:
            self._failure = self._failure or TraceProblem("worker_died", tr("the tracer was closed"))
            self.state = "dead"
            self._kill()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_S)

    def __enter__(self) -> TraceWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _give_up(self, message: str) -> TraceProblem:
        self.state, self._failure = "dead", self._failure or TraceProblem("worker_missing", message)
        return self._failure

    def _serve(self) -> None:
        """The life of one child, in the thread that made it: Linux ends it with that thread.

        It has a session of its own, so that ctrl-C in the terminal is the front end's alone, and `_kill` reaches all that
        it started.
        """
        reason, process = tr("it exited"), self._made()
        try:
            while process is not None and (line := process.stdout.readline(LONGEST_LINE_BYTES)):  # type: ignore[union-attr]
                self._hear(line)
        except BrokenTracerError as error:
            reason = str(error)
        finally:
            with self._lock:
                self._kill()
                self._process, self._thread, self.state = None, None, "dead"
                handles, self._handles = self._handles, {}
                died = TraceProblem("worker_died", tr("the tracer failed: {reason}", reason=reason))
                problem = self._failure or died
            for handle in handles.values():
                handle.on_done(problem)
            if process is not None:
                # One that hangs in the kernel dies later; nobody waits for it.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=1.0)

    def _made(self) -> subprocess.Popen[bytes] | None:
        """The child; None where it cannot be started, or after `close`."""
        with self._lock:
            if self._failure is not None:
                return None
            try:
                self._process = subprocess.Popen(
                    tracer_command() if self._command is None else list(self._command),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, **ENVIRONMENT},
                    start_new_session=True,
                )
            except OSError as error:
                self._give_up(tr("the tracer could not be started: {reason}", reason=os_reason(error)))
            return self._process

    def _hear(self, line: bytes) -> None:
        """One message of the child. Raises BrokenTracerError for anything else."""
        try:
            message = parse_json(line)
            if message.get("ready") is True:
                with self._lock:
                    self.state = "dead" if self._failure else "ready"
                    for handle in self._handles.values():
                        self._send(handle)
                return
            if "missing" in message:
                reason = plain_text(message["missing"], LONGEST_MESSAGE)
                self._give_up(tr("cannot trace on this machine: {reason}", reason=reason))
                raise BrokenTracerError
            number, found = int(message["answer"]), message.get("result")
            answer: TraceAnswer = problem_of(message["problem"]) if found is None else TraceResult.from_json(found)
        except (ValueError, TypeError, AttributeError, KeyError):
            # A line that has no end is cut, and no JSON either.
            raise BrokenTracerError(tr("it wrote an invalid message")) from None
        with self._lock:
            self._starts_left = MOST_RESTARTS
            asked = self._handles.pop(number, None)
        if asked is not None:
            if isinstance(answer, TraceResult):
                self._cache.put(asked.request, answer)
            asked.on_done(answer)

    def _send(self, handle: Handle) -> None:
        """Tells the child of a request, or that it is not wanted any more. One that is not ready does not read: it is told
        what there is then."""
        if self.state != "ready" or self._process is None or self._process.stdin is None:
            return
        message: dict[str, Any] = {"cancel": handle.number}
        if handle.number in self._handles:
            message = {"ask": handle.number, "request": handle.request.to_json(), "limit_s": handle.limit_s}
        # Of one that is gone its output says so.
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _kill(self) -> None:
        """SIGKILL to the child and all of its session; its end comes by its output."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
