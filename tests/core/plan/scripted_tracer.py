"""A tracer that answers by a script, in a thread of its own: what a worker process does, without its seconds."""

from collections.abc import Callable, Mapping
from threading import Thread

from trainwiz.core.estimate.workload import Moment
from trainwiz.core.tracing.request import Replay, TraceAnswer, TraceRequest, TraceResult

GIB = 2**30
Answering = Callable[[TraceRequest], TraceAnswer | None]


def traced(gib: float, evaluation_gib: float = 0.5) -> TraceResult:
    """A trace with so much at the end of the backward pass, of which a fifth are the states."""
    parts: Mapping[str, float] = {"weights": 0.05, "gradients": 0.05, "optimizer": 0.1, "activations": 0.8}
    moment = Moment("the end of the backward pass", {kind: int(share * gib * GIB) for kind, share in parts.items()})
    held = int(1.05 * moment.bytes)
    fullest = max(moment.bytes, int(evaluation_gib * GIB))
    return TraceResult(
        training=(moment,),
        evaluation=(Moment("an evaluation", {"activations": int(evaluation_gib * GIB)}),),
        parameters=10**6,
        trainable_parameters=10**6,
        flops=1e12,
        moved_bytes=1e9,
        kernels=1000,
        replay=Replay(fullest, held, held, held, fullest),
    )


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
