"""The real tracer behind the worker: torch in a child, never in this kind of client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from trainwiz.core.tracing.request import TraceCache, TraceProblem, TraceResult
from trainwiz.core.tracing.worker import TraceWorker, tracer_command

from tests.core.tracing.requests import REQUEST
from tests.core.tracing.test_worker import gone, tracer_of, wait_for

pytestmark = pytest.mark.real
LLAMA = {
    "model_type": "llama", "vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 8,
    "num_attention_heads": 4,
}  # fmt: skip
SMALL = replace(REQUEST, model_config=json.dumps(LLAMA), precision="bf16", eval_micro_batch=2)
NO_CACHE = TraceCache(Path(), most=0)
WAIT_S = 400.0


@pytest.fixture(scope="module")
def worker() -> Iterator[TraceWorker]:
    with TraceWorker(NO_CACHE) as made:
        yield made


def test_traces_come_from_one_warm_process(worker: TraceWorker) -> None:
    found = worker.ask(replace(SMALL, model_config=json.dumps({**LLAMA, "num_hidden_layers": 2})), WAIT_S)
    assert isinstance(found, TraceResult)
    assert found.replay is not None and found.replay.likely >= found.allocated_bytes
    answer = worker.ask(replace(SMALL, model_config='{"model_type": "no-such-model"}'), WAIT_S)
    assert isinstance(answer, TraceProblem) and answer.code == "unknown_model" and "\n" not in answer.message


@pytest.mark.all
def test_a_fork_and_a_new_process_say_the_same(worker: TraceWorker) -> None:
    asked = replace(SMALL, accumulation=2)
    with TraceWorker(NO_CACHE, command=[*tracer_command(), "--no-fork"]) as alone:
        spawned = alone.ask(asked, WAIT_S)
    forked = worker.ask(asked, WAIT_S)
    assert isinstance(spawned, TraceResult) and isinstance(forked, TraceResult)
    assert len(forked.evaluation) == 2
    assert forked == spawned


def test_a_trace_that_is_cancelled_leaves_no_fork(worker: TraceWorker) -> None:
    worker.start()
    assert wait_for(lambda: worker.state == "ready", WAIT_S)
    tracer = tracer_of(worker)
    slow = {**LLAMA, "num_hidden_layers": 1000}
    handle = worker.submit(replace(SMALL, model_config=json.dumps(slow)), lambda _: None)
    assert wait_for(lambda: bool(tracer.children(recursive=True)), WAIT_S)
    family = tracer.children(recursive=True)
    worker.cancel(handle)
    assert wait_for(lambda: all(map(gone, family)))


def test_without_torch_the_answer_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('No module named torch')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with TraceWorker(NO_CACHE) as worker:
        answer = worker.ask(SMALL, WAIT_S)
    assert answer == TraceProblem("worker_missing", "cannot trace on this machine: No module named torch")
