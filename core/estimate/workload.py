"""Workload: what a step computes; Moment: what is allocated at one point of it; what is said of memory and time."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from trainwiz.core.estimate.architecture import (
    Architecture,
    Block,
    is_table,
    is_target,
    module_parameters,
)
from trainwiz.core.language import mark, tr

KINDS = ("weights", "gradients", "optimizer", "activations", "logits", "temporary")

LAYER = mark("the backward pass of layer {number}")
NUMBERED = re.compile(r"the backward pass of layer (\d+)")


def layer_name(number: int) -> str:
    """The name of the moment at a layer; code compares names, so they are English."""
    return LAYER.format(number=number)


def moment_text(name: str) -> str:
    layer = NUMBERED.fullmatch(name)
    return tr(LAYER, number=layer[1]) if layer else tr(name)


@dataclass(frozen=True, slots=True)
class Moment:
    """What is allocated at one point of the step, in bytes by kind."""

    name: str
    parts: dict[str, int]

    @property
    def bytes(self) -> int:
        return sum(self.parts.values())


MemoryVerdict = Literal["fits", "tight", "does_not_fit"]


TimeVerdict = Literal["plausible", "implausible", "impossible", "idle"]


Tier = Literal["analytic", "traced", "measured"]


HALF = 2
SINGLE = 4
RAREST = 1 / 128
"""Chance of the shortest step that is thought of."""


@dataclass(frozen=True, slots=True)
class Formats:
    """Bytes of one element of each kind of tensor.

    Autocast keeps fp32 weights and an fp32 residual stream and computes matrix products in half
    precision; DeepSpeed and `bf16-true` hold the weights themselves in half precision.
    """

    weights: int
    compute: int
    autocast: bool
    residual: int
    """The stream between the blocks: half + fp32 is fp32 under autocast."""
    adapters: int = SINGLE
    """LoRA's own weights."""
    products: int = 0
    """What frozen matrix products hand out: in fp32 where fp32 norms feed a packed layer, which gives back what it is
    given; else as they compute."""

    @property
    def norm(self) -> int:
        return SINGLE if self.autocast else self.compute


@cache
def _formats(precision: str, deepspeed: bool, lora: bool, post_norm: bool, quantized: bool) -> Formats:
    if precision in ("fp32", "tf32"):
        plain = Formats(SINGLE, SINGLE, autocast=False, residual=SINGLE)
    elif precision == "bf16-true" or deepspeed:
        plain = Formats(HALF, HALF, autocast=False, residual=HALF, adapters=HALF if deepspeed else SINGLE)
    else:
        # LoRA's frozen base is held in half precision; a norm after the sum makes the stream fp32 again.
        residual = HALF if lora and not post_norm and not quantized else SINGLE
        plain = Formats(HALF if lora else SINGLE, HALF, autocast=True, residual=residual)
    return replace(plain, products=SINGLE if quantized and plain.autocast else plain.compute)


@dataclass(frozen=True, slots=True)
class Workload:
    """One process of one run. Everything is resolved; lengths are in tokens."""

    architecture: Architecture
    micro_batch: int
    length: int
    target_length: int
    accumulation: int = 1
    world_size: int = 1
    precision: str = "fp32"
    attention: str = "sdpa"
    checkpointing: bool = False
    optimizer: str = "adamw_torch_fused"
    base_precision: str = "none"
    """Of the frozen base of adapters: "nf4", "int8", or "none" for that of the run."""
    strategy: str = "single"
    offload: str = "none"
    lora_rank: int = 0
    lora_targets: tuple[str, ...] = ()
    lora_dropout: bool = False
    dora: bool = False
    modules_to_save: tuple[str, ...] = ()
    """Modules that are trained whole beside the adapters."""
    loss_chunk: int | None = None
    device: str = "cuda"
    eval_micro_batch: int = 0
    """Sequences that are evaluated at once; 0 where nothing is held out."""
    beams: int = 1
    generation_length: int = 0
    """Longest text that evaluation generates; 0 where it generates none."""
    task: str = "causal-lm"
    model_config: str = ""
    """The Hugging Face config that is trained, as JSON with sorted keys: what a trace is built from. Empty: no trace."""
    label_smoothing: bool = False
    clipping: bool = True
    """Whether the gradients' norm is taken before the step."""
    capability: str = ""
    """CUDA compute capability of the device, "9.0" say; empty where it is not known."""
    padded: bool = True
    """Rows of a batch are filled up to the longest, so that models make a mask; False where texts are joined and cut."""
    packed: bool = False
    """Rows of a micro-batch lie end to end (data.packing); apart from FlashAttention each token is computed with all."""
    row_lengths: tuple[int, ...] = ()
    """Quantiles of the rows' lengths, the first of 0 and the last of 1; empty where they are not known."""
    longest_of: int = 0
    """Of so many rows the longest begins a step: those of a step that is arranged by length, 1 where rows of like length are
    grouped, 0 for those of the micro-batch."""
    context_bytes: int | None = None
    """What the CUDA context of a process takes on this card before any tensor, where that is known."""
    context_source: str = ""
    """Who knows it: "as stated" or "measured here on 2026-11-21"."""
    formats: Formats = field(init=False)
    """Follows from precision, strategy and adapters."""

    def __post_init__(self) -> None:
        # What is trained whole is held in fp32, and so is what comes out of it.
        post_norm = self.architecture.blocks[0].post_norm or self.trains_table
        object.__setattr__(
            self, "formats", _formats(self.precision, self.deepspeed, self.lora, post_norm, self.quantized)
        )

    @property
    def deepspeed(self) -> bool:
        return self.strategy.startswith("zero")

    @property
    def lora(self) -> bool:
        return self.lora_rank > 0

    @property
    def shares_states(self) -> bool:
        return self.world_size > 1 and self.strategy not in ("single", "ddp")

    @property
    def varies(self) -> bool:
        """Rows are filled up to lengths that are not all one, or may not be."""
        return self.padded and len(set(self.step_lengths)) != 1

    @property
    def step_lengths(self) -> tuple[int, ...]:
        """Nine quantiles, from RAREST to 1, of the longest row of what a process computes first in a step; one value twice where all
        are as long. Empty where rows are not filled up, or their lengths not known."""
        if not self.padded or not self.row_lengths:
            return ()
        last = len(self.row_lengths) - 1
        # The longest of n rows keeps to what each of them keeps to with the n-th root of the chance. Chance 0 would be that
        # of a step of nothing but the shortest row.
        chances = (max(part / 8, RAREST) ** (1 / (self.longest_of or self.micro_batch)) for part in range(9))
        places = (round(last * chance) for chance in chances)
        return tuple(min(self.length, max(1, self.row_lengths[place])) for place in places)

    @property
    def quantized(self) -> bool:
        return self.lora and self.base_precision in ("nf4", "int8")

    @property
    def adapter_parameters(self) -> int:
        """All that trains beside a frozen base: adapters, DoRA's magnitudes, and modules that are trained whole."""
        if not self.lora:
            return 0
        # rank x (inputs + outputs) for each adapted matrix (Hu et al. 2021), and DoRA's length for each of its outputs.
        adapters = sum(
            block.layers * (self.lora_rank * (inputs + outputs) + outputs * self.dora)
            for block in self.architecture.blocks
            for _, inputs, outputs in self.adapted(block)
        )
        return adapters + module_parameters(self.architecture, self.modules_to_save)

    def adapted(self, block: Block) -> list[tuple[str, int, int]]:
        """The matrix products of a block that have an adapter."""
        return [linear for linear in block.linears if is_target(linear[0], self.lora_targets)] if self.lora else []

    @property
    def trains_table(self) -> bool:
        """The token table or the head is trained beside adapters."""
        return self.lora and any(is_table(name) for name in self.modules_to_save)

    @property
    def trainable_parameters(self) -> int:
        return self.adapter_parameters if self.lora else self.architecture.trainable_parameters

    @property
    def decoded_length(self) -> int:
        """Positions that get logits: targets for an encoder-decoder, else the input."""
        return self.target_length if self.architecture.kind == "encoder-decoder" else self.length

    def queries_of(self, block: Block) -> int:
        """Positions that a block computes: a decoder's own beside an encoder, else the input's."""
        return self.decoded_length if block.causal and block.cross_attention else self.length

    @property
    def tokens(self) -> int:
        return self.micro_batch * self.length

    def with_micro_batch(self, micro_batch: int, accumulation: int | None = None) -> Workload:
        return replace(self, micro_batch=micro_batch, accumulation=accumulation or self.accumulation)
