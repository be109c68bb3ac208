"""What a trace says: the fullest point of each phase, and what the step computes."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from trainwiz.core.estimate.moment import Moment
from trainwiz.core.language import tr
from trainwiz.core.tracing.request import TraceTier

_TRACED = re.compile(r"layers (\S+) and (\S+) of (\d+)")
ProblemCode = Literal[
    "unknown_model", "remote_code", "invalid_config", "unsupported", "timeout", "worker_died", "worker_missing"
]


@dataclass(frozen=True, slots=True)
class TraceResult:
    """Bytes of one process before strategies share its states out. Moments are in the order of the step."""

    tier: TraceTier
    training: tuple[Moment, ...]
    """The fullest point of each phase of the second optimizer step (states exist by then)."""
    evaluation: tuple[Moment, ...]
    """Likewise of evaluating, and of generating; empty where nothing is held out."""
    reserved_bytes: int | None
    """Peak of the caching allocator's segments over training and evaluation, replayed; None for the layered tier."""
    parameters: int
    trainable_parameters: int
    flops: float
    """Of the matrix products of one micro-batch, forward, recomputation and backward."""
    moved_bytes: float
    """Bytes that the operations of one micro-batch read and write."""
    kernels: int
    """Operations of one micro-batch."""
    seconds: float
    """What the trace took."""
    versions: dict[str, str] = field(default_factory=dict)
    note: str = ""
    """What a reader must know: "layers 2 and 4 of 33, extended". Kept in the cache; `note_words` is what people read."""

    @property
    def allocated_bytes(self) -> int:
        """Peak of training."""
        return max(moment.bytes for moment in self.training)

    @property
    def note_words(self) -> str:
        """`note` in the chosen language."""
        stacks = [
            tr("layers {first} and {second} of {layers}", first=first, second=second, layers=layers)
            for first, second, layers in _TRACED.findall(self.note)
        ]
        return tr("{stacks}, extended", stacks=tr(" and ").join(stacks)) if stacks else tr(self.note)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TraceResult:
        moments = {key: tuple(Moment(**moment) for moment in values[key]) for key in ("training", "evaluation")}
        return cls(**{**values, **moments})


@dataclass(frozen=True, slots=True)
class TraceProblem:
    """Why there is no trace, in one sentence for the user."""

    code: ProblemCode
    message: str


TraceAnswer = TraceResult | TraceProblem
