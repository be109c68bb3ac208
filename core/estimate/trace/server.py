"""Server: answers requests one line at a time, each traced in a child of its own that can be killed."""

from __future__ import annotations

import importlib
import json
import os
import selectors
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainwiz.core.errors import os_reason
from trainwiz.core.estimate.trace.answering import NEEDED, problem
from trainwiz.core.estimate.trace.children import RunningTrace, write_all
from trainwiz.core.heavy_imports import heavy_imports
from trainwiz.core.language import tr

MOST_AT_ONCE = 2
MOST_IN_FULL = 1
"""So that a trace by layers never waits for a full one."""
READ_BYTES = 1 << 16
STDIN = 0

StartTrace = Callable[[str, dict[str, Any], tuple[int, ...]], RunningTrace]


@dataclass
class Request:
    """One trace that is wanted, or under way."""

    number: int
    tier: str
    values: dict[str, Any]
    limit_s: float
    trace: RunningTrace | None = None
    deadline_s: float = 0.0


class Server:
    """Reads requests from stdin until its end, which is the end of this process and of its children too.

    In: `{"ask": number, "tier", "request", "limit_s"}`, `{"cancel": number}`, `{"ping": 1}`.
    Out: `{"ready": true}`, `{"missing": reason}`, `{"started": number}`,
    `{"answer": number, "result" | "problem": ...}`, `{"pong": 1}`.
    """

    def __init__(
        self,
        answers: int,
        start: StartTrace,
        idle: list[Callable[[], None]] | None = None,
        learn: Callable[[list[str]], Callable[[], None]] | None = None,
    ) -> None:
        """`idle` is done, one by one, while there is nothing else to do. `learn` makes more of it from the names of
        modules that a trace had to import."""
        self._answers = answers
        self._start = start
        self._idle = idle or []
        self._learn = learn
        self._requests: list[Request] = []
        self._unread = b""

    def run(self) -> None:
        self._say(ready=True)
        while self._listen():
            self._kill_late_ones()
            self._start_what_may_run()
        for request in self._running():
            request.trace.kill()  # type: ignore[union-attr]

    def _running(self) -> list[Request]:
        return [request for request in self._requests if request.trace is not None]

    def _listen(self) -> bool:
        """Waits for something to happen; False at the end of stdin."""
        with selectors.PollSelector() as selector:
            selector.register(STDIN, selectors.EVENT_READ)
            for request in self._running():
                selector.register(request.trace.output, selectors.EVENT_READ, request)  # type: ignore[union-attr]
            ready = [key.data for key, _ in selector.select(self._patience_s())]
        if not ready and not self._requests and self._idle:
            self._idle.pop(0)()
            return True
        for request in ready:
            if request is None and not self._read():
                return False
        for request in ready:
            # A cancelled one is gone by now.
            if request is not None and request in self._requests and (said := request.trace.read()) is not None:
                self._requests.remove(request)
                imported = said.pop("imported", [])
                self._say(answer=request.number, **said)
                if imported and self._learn is not None:
                    self._idle.append(self._learn(imported))
        return True

    def _patience_s(self) -> float | None:
        if self._idle and not self._requests:
            return 0.0
        deadlines = [request.deadline_s for request in self._running()]
        return max(0.0, min(deadlines) - time.monotonic()) + 0.01 if deadlines else None

    def _read(self) -> bool:
        chunk = os.read(STDIN, READ_BYTES)
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        for line in lines:
            self._hear(json.loads(line))
        return bool(chunk)

    def _hear(self, message: dict[str, Any]) -> None:
        if "ask" in message:
            self._requests.append(
                Request(message["ask"], message["tier"], message["request"], float(message["limit_s"]))
            )
        elif "cancel" in message:
            for request in [one for one in self._requests if one.number == message["cancel"]]:
                self._drop(request)
        elif "ping" in message:
            self._say(pong=1)

    def _drop(self, request: Request) -> None:
        self._requests.remove(request)
        if request.trace is not None:
            request.trace.kill()

    def _kill_late_ones(self) -> None:
        now = time.monotonic()
        for request in self._running():
            if now >= request.deadline_s:
                self._drop(request)
                text = tr("the trace took longer than {seconds} s and was stopped", seconds=f"{request.limit_s:g}")
                self._say(answer=request.number, **problem("timeout", text))

    def _start_what_may_run(self) -> None:
        """In the order of asking, those by layers first."""
        waiting = [request for request in self._requests if request.trace is None]
        for request in sorted(waiting, key=lambda one: one.tier == "full"):
            running = self._running()
            full = sum(one.tier == "full" for one in running)
            if len(running) >= MOST_AT_ONCE or (request.tier == "full" and full >= MOST_IN_FULL):
                continue
            try:
                request.trace = self._start(request.tier, request.values, self._own_descriptors())
            except OSError as error:
                self._requests.remove(request)
                text = tr("no trace can be started: {reason}", reason=os_reason(error))
                self._say(answer=request.number, **problem("worker_died", text))
                continue
            request.deadline_s = time.monotonic() + request.limit_s
            self._say(started=request.number)

    def _own_descriptors(self) -> tuple[int, ...]:
        return (STDIN, self._answers, *(one.trace.output for one in self._running()))  # type: ignore[union-attr]

    def _say(self, **message: Any) -> None:
        write_all(self._answers, json.dumps(message).encode() + b"\n")


def import_all(answers: int) -> None:
    """What every trace needs, once. What is not installed is said, and ends this process."""
    try:
        with heavy_imports():
            for name in (*NEEDED, "trainwiz.core.estimate.trace.full", "trainwiz.core.estimate.trace.layers"):
                importlib.import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        write_all(answers, json.dumps({"missing": reason}).encode() + b"\n")
        sys.exit(1)
