"""The worker against tracers that answer, die, hang, babble and are not there."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from trainwiz.core.tracing.request import TraceAnswer, TraceCache, TraceProblem, TraceResult
from trainwiz.core.tracing.worker import TraceWorker

from tests.core.tracing import echo_tracer
from tests.core.tracing.requests import request
from tests.each import each

Made = Callable[..., TraceWorker]
NO_CACHE = TraceCache(Path(), most=0)
WAIT_S = 400.0


def echo_command() -> list[str]:
    return [sys.executable, echo_tracer.__file__, str(os.getpid())]


def says(*lines: str, then: str = "input()") -> list[str]:
    """A tracer that writes `lines` and then does something else."""
    return [sys.executable, "-c", f"print({chr(10).join(lines)!r}, flush=True); {then}"]


@pytest.fixture
def made() -> Iterator[Callable[..., TraceWorker]]:
    workers: list[TraceWorker] = []

    def make(command: list[str] | None = None, cache: TraceCache = NO_CACHE, **choices: Any) -> TraceWorker:
        workers.append(TraceWorker(cache, command=command or echo_command(), **choices))
        return workers[-1]

    yield make
    for worker in workers:
        worker.close()


def wait_for(condition: Callable[[], bool], limit_s: float = 60.0) -> bool:
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def gone(process: psutil.Process) -> bool:
    """Ended; who adopted it may not have asked for its status yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def code(answer: TraceAnswer) -> str:
    assert isinstance(answer, TraceProblem) and answer.message
    return answer.code


def activations(answer: TraceAnswer) -> int:
    assert isinstance(answer, TraceResult), answer
    return answer.training[0].parts["activations"]


def tracer_of(worker: TraceWorker) -> psutil.Process:
    """The child, once it is there."""
    assert worker._process is not None
    return psutil.Process(worker._process.pid)


def test_it_answers_and_says_how_it_is(made: Made) -> None:
    worker = made()
    worker.start()
    assert activations(worker.ask(request(micro_batch=7), WAIT_S)) == 7
    # A trace that is killed harms no other.
    answer = worker.ask(request("kill"), WAIT_S)
    assert answer == TraceProblem("worker_died", "the trace was killed, possibly out of memory")
    assert worker.state == "ready"
    assert activations(worker.ask(request(), WAIT_S)) == 1
    # One that takes longer than it may is killed.
    assert code(worker.ask(request("sleep 600"), 0.5)) == "timeout"
    assert wait_for(lambda: not tracer_of(worker).children())
    late: list[TraceAnswer] = []
    worker.submit(request("sleep 600"), late.append, timeout_s=0.3)
    assert wait_for(lambda: late == [TraceProblem("timeout", "the trace exceeded 0.3 s and was stopped")])


def test_two_traces_at_most_run_at_once_and_cancelled_ones_are_killed_and_not_answered(made: Made) -> None:
    answers: list[TraceAnswer] = []
    worker = made()
    handles = [worker.submit(request("sleep 600"), answers.append) for _ in range(5)]
    assert wait_for(lambda: worker.state == "ready")
    tracer = tracer_of(worker)
    assert wait_for(lambda: len(tracer.children()) == 2)
    time.sleep(0.3)
    assert len(tracer.children()) == 2
    for handle in [*handles, handles[0]]:
        worker.cancel(handle)
    assert wait_for(lambda: not tracer.children())
    assert activations(worker.ask(request(micro_batch=3), WAIT_S)) == 3
    assert answers == []


def test_a_tracer_that_is_killed_is_started_again(made: Made) -> None:
    worker = made()
    worker.ask(request("print"), WAIT_S)
    answers: list[TraceAnswer] = []
    worker.submit(request("sleep 600"), answers.append)
    tracer = tracer_of(worker)
    assert wait_for(lambda: len(tracer.children()) == 1)
    below = tracer.children()[0]
    tracer.kill()
    assert wait_for(lambda: bool(answers) and gone(below))
    assert (code(answers[0]), worker.state) == ("worker_died", "dead")
    assert activations(worker.ask(request(), WAIT_S)) == 1


def test_a_tracer_that_always_dies_is_started_three_more_times(made: Made, tmp_path: Path) -> None:
    log = tmp_path / "starts"
    worker = made([sys.executable, "-c", f"open({str(log)!r}, 'a').write('x'); raise SystemExit(3)"])
    assert {code(worker.ask(request(), WAIT_S)) for _ in range(7)} == {"worker_died"}
    assert (log.read_text(), worker.state) == ("xxxx", "dead")


@each("command", [
    says("[" * 50_000),
    says('{"ready": true}', '{"answer": 1, "result": {"training": []}}'),
    says('{"ready": true}', '{"answer": 1, "problem": {"code": "odd", "message": "x"}}'),
    [sys.executable, "-c", "print('{\"ready\": true}'); print('x' * 9_000_000); input()"],
])  # fmt: skip
def test_rubbish_is_a_problem(made: Made, command: list[str]) -> None:
    worker = made(command)
    assert code(worker.ask(request(), WAIT_S)) == "worker_died"
    assert worker.state == "dead"


def test_a_tracer_without_torch_or_that_cannot_be_started_says_so(made: Made) -> None:
    worker = made(says('{"missing": "No module named \'torch\' \\u001b[31m"}', then="raise SystemExit(1)"))
    answer = worker.ask(request(), WAIT_S)
    assert answer == TraceProblem("worker_missing", "cannot trace on this machine: No module named 'torch' ")
    for missing in (worker, made(["/no/such/interpreter"])):
        assert code(missing.ask(request(), WAIT_S)) == "worker_missing"
        assert missing.state == "dead"


def test_a_tracer_that_never_gets_ready_or_does_not_read_is_not_waited_for(made: Made) -> None:
    worker, large = made([sys.executable, "-c", "import time; time.sleep(600)"]), "x" * 500_000
    assert code(worker.ask(request(model_config=large), 0.4)) == "timeout"
    assert worker.state == "starting"
    assert activations(made().ask(request(model_config=large, micro_batch=5), WAIT_S)) == 5


def test_answers_are_kept_and_then_need_no_tracer(made: Made, tmp_path: Path) -> None:
    first = made(cache=TraceCache(tmp_path))
    made_then = first.ask(request(micro_batch=9), WAIT_S)
    second = made(["/no/such/interpreter"], cache=TraceCache(tmp_path))
    assert second.ask(request(micro_batch=9), WAIT_S) == made_then
    assert code(second.ask(request(micro_batch=8), WAIT_S)) == "worker_missing"


def test_close_answers_who_waits_and_leaves_no_process(made: Made) -> None:
    worker = made()
    answers: list[TraceAnswer] = []
    asking = threading.Thread(target=lambda: answers.append(worker.ask(request("sleep 600"), 600)))
    asking.start()
    assert wait_for(lambda: worker.state == "ready" and len(tracer_of(worker).children()) == 1)
    family = [tracer_of(worker), *tracer_of(worker).children()]
    worker.close()
    asking.join(60)
    assert [code(answer) for answer in answers] == ["worker_died"]
    assert wait_for(lambda: all(gone(process) for process in family))
    assert code(worker.ask(request(), WAIT_S)) == "worker_died"
    worker.close()


CLIENT = """
import sys
from tests.core.tracing.test_worker import NO_CACHE, echo_command
from tests.core.tracing.requests import request
from trainwiz.core.tracing.worker import TraceWorker
worker = TraceWorker(NO_CACHE, command=echo_command())
worker.ask(request(f"pids {sys.argv[1]}"), 60)
"""


def test_nothing_outlives_a_front_end_that_is_killed(tmp_path: Path) -> None:
    noted = tmp_path / "pids"
    client = subprocess.Popen([sys.executable, "-c", CLIENT, str(noted)], stderr=subprocess.DEVNULL)
    assert wait_for(lambda: noted.exists() and len(noted.read_text().split()) == 2)
    family = [psutil.Process(int(pid)) for pid in noted.read_text().split()]
    client.kill()
    client.wait(60)
    assert wait_for(lambda: all(gone(process) for process in family))
