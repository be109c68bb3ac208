"""TraceWorker: asks a child process for traces. It never raises, never waits longer than it says, and holds no torch."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from trainwiz.core.hardware.install import missing
from trainwiz.core.language import tr
from trainwiz.core.tracing.line import LineState, TraceLine, timeout_problem
from trainwiz.core.tracing.request import TraceAnswer, TraceCache, TraceProblem, TraceRequest, TraceResult, TraceTier

OnDone = Callable[[TraceAnswer], None]
TIMEOUT_S = 60.0
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
    return [sys.executable, "-P", "-m", "trainwiz.core.estimate.trace", "--parent", str(os.getpid())]


@dataclass(eq=False)
class Handle:
    """One request that was submitted."""

    number: int
    request: TraceRequest
    tier: TraceTier
    on_done: OnDone = field(repr=False)


class TraceWorker:
    """One child process, kept warm: it imports torch once and forks for each trace. For several threads at once.

    The child is started by `start` or by the first request, and again by the next request after it
    died, at most MOST_RESTARTS times without an answer between. It ends with `close`, and with this
    process however that ends. Answers are kept in the cache, and taken from it.
    """

    def __init__(
        self,
        cache: TraceCache | None = None,
        *,
        command: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Without a cache, the user's own. `environment` is added to that of this process."""
        self._cache = TraceCache() if cache is None else cache
        self._command, self._is_ours = tracer_command() if command is None else command, command is None
        self._environment = {**os.environ, **ENVIRONMENT, **(environment or {})}
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._handles: dict[int, Handle] = {}
        self._line: TraceLine | None = None
        self._failure: TraceProblem | None = None

    @property
    def state(self) -> LineState:
        """`starting` also before the first start; `dead` after the child died, until a request starts it again."""
        return "dead" if self._failure is not None else "starting" if self._line is None else self._line.state

    def start(self) -> None:
        """Start the child; returns at once."""
        line = self._open()
        if line is not None:
            line.start()

    def ask(self, request: TraceRequest, tier: TraceTier, timeout_s: float = TIMEOUT_S) -> TraceAnswer:
        """Waits at most `timeout_s` for the answer, starting and queueing included."""
        answered = threading.Event()
        answers: list[TraceAnswer] = []

        def keep(answer: TraceAnswer) -> None:
            answers.append(answer)
            answered.set()

        handle = self.submit(request, tier, keep, timeout_s=timeout_s)
        if not answered.wait(max(0.0, timeout_s)):
            self.cancel(handle)
        return answers[0] if answers else timeout_problem(timeout_s)

    def submit(
        self, request: TraceRequest, tier: TraceTier, on_done: OnDone, *, timeout_s: float = TIMEOUT_S
    ) -> Handle:
        """Returns at once. `on_done` gets the answer, now or later in a thread of this worker, unless it is cancelled
        before; it must not wait.

        `timeout_s` counts from the start of the trace: two are computed at once, one of them in full
        at most.
        """
        handle = Handle(next(self._numbers), request, tier, on_done)
        with self._lock:
            self._handles[handle.number] = handle
        known = self._cache.get(request, tier)
        if known is not None:
            self._deliver(handle.number, known)
        elif (line := self._open()) is None:
            self._deliver(handle.number, self._failure or TraceProblem("worker_died", tr("the tracer was closed")))
        else:
            message = {"ask": handle.number, "tier": tier, "request": request.to_json(), "limit_s": timeout_s}
            line.ask(handle.number, message, timeout_s)
        return handle

    def cancel(self, handle: Handle) -> None:
        """Its trace is killed, or never started; `on_done` is not called any more."""
        with self._lock:
            there = self._handles.pop(handle.number, None)
            line = self._line
        if there is not None and line is not None:
            line.cancel(handle.number)

    def close(self) -> None:
        """Kill the child; what was not answered is answered with a problem. May be called twice."""
        with self._lock:
            self._failure = self._failure or TraceProblem("worker_died", tr("the tracer was closed"))
            line, self._line = self._line, None
        if line is not None:
            line.close()
        for number in list(self._handles):
            # Asked while the line was closing, or of a line that did not end in time.
            self._deliver(number, TraceProblem("worker_died", tr("the tracer was closed")))

    def __enter__(self) -> TraceWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> TraceLine | None:
        """The line to the child, made when it is first needed; None after `close` and where it cannot be made."""
        with self._lock:
            if self._line is None and self._failure is None and self._is_ours and (lacking := missing()):
                text = tr("tracing needs {missing}, which is not installed; see trainwiz doctor", missing=lacking[0])
                self._failure = TraceProblem("worker_missing", text)
            if self._line is None and self._failure is None:
                try:
                    self._line = TraceLine(self._command, self._environment, self._on_answer)
                except (OSError, RuntimeError) as error:
                    self._failure = TraceProblem(
                        "worker_missing", tr("the tracer could not be started: {reason}", reason=error)
                    )
            return None if self._failure is not None else self._line

    def _on_answer(self, number: int, answer: TraceAnswer) -> None:
        handle = self._handles.get(number)
        if handle is not None and isinstance(answer, TraceResult):
            self._cache.put(handle.request, handle.tier, answer)
        self._deliver(number, answer)

    def _deliver(self, number: int, answer: TraceAnswer) -> None:
        with self._lock:
            handle = self._handles.pop(number, None)
        if handle is not None:
            handle.on_done(answer)
