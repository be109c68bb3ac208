"""TraceRequest: everything that the memory of one training process depends on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from trainwiz.core.estimate.workload import HALF, Workload

TraceTier = Literal["layers", "full"]
"""`layers` traces shallow versions of the model and extends them; `full` all of it, with the allocator replayed."""
MOST_ACCUMULATION = 2
"""More micro-batches add nothing: the second already meets the gradients of the first."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One process, before strategies share its states out (core/estimate/memory.py does that). Hashable; made of JSON values.

    Lengths are in tokens, sizes in sequences.
    """

    model_config: str
    """Hugging Face config as JSON with sorted keys."""
    task: str
    micro_batch: int
    length: int
    target_length: int
    accumulation: int
    precision: str
    half_weights: bool
    """Weights and gradients themselves are held in the half format (DeepSpeed, bf16-true, a LoRA base)."""
    attention: str
    checkpointing: bool
    optimizer: str
    lora_rank: int
    lora_targets: tuple[str, ...]
    lora_dropout: bool
    loss_chunk: int | None
    label_smoothing: bool
    clipping: bool
    eval_micro_batch: int
    beams: int
    generation_length: int
    device: str
    """ "cuda" is imitated; "cpu" and "mps" are traced as they are."""
    deepspeed: bool = False
    """DeepSpeed holds and computes everything in the half format by itself, without autocast, adapters too."""
    padded: bool = True
    """Rows of a batch are filled up to the longest, so that models make a mask."""

    @classmethod
    def of(cls, work: Workload) -> TraceRequest | None:
        """None where there is no config to build a model from."""
        if not work.model_config:
            return None
        return cls(
            model_config=work.model_config,
            task=work.task,
            micro_batch=work.micro_batch,
            length=work.length,
            target_length=work.target_length if work.architecture.kind == "encoder-decoder" else 0,
            accumulation=min(work.accumulation, MOST_ACCUMULATION),
            precision=work.precision,
            half_weights=work.formats.weights == HALF,
            attention=work.attention,
            checkpointing=work.checkpointing,
            optimizer=work.optimizer,
            lora_rank=work.lora_rank,
            lora_targets=work.lora_targets,
            lora_dropout=work.lora_dropout,
            loss_chunk=work.loss_chunk,
            label_smoothing=work.label_smoothing,
            clipping=work.clipping,
            eval_micro_batch=work.eval_micro_batch,
            beams=work.beams if work.generation_length else 1,
            generation_length=work.generation_length,
            device=work.device,
            deepspeed=work.deepspeed,
            padded=work.padded,
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "lora_targets": list(self.lora_targets)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TraceRequest:
        return cls(**{**values, "lora_targets": tuple(values["lora_targets"])})

    def key(self, versions: dict[str, str]) -> str:
        """Name of its place in the cache: a digest of the request and of the libraries that are traced."""
        text = json.dumps([self.to_json(), versions], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]
