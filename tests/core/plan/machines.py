"""Machines, configs and a tracer that the tests of the plan share."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Thread
from typing import Any

from trainwiz.core.catalog.models import load_models
from trainwiz.core.config import RunConfig
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.errors import Finding
from trainwiz.core.estimate.workload import Moment
from trainwiz.core.hardware.machine import Libraries, Machine
from trainwiz.core.hardware.read import catalogue_machine
from trainwiz.core.plan.make import make_plan
from trainwiz.core.plan.result import Plan
from trainwiz.core.tracing.request import Replay, TraceAnswer, TraceRequest, TraceResult

GIB = 2**30
CAUSAL: dict[str, Any] = {"model": "qwen2.5-0.5b", "task": "causal-lm"}
PAIRS: dict[str, Any] = {
    "model": "nllb-600m", "task": "seq2seq",
    "data__sources": [{"name": "pairs.tsv", "text_column": "source", "target_column": "target"}],
}  # fmt: skip
CHAT = [{"name": "chat.jsonl", "text_column": "prompt", "target_column": "response"}]
TEXT = [{"name": "text.txt"}]


def machine(gpu: str | None = "RTX 3090", count: int = 1, ram_gib: int = 64, cores: int = 12) -> Machine:
    """A planned machine; without `gpu` it has a CPU only."""
    return catalogue_machine(gpu=gpu, num_gpus=count if gpu else 0, ram_bytes=ram_gib * GIB, cpu_cores=cores)


def real(planned: Machine, **libraries: str) -> Machine:
    """The same machine as if it were this one, with what is installed."""
    return replace(
        planned, hypothetical=False, torch_cuda="12.8", libraries=Libraries(dict(libraries)), disk_free_bytes=500 * GIB
    )


def rows(count: int = 200_000, length: int = 300, exact: bool = True, memory: int = 0) -> DataSummary:
    return DataSummary(rows=count, rows_exact=exact, lengths=(length // 2, length, 2 * length), bytes_in_memory=memory)


def config(model: str = "esm2-150m", **values: Any) -> RunConfig:
    """A request for `model`; keys are paths with "__" for the dot."""
    changes = {key.replace("__", "."): value for key, value in values.items()}
    return RunConfig().with_values({"model.name": model, **changes}, "you")


def plan(here: Machine, request: RunConfig, data: DataSummary | None = None, **more: Any) -> Plan:
    return make_plan(here, request, model=load_models()[request.model.name], data=data, **more)


def finding(made: Plan, code: str) -> Finding:
    """The one finding with this code; the test fails with all codes when it is not there."""
    found = [one for one in made.findings if one.code == code]
    assert len(found) == 1, [one.code for one in made.findings]
    return found[0]


def codes(made: Plan) -> set[str]:
    return {one.code for one in made.findings}


Answering = Callable[[TraceRequest], TraceAnswer | None]


def traced(gib: float, evaluation_gib: float = 0.5) -> TraceResult:
    """A trace with so much at the end of the backward pass, of which a fifth are the states."""
    parts: Mapping[str, float] = {"weights": 0.05, "gradients": 0.05, "optimizer": 0.1, "activations": 0.8}
    moment = Moment("the end of the backward pass", {kind: int(share * gib * GIB) for kind, share in parts.items()})
    held = int(1.05 * moment.bytes)
    fullest = max(moment.bytes, int(evaluation_gib * GIB))
    evaluation = Moment("an evaluation", {"activations": int(evaluation_gib * GIB)})
    counts: dict[str, Any] = {"parameters": 10**6, "trainable_parameters": 10**6}
    replay = Replay(fullest, held, held, held, fullest)
    return TraceResult((moment,), (evaluation,), replay=replay, **counts)


class ScriptedTracer:
    """Answers with `answering(request)`; None is never answered."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering
        self.asked: list[TraceRequest] = []
        self.cancelled: list[int] = []

    def submit(self, request: TraceRequest, on_done: Callable[[TraceAnswer], None]) -> int:
        self.asked.append(request)

        def answer() -> None:
            said = self._answering(request)
            if said is not None:
                on_done(said)

        Thread(target=answer, daemon=True).start()
        return len(self.asked) - 1

    def cancel(self, handle: int) -> None:
        self.cancelled.append(handle)
