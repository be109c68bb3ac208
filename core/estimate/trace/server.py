"""Answers requests one line at a time, each traced in a child of its own that can be killed."""

from __future__ import annotations

import gc
import importlib
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal

from trainwiz.core.errors import os_reason
from trainwiz.core.language import chosen_language, tr, use_language
from trainwiz.core.processes import NEVER_USED, heavy_imports
from trainwiz.core.supervise.ties import hold_to
from trainwiz.core.text import plain_text
from trainwiz.core.tracing.request import ProblemCode, TraceRequest

# From a request's JSON to the JSON of its answer. Whatever goes wrong becomes a problem in one sentence.

LONGEST_REASON = 200
NEEDED = ("torch", "transformers", "accelerate", "peft")


def answer(values: dict[str, Any]) -> dict[str, Any]:
    """`{"result": ...}` or `{"problem": {"code", "message"}}`."""
    from trainwiz.core.estimate.trace.build import CannotTrace
    from trainwiz.core.estimate.trace.replay import trace_full

    try:
        return {"result": trace_full(TraceRequest.from_json(values)).to_json()}
    except CannotTrace as error:
        return problem(error.code, error.message)
    except MemoryError:
        return problem("worker_died", tr("the trace needs more RAM than this machine has free"))
    except ModuleNotFoundError as error:
        code: ProblemCode = "worker_missing" if error.name in NEEDED else "unsupported"
        return problem(code, tr("cannot trace on this machine: {name} is not installed", name=error.name))
    except Exception as error:  # noqa: BLE001 - a model of any kind fails in any way
        reason = plain_text(str(error).strip().partition("\n")[0], LONGEST_REASON) or tr("no reason given")
        said = f"{type(error).__name__}: {reason}"
        return problem("unsupported", tr("this model or setting cannot be traced ({reason})", reason=said))


def problem(code: ProblemCode, message: str) -> dict[str, Any]:
    return {"problem": {"code": code, "message": message}}


NICENESS = 10
"""A trace computes for seconds beside the front end and perhaps a training."""
READ_BYTES = 1 << 16


class Child:
    """A process that traces a request, and ends with this one. `kind`: "fork", a copy of this process with all that it
    imported, or "spawn", a new interpreter for systems where a fork is not safe. Raises OSError."""

    def __init__(self, kind: Literal["fork", "spawn"], values: dict[str, Any]) -> None:
        # Of either kind: typeshed gives a Process to each of them and not to their base.
        context: Any = multiprocessing.get_context(kind)
        pipe: tuple[Connection, Connection] = context.Pipe(duplex=False)
        self.output, writer = pipe
        """Becomes readable when there is a result, or none any more."""
        # What is imported is never collected: forks go on sharing its pages.
        gc.freeze()
        self._process: BaseProcess = context.Process(target=_compute, args=(os.getpid(), writer, values))
        with writer:
            self._process.start()

    def result(self) -> tuple[dict[str, Any] | None, int]:
        """Waits for (the answer, None without one; the exit code as subprocess counts it)."""
        try:
            found = self.output.recv()
        except (EOFError, OSError):
            found = None
        self._end()
        return found, self._process.exitcode or 0

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.join()
        self.output.close()


def _compute(parent: int, writer: Connection, values: dict[str, Any]) -> None:
    hold_to(parent)
    use_language(chosen_language(None, os.environ))
    os.nice(NICENESS)
    writer.send(answer(values))


def _how_it_ended(status: int) -> str:
    if status == -signal.SIGKILL:
        return tr("the trace was killed, possibly out of memory")
    how = tr("signal {number}", number=-status) if status < 0 else tr("exit code {number}", number=status)
    return tr("the trace ended without a result ({reason})", reason=how)


# What the tracer does while nobody asks: first traces, so that those that are forked off later need not begin cold.

IdleWork = Callable[[], object]
SMALL = TraceRequest(
    model_config='{"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, '
    '"num_hidden_layers": 8, "num_attention_heads": 2}',
    task="causal-lm", micro_batch=2, length=16, target_length=0, accumulation=1, precision="bf16", half_weights=False,
    attention="sdpa", checkpointing=False, optimizer="adamw_torch_fused", lora_rank=0, lora_targets=(),
    lora_dropout=False, loss_chunk=None, label_smoothing=False, clipping=True, eval_micro_batch=2,
    device="cuda",
)  # fmt: skip


def first_traces() -> list[IdleWork]:
    """Of a model that nobody waits for: torch and transformers fill their caches.

    None where torch was built for devices, even if it is to see none here: its autograd starts threads, after which no fork
    may compute gradients (seen with torch 2.11 for CUDA 13).
    """
    import torch

    return [] if torch.accelerator.current_accelerator() is not None else [partial(answer, SMALL.to_json())]


MOST_AT_ONCE = 2
STDIN = 0


@dataclass
class Request:
    number: int
    values: dict[str, Any]
    limit_s: float
    trace: Child | None = None
    deadline_s: float = 0.0


class Server:
    """Reads requests from stdin until its end, which is the end of this process and of its children too.

    In: `{"ask": number, "request", "limit_s"}`, `{"cancel": number}`.
    Out: `{"ready": true}`, `{"missing": reason}`, `{"answer": number, "result" | "problem": ...}`.
    """

    def __init__(self, answers: int, *, forks: bool = True, idle: Iterable[IdleWork] = ()) -> None:
        """`idle` is done, one by one, while there is nothing else to do."""
        self._answers = answers
        self._forks = forks
        self._idle = list(idle)
        self._requests: list[Request] = []
        self._unread = b""

    def run(self) -> None:
        self._say(ready=True)
        try:
            while self._listen():
                self._kill_late_ones()
                self._start_what_may_run()
        finally:
            for _, trace in self._running():
                trace.kill()

    def _running(self) -> list[tuple[Request, Child]]:
        return [(request, request.trace) for request in self._requests if request.trace is not None]

    def _listen(self) -> bool:
        """Waits for something to happen; False at the end of stdin."""
        running = self._running()
        ready = wait([STDIN, *(trace.output for _, trace in running)], self._patience_s())
        if not ready and not self._requests and self._idle:
            self._idle.pop(0)()
            return True
        if STDIN in ready and not self._read():
            return False
        for request, trace in running:
            # A cancelled one is gone by now.
            if trace.output in ready and request in self._requests:
                self._requests.remove(request)
                said, status = trace.result()
                self._say(answer=request.number, **(said or problem("worker_died", _how_it_ended(status))))
        return True

    def _patience_s(self) -> float | None:
        if self._idle and not self._requests:
            return 0.0
        deadlines = [request.deadline_s for request, _ in self._running()]
        return max(0.0, min(deadlines) - time.monotonic()) + 0.01 if deadlines else None

    def _read(self) -> bool:
        chunk = os.read(STDIN, READ_BYTES)
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        for line in lines:
            self._hear(json.loads(line))
        return bool(chunk)

    def _hear(self, message: dict[str, Any]) -> None:
        if "ask" in message:
            self._requests.append(Request(message["ask"], message["request"], float(message["limit_s"])))
        elif "cancel" in message:
            for request in [request for request in self._requests if request.number == message["cancel"]]:
                self._drop(request)

    def _drop(self, request: Request) -> None:
        self._requests.remove(request)
        if request.trace is not None:
            request.trace.kill()

    def _kill_late_ones(self) -> None:
        now = time.monotonic()
        for request, _ in self._running():
            if now >= request.deadline_s:
                self._drop(request)
                text = tr("the trace exceeded {seconds} s and was stopped", seconds=f"{request.limit_s:g}")
                self._say(answer=request.number, **problem("timeout", text))

    def _start_what_may_run(self) -> None:
        for request in [one for one in self._requests if one.trace is None]:
            if len(self._running()) >= MOST_AT_ONCE:
                return
            try:
                request.trace = Child("fork" if self._forks else "spawn", request.values)
            except OSError as error:
                self._requests.remove(request)
                text = tr("cannot start a trace: {reason}", reason=os_reason(error))
                self._say(answer=request.number, **problem("worker_died", text))
                continue
            request.deadline_s = time.monotonic() + request.limit_s

    def _say(self, **message: Any) -> None:
        write_all(self._answers, json.dumps(message).encode() + b"\n")


def write_all(descriptor: int, text: bytes) -> None:
    while text:
        text = text[os.write(descriptor, text) :]


def import_all(answers: int) -> None:
    """What every trace needs, once. What is not installed is said, and ends this process."""
    try:
        with heavy_imports(NEVER_USED):
            for name in (*NEEDED, "trainwiz.core.estimate.trace.replay"):
                importlib.import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        write_all(answers, json.dumps({"missing": reason}).encode() + b"\n")
        sys.exit(1)
