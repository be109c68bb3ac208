"""The tracer: answers requests one line at a time, each traced in a child of its own that can be killed.

Run with the process to end with, and --no-fork for a new interpreter for each trace. The ties to the parent and the pipe for
answers come before the heavy imports.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import multiprocessing
import os
import signal
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

from trainwiz.core.language import chosen_language, tr, use_language
from trainwiz.core.processes import NEVER_USED, heavy_imports, private_stdout
from trainwiz.core.supervise.ties import hold_to
from trainwiz.core.text import plain_text
from trainwiz.core.tracing.request import ProblemCode, TraceRequest

# From a request's JSON to the JSON of its answer. Whatever goes wrong becomes a problem in one sentence.

LONGEST_REASON = 200


def answer(values: dict[str, Any]) -> dict[str, Any]:
    """`{"result": ...}` or `{"problem": {"code", "message"}}`."""
    from trainwiz.core.estimate.trace.replay import trace_full
    from trainwiz.core.estimate.trace.step import CannotTrace

    try:
        return {"result": trace_full(TraceRequest.from_json(values)).to_json()}
    except CannotTrace as error:
        return problem(error.code, error.message)
    except MemoryError:
        return problem("worker_died", tr("the trace needs more RAM than this machine has free"))
    except Exception as error:  # noqa: BLE001 - a model of any kind fails in any way
        reason = plain_text(str(error).strip().partition("\n")[0], LONGEST_REASON) or tr("no reason given")
        said = f"{type(error).__name__}: {reason}"
        return problem("unsupported", tr("this model or setting cannot be traced ({reason})", reason=said))


def problem(code: ProblemCode, message: str) -> dict[str, Any]:
    return {"problem": {"code": code, "message": message}}


NICENESS = 10
"""A trace computes for seconds beside the front end and perhaps a training."""


def _compute(parent: int, writer: Connection, values: dict[str, Any]) -> None:
    """The life of a child."""
    hold_to(parent)
    use_language(chosen_language(None, os.environ))
    os.nice(NICENESS)
    writer.send(answer(values))


MOST_AT_ONCE = 2
STDIN = 0
READ_BYTES = 1 << 16


@dataclass
class Request:
    number: int
    values: dict[str, Any]
    limit_s: float
    process: Any = None
    """The child, once it runs: of multiprocessing, whose kinds have no common type."""
    output: Connection | None = None
    """Becomes readable when there is a result, or none any more."""
    deadline_s: float = 0.0

    def start(self, kind: Literal["fork", "spawn"]) -> None:
        context: Any = multiprocessing.get_context(kind)
        self.output, writer = context.Pipe(duplex=False)
        # What is imported is never collected: forks go on sharing its pages.
        gc.freeze()
        self.process = context.Process(target=_compute, args=(os.getpid(), writer, self.values))
        with writer:
            self.process.start()
        self.deadline_s = time.monotonic() + self.limit_s

    def result(self) -> dict[str, Any]:
        """Of a child that wrote or ended."""
        assert self.output is not None
        with contextlib.suppress(EOFError, OSError):
            found: dict[str, Any] = self.output.recv()
            return found
        self.process.join()
        if self.process.exitcode == -signal.SIGKILL:
            return problem("worker_died", tr("the trace was killed, possibly out of memory"))
        how = tr("exit code {number}", number=self.process.exitcode)
        return problem("worker_died", tr("the trace ended without a result ({reason})", reason=how))

    def kill(self) -> None:
        if self.process is not None and self.output is not None:
            self.process.kill()
            self.process.join()
            self.output.close()


class Server:
    """Reads requests from stdin until its end, which is the end of this process and of its children too.

    In: `{"ask": number, "request", "limit_s"}`, `{"cancel": number}`.
    Out: `{"ready": true}`, `{"missing": reason}`, `{"answer": number, "result" | "problem": ...}`.
    """

    def __init__(self, answers: int, kind: Literal["fork", "spawn"] = "fork") -> None:
        """`kind`: "fork", a copy of this process with all that it imported, or "spawn", a new interpreter for systems where
        a fork is not safe."""
        self._answers = os.fdopen(answers, "wb")
        self._kind = kind
        self._requests: list[Request] = []
        self._unread = b""

    def run(self) -> None:
        self.say(ready=True)
        try:
            while self._listen():
                self._start_what_may_run()
        finally:
            for request in self._requests:
                request.kill()

    def say(self, **message: Any) -> None:
        self._answers.write(json.dumps(message).encode() + b"\n")
        self._answers.flush()

    def _listen(self) -> bool:
        """Waits for something to happen; False at the end of stdin."""
        outputs = {request.output: request for request in self._requests if request.output is not None}
        deadlines = [request.deadline_s for request in outputs.values()]
        patience_s = max(0.0, min(deadlines) - time.monotonic()) + 0.01 if deadlines else None
        ready = wait([STDIN, *outputs], patience_s)
        if STDIN in ready and not self._read():
            return False
        for output, request in outputs.items():
            if request not in self._requests:
                continue  # cancelled
            if output in ready:
                self._finish(request, request.result())
            elif time.monotonic() >= request.deadline_s:
                text = tr("the trace exceeded {seconds} s and was stopped", seconds=f"{request.limit_s:g}")
                self._finish(request, problem("timeout", text))
        return True

    def _finish(self, request: Request, said: dict[str, Any] | None) -> None:
        self._requests.remove(request)
        request.kill()
        if said is not None:
            self.say(answer=request.number, **said)

    def _read(self) -> bool:
        chunk = os.read(STDIN, READ_BYTES)
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        for message in map(json.loads, lines):
            if "ask" in message:
                self._requests.append(Request(message["ask"], message["request"], float(message["limit_s"])))
            for request in [one for one in self._requests if one.number == message.get("cancel")]:
                self._finish(request, None)
        return bool(chunk)

    def _start_what_may_run(self) -> None:
        waiting = [request for request in self._requests if request.output is None]
        for request in waiting[: max(0, MOST_AT_ONCE + len(waiting) - len(self._requests))]:
            request.start(self._kind)


def main() -> None:
    use_language(chosen_language(None, os.environ))
    hold_to(int(sys.argv[1]))
    # Where memory runs out, Linux shall end a preview before anything else (proc_pid_oom_score_adj(5)).
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("900", encoding="ascii")
    forks = sys.platform == "linux" and "--no-fork" not in sys.argv
    server = Server(private_stdout(), "fork" if forks else "spawn")
    try:
        # What every trace needs, once.
        if forks:
            with heavy_imports(NEVER_USED):
                for name in ("torch", "transformers", "accelerate", "peft", "trainwiz.core.estimate.trace.replay"):
                    importlib.import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        server.say(missing=str(error).strip().partition("\n")[0] or type(error).__name__)
        sys.exit(1)
    server.run()


if __name__ == "__main__":
    main()
