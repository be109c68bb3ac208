"""TraceLine: the thread that holds the tracing process, talks with it, and gives it up."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainwiz.core.errors import os_reason
from trainwiz.core.language import tr
from trainwiz.core.text import parse_json, plain_text
from trainwiz.core.tracing.request import LONGEST_MESSAGE, TraceAnswer, TraceProblem, problem_of, result_of

LONGEST_LINE_BYTES = 4 << 20
"""More without a line end is no answer."""
READ_BYTES = 1 << 16


class BrokenTracerError(Exception):
    """The process ended, or says what it should not."""


class TracerProcess:
    """Made in the thread that stays for as long as the process: Linux ends it with that thread.

    It has a session of its own, so that ctrl-C in the terminal is the front end's alone, and `kill`
    reaches all that it started. Raises OSError when it cannot be started.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._pipes = self._process.stdin, self._process.stdout
        self.pid = self._process.pid
        self.input, self.output = (pipe.fileno() for pipe in self._pipes)
        for descriptor in (self.input, self.output):
            os.set_blocking(descriptor, False)
        self.unsent = b""
        self._unread = b""

    def send(self, message: Mapping[str, Any]) -> None:
        """Queues one message and writes what the pipe takes now."""
        self.unsent += json.dumps(message).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        while self.unsent:
            try:
                sent = os.write(self.input, self.unsent)
            except BlockingIOError:
                return
            except OSError:
                # Its end, and its last words, come by its output.
                self.unsent = b""
                return
            self.unsent = self.unsent[sent:]

    def receive(self) -> list[dict[str, Any]]:
        """The messages that are whole by now; BrokenTracerError at the end of the output and for anything else on it."""
        try:
            chunk = os.read(self.output, READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            chunk = b""
        if not chunk:
            raise BrokenTracerError(tr("it exited"))
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        if len(self._unread) > LONGEST_LINE_BYTES:
            raise BrokenTracerError(tr("it wrote an unterminated line"))
        return [_message(line) for line in lines]

    def kill(self) -> None:
        """SIGKILL to it and all of its session, and the end of its pipes. For the second time it does nothing."""
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._process.kill()
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.close()
        # One that hangs in the kernel dies later; nobody waits for it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1.0)


def _message(line: bytes) -> dict[str, Any]:
    try:
        message = parse_json(line)
    except ValueError:
        raise BrokenTracerError(tr("it wrote invalid JSON")) from None
    if not isinstance(message, dict):
        raise BrokenTracerError(tr("it wrote an invalid message"))
    return message


# TraceLine: the thread that holds the tracer: starts it, talks with it, and gives it up.

LineState = Literal["starting", "ready", "dead"]
START_LIMIT_S = 120.0
"""torch and transformers from a cold, slow disk."""
PING_S = 3.0
HANG_S = 15.0
"""A tracer that answers no ping for so long hangs: the traces themselves run in children of it."""
GRACE_S = 5.0
"""The tracer kills a trace at its limit; this much later it is given up from here."""
CLOSE_S = 3.0
MOST_RESTARTS = 3
"""Starts after the first, without an answer between them."""


@dataclass
class _Asked:
    timeout_s: float
    deadline_s: float | None = None
    """Known when the trace has begun."""


class TraceLine:
    """Everything that the thread owns is reached through its inbox alone. `on_answer` is called in it, once a number."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        on_answer: Callable[[int, TraceAnswer], None],
    ) -> None:
        """Raises OSError or RuntimeError where the machine has no pipe or thread to give."""
        self.state: LineState = "starting"
        self._command, self._environment = command, environment
        self._starts_left = MOST_RESTARTS + 1
        self._on_answer = on_answer
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._asked: dict[int, _Asked] = {}
        self._process: TracerProcess | None = None
        self._given_up: TraceProblem | None = None
        self._closing = False
        self._started_s = self._pinged_s = 0.0
        self._silent_since_s: float | None = None
        """Of the first ping that nothing was heard after."""
        self._woken, self._wake = os.pipe()
        self._waking = threading.Lock()
        """Held where the pipe is written to or closed: a closed descriptor may be another file's by then."""
        os.set_blocking(self._wake, False)
        self._thread = threading.Thread(target=self._run, name="trainwiz-tracer", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            os.close(self._woken)
            os.close(self._wake)
            raise

    def start(self) -> None:
        self._post(self._start)

    def ask(self, number: int, message: dict[str, Any], timeout_s: float) -> None:
        self._post(lambda: self._ask(number, message, timeout_s))
        if not self._thread.is_alive():
            self._on_answer(number, TraceProblem("worker_died", tr("the tracer was closed")))

    def cancel(self, number: int) -> None:
        self._post(lambda: self._cancel(number))

    def close(self) -> None:
        """Waits a moment for the end of the process. What was asked is answered with a problem."""
        self._post(lambda: setattr(self, "_closing", True))
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_S)

    def _post(self, act: Callable[[], None]) -> None:
        self._inbox.put(act)
        # A full pipe wakes as well; a closed one has nobody to wake.
        with self._waking, contextlib.suppress(OSError):
            if self._wake >= 0:
                os.write(self._wake, b"x")

    def _run(self) -> None:
        try:
            while not self._closing:
                self._safely(self._wait)
                while not self._inbox.empty():
                    self._safely(self._inbox.get())
                self._safely(self._look_at_the_clock)
        finally:
            self._lose(tr("the tracer was closed"))
            with self._waking:
                os.close(self._wake)
                self._wake = -1
            os.close(self._woken)

    def _safely(self, act: Callable[[], None]) -> None:
        try:
            act()
        except BrokenTracerError as error:
            self._lose(tr("the tracer failed: {reason}", reason=error))

    def _wait(self) -> None:
        """Until something happens; what the process says is heard here."""
        process = self._process
        with selectors.PollSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            if process is not None:
                selector.register(process.output, selectors.EVENT_READ)
                if process.unsent:
                    selector.register(process.input, selectors.EVENT_WRITE)
            ready = {key.fd for key, _ in selector.select(self._patience_s())}
        if self._woken in ready:
            os.read(self._woken, 4096)
        if process is None:
            return
        if process.unsent:
            process.flush()
        if process.output in ready:
            for message in process.receive():
                self._hear(message)
                if self._process is None:
                    return

    def _hear(self, message: dict[str, Any]) -> None:
        self._silent_since_s = None
        if message.get("ready") is True:
            self.state = "ready"
            self._pinged_s = time.monotonic()
        elif isinstance(message.get("missing"), str):
            reason = plain_text(message["missing"], LONGEST_MESSAGE)
            self._given_up = TraceProblem("worker_missing", tr("cannot trace on this machine: {reason}", reason=reason))
            self._lose("")
        elif "started" in message:
            asked = self._asked.get(_number(message["started"]))
            if asked is not None:
                asked.deadline_s = time.monotonic() + asked.timeout_s + GRACE_S
        elif "answer" in message:
            self._hear_answer(_number(message["answer"]), message)
        elif "pong" not in message:
            raise BrokenTracerError(tr("it wrote an invalid message"))

    def _hear_answer(self, number: int, message: dict[str, Any]) -> None:
        try:
            answer: TraceAnswer = (
                result_of(message["result"]) if "result" in message else problem_of(message.get("problem"))
            )
        except ValueError:
            raise BrokenTracerError(tr("it wrote an invalid trace")) from None
        self._starts_left = MOST_RESTARTS
        if self._asked.pop(number, None) is not None:
            self._on_answer(number, answer)

    def _patience_s(self) -> float | None:
        """Seconds until the next deadline; None where there is none."""
        if self._process is None or not self._asked:
            return None
        deadlines = [asked.deadline_s for asked in self._asked.values() if asked.deadline_s is not None]
        starting = self.state == "starting"
        next_s = self._started_s + START_LIMIT_S if starting else min([*deadlines, self._pinged_s + PING_S])
        return max(0.0, next_s - time.monotonic()) + 0.01

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        if self._process is None or not self._asked:
            return
        if self.state == "starting":
            if now > self._started_s + START_LIMIT_S:
                raise BrokenTracerError(tr("it was not ready within {seconds} s", seconds=f"{START_LIMIT_S:.0f}"))
            return
        for number, asked in list(self._asked.items()):
            if asked.deadline_s is not None and now > asked.deadline_s:
                self._cancel(number)
                self._on_answer(number, timeout_problem(asked.timeout_s))
        if self._silent_since_s is not None and now > self._silent_since_s + HANG_S:
            raise BrokenTracerError(tr("it did not respond for {seconds} s", seconds=f"{HANG_S:.0f}"))
        if now >= self._pinged_s + PING_S:
            self._pinged_s = now
            if self._silent_since_s is None:
                self._silent_since_s = now
            self._process.send({"ping": 1})

    def _start(self) -> None:
        if self._process is not None or self._given_up is not None or self._starts_left <= 0:
            return
        self._starts_left -= 1
        try:
            self._process = TracerProcess(self._command, self._environment)
        except (OSError, ValueError) as error:
            reason = os_reason(error) if isinstance(error, OSError) else str(error)
            self._given_up = TraceProblem(
                "worker_missing", tr("the tracer could not be started: {reason}", reason=reason)
            )
            self.state = "dead"
            return
        self.state = "starting"
        self._started_s = time.monotonic()

    def _ask(self, number: int, message: dict[str, Any], timeout_s: float) -> None:
        self._start()
        if self._process is None:
            often = tr("the tracer failed {n} times without a result and will not be restarted", n=MOST_RESTARTS + 1)
            self._on_answer(number, self._given_up or TraceProblem("worker_died", often))
            return
        self._asked[number] = _Asked(timeout_s)
        self._process.send(message)

    def _cancel(self, number: int) -> None:
        if self._asked.pop(number, None) is not None and self._process is not None:
            self._process.send({"cancel": number})

    def _lose(self, reason: str) -> None:
        """The process is gone or is made to go; everything that was asked of it is answered."""
        self.state = "dead"
        process, self._process = self._process, None
        if process is not None:
            process.kill()
        self._silent_since_s = None
        asked, self._asked = self._asked, {}
        for number in asked:
            self._on_answer(number, self._given_up or TraceProblem("worker_died", reason))


def timeout_problem(timeout_s: float) -> TraceProblem:
    return TraceProblem("timeout", tr("the trace exceeded {seconds} s and was stopped", seconds=f"{timeout_s:g}"))


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise BrokenTracerError(tr("it wrote an invalid message"))
    return value
