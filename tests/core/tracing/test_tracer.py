"""The real tracer behind the worker: torch in a child, never in this kind of client."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from trainwiz.core.tracing.request import TraceCache, TraceProblem, TraceResult
from trainwiz.core.tracing.worker import TraceWorker, tracer_command

from tests.core.tracing.requests import REQUEST

pytestmark = pytest.mark.real


LLAMA = {
    "model_type": "llama", "vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 12,
    "num_attention_heads": 4,
}  # fmt: skip


SMALL = replace(REQUEST, model_config=json.dumps(LLAMA), precision="bf16", eval_micro_batch=2)


NO_CACHE = TraceCache(Path(), most=0)


WAIT_S = 400.0


@pytest.fixture(scope="module")
def worker() -> Iterator[TraceWorker]:
    with TraceWorker(NO_CACHE) as made:
        yield made


def test_both_tiers_come_from_one_warm_process(worker: TraceWorker) -> None:
    layers, full = (worker.ask(SMALL, tier, WAIT_S) for tier in ("layers", "full"))
    assert isinstance(layers, TraceResult) and isinstance(full, TraceResult)
    assert (layers.tier, full.tier) == ("layers", "full")
    assert layers.allocated_bytes == pytest.approx(full.allocated_bytes, rel=0.02)
    assert full.reserved_bytes is not None and full.reserved_bytes >= full.allocated_bytes


@pytest.mark.all
def test_a_fork_and_a_new_process_say_the_same(worker: TraceWorker) -> None:
    asked = replace(SMALL, accumulation=2, generation_length=8, beams=2)
    with TraceWorker(NO_CACHE, command=[*tracer_command(), "--no-fork"]) as alone:
        spawned = alone.ask(asked, "layers", WAIT_S)
    forked = worker.ask(asked, "layers", WAIT_S)
    assert isinstance(spawned, TraceResult) and isinstance(forked, TraceResult)
    assert len(forked.evaluation) == 4 and "extrapolated" in forked.note
    assert replace(forked, seconds=spawned.seconds) == spawned


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_trace_that_is_cancelled_leaves_no_fork_of_its_own(worker: TraceWorker) -> None:
    worker.ask(SMALL, "layers", WAIT_S)
    assert worker._line is not None and worker._line._process is not None
    tracer = psutil.Process(worker._line._process.pid)
    # Its versions have 200 and 400 layers.
    slow = {**LLAMA, "model_type": "qwen2_moe", "num_hidden_layers": 1000, "decoder_sparse_step": 200}
    handle = worker.submit(replace(SMALL, model_config=json.dumps(slow)), "layers", lambda _: None)
    wait_for(lambda: len(tracer.children(recursive=True)) >= 2)
    family = tracer.children(recursive=True)
    worker.cancel(handle)
    wait_for(lambda: all(map(ended, family)))


def test_what_cannot_be_built_is_one_sentence(worker: TraceWorker) -> None:
    for tier in ("layers", "full"):
        answer = worker.ask(replace(SMALL, model_config='{"model_type": "no-such-model"}'), tier, WAIT_S)  # type: ignore[arg-type]
        assert isinstance(answer, TraceProblem) and answer.code == "unknown_model"
        assert "\n" not in answer.message and "Traceback" not in answer.message


def test_without_torch_the_answer_says_so(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('No module named torch')")
    with TraceWorker(NO_CACHE, environment={"PYTHONPATH": str(tmp_path)}) as worker:
        answer = worker.ask(SMALL, "layers", WAIT_S)
    assert answer == TraceProblem("worker_missing", "cannot trace on this machine: No module named torch")


CLIENT = """
import json, os, sys
from trainwiz.core.tracing.request import TraceRequest
from trainwiz.core.tracing.request import TraceResult
from trainwiz.core.tracing.worker import TraceWorker
worker = TraceWorker()
answer = worker.ask(TraceRequest.from_json(json.loads(sys.argv[1])), "layers", 120)
heavy = [name for name in ("torch", "transformers", "accelerate", "peft") if name in sys.modules]
print(json.dumps([isinstance(answer, TraceResult), heavy, worker._line._process.pid]), flush=True)
sys.stdin.read()
"""


@pytest.mark.all
def test_a_client_holds_no_torch_and_leaves_no_tracer(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('the folder of the client is not searched')")
    command = [sys.executable, "-P", "-c", CLIENT, json.dumps(SMALL.to_json())]
    client = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdout is not None
    traced, heavy, pid = json.loads(client.stdout.readline())
    assert traced and heavy == []
    tracer = psutil.Process(pid)
    client.kill()
    client.communicate()
    wait_for(lambda: ended(tracer))
