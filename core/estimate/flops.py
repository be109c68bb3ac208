"""Operations and bytes of a step, its padding, and what it moves between processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist, fmean

import numpy as np
from trainwiz.core.estimate.activations import block_bytes, positions_of, weight_copy_bytes
from trainwiz.core.estimate.architecture import Block
from trainwiz.core.estimate.states import moved_more, packed_linears
from trainwiz.core.estimate.workload import SINGLE, Workload

# Padding: how many tokens a step computes when each micro-batch is padded to its own longest row, and when rows are arranged by length.

NORMAL_POINTS = np.array([NormalDist().inv_cdf((place + 0.5) / 16) for place in range(16)])
MOST_GROUPS = 64
"""Of so many micro-batches each is looked at when arranged by length; of more, as many spread evenly."""


@dataclass(frozen=True, slots=True)
class Padding:
    """Tokens of one optimizer step over all processes, in expectation."""

    real: float
    padded: float
    """Rows in random order, each micro-batch as long as its longest row."""
    arranged: float
    """The rows of the step in order of their lengths, cut into micro-batches."""

    @property
    def waste(self) -> float:
        """Share of `padded` that is padding, 0 to 1."""
        return max(0.0, 1 - self.real / self.padded)

    @property
    def arranged_waste(self) -> float:
        return max(0.0, 1 - self.real / self.arranged)


@dataclass(frozen=True, slots=True, eq=False)
class LengthCounts:
    """The lengths of rows; never empty. Equal only to itself, so that answers can be kept by it."""

    ordered: np.ndarray
    """(rows,) int64, shortest first."""

    @classmethod
    def of(cls, ordered: Sequence[int]) -> LengthCounts:
        """From lengths, shortest first."""
        return cls(np.array(ordered))

    def mean(self, limit: int) -> float:
        return self.expected_longest(1, limit)

    def expected_longest(self, rows: int, limit: int, power: int = 1) -> float:
        """Of so many rows drawn at random and cut at `limit`, or the mean of a `power` of it: each length times the chance
        that it is the longest, which is the difference of F^rows there."""
        # Once for each length: most rows share theirs, and a plan asks for this at every keystroke.
        ends = np.flatnonzero(np.append(self.ordered[1:] != self.ordered[:-1], True)) + 1
        chances = np.diff((ends / len(self.ordered)) ** rows, prepend=0.0)
        return float(_cut(self.ordered[ends - 1], limit, power) @ chances)

    def expected_ranks(self, ranks: np.ndarray, rows: int, limit: int, power: int = 1) -> np.ndarray:
        """Expected lengths of the so-many shortest (from 1) of so many rows, or the means of a `power` of them.

        The rank-th of n uniform numbers is Beta(rank, n + 1 - rank), here a normal of its mean and
        deviation, taken at NORMAL_POINTS equally likely places; the last is known exactly.
        """
        means = ranks[:, None] / (rows + 1)
        shares = means + NORMAL_POINTS * np.sqrt(means * (1 - means) / (rows + 2))
        places = np.ceil(np.clip(shares, 0, 1) * len(self.ordered)).astype(int) - 1
        expected = _cut(self.ordered[np.maximum(places, 0)], limit, power).mean(axis=1)
        return np.where(ranks == rows, self.expected_longest(rows, limit, power), expected)


def _cut(lengths: np.ndarray, limit: int, power: int) -> np.ndarray:
    cut: np.ndarray = np.minimum(lengths, limit).astype(np.float64) ** power
    return cut


@lru_cache(maxsize=32)
def rounded_counts(counts: LengthCounts, multiple: int) -> LengthCounts:
    """Of the same rows, each length rounded up to a multiple. Kept: a plan is made at every keystroke."""
    return counts if multiple == 1 else LengthCounts(-(-counts.ordered // multiple) * multiple)


@lru_cache(maxsize=64)
def padding_of(counts: LengthCounts, limit: int, micro_batch: int, groups: int, multiple: int = 1) -> Padding:
    """A step of `groups` micro-batches (accumulation x processes) of rows cut at `limit` tokens, each micro-batch padded
    to a `multiple`: its longest row is that of the rounded lengths, for rounding keeps their order."""
    rows, rounded = micro_batch * groups, rounded_counts(counts, multiple)
    real = rows * counts.mean(limit)
    padded = rows * rounded.expected_longest(micro_batch, limit)
    if groups == 1 or micro_batch == 1:
        return Padding(real, padded, padded)
    arranged = rows * fmean(arranged_longest(rounded, limit, micro_batch, groups))
    return Padding(real, padded, min(padded, max(real, arranged)))


@lru_cache(maxsize=64)
def arranged_longest(
    counts: LengthCounts, limit: int, micro_batch: int, groups: int, power: int = 1
) -> tuple[float, ...]:
    """Expected lengths of micro-batches, shortest first, that the rows of a step in order are cut into, or means of a
    `power` of them; of MOST_GROUPS at the middles of equal parts where there are more."""
    some = min(groups, MOST_GROUPS)
    numbers = np.round((np.arange(some) + 0.5) * groups / some + 0.5)
    return tuple(counts.expected_ranks(numbers * micro_batch, micro_batch * groups, limit, power).tolist())


FORWARD = 2
"""A multiplication and an addition for each weight and token."""
FUSED_BACKWARD = 0.5
"""Of its forward scores: fused attention computes them again in the backward pass (5 products for 4)."""

# Bytes and launches beside the products, fitted to 210 traces of 25 families in ten settings each (core/estimate/trace;
# nine of ten within 25 %). An operation reads what another one wrote and kept, so that what is kept says what is moved.

KEPT = {"autocast": 13.0, "fp32": 9.8, "half": 10.4}
"""Bytes moved in three passes for each byte that the forward pass keeps."""
ROTARY = {"autocast": 15, "fp32": 8, "half": 14}
"""For each byte of queries and keys that are turned, in one pass."""
WEIGHT = {"autocast": 11, "fp32": 14, "half": 0}
"""For each trained weight of the products: copies made and read, its gradient made, cast and added up."""
LOGIT = {"autocast": 42, "fp32": 27, "half": 20}
"""For each logit, forward and backward, its fp32 copies included."""
ADAPTED = {"autocast": (9, 15), "fp32": (9, 15), "half": (24, 24)}
"""For each value that goes into and comes out of an adapted product in one pass: copies to fp32 and back, dropout, the
small products, their sum."""
TIED, APART = 4, 1
"""Times the bytes of a trained token table: its gradient is made whole, and summed with that of a head that is tied to it."""
UNPACKED = 0.75
"""Of what is counted for a base in 4 or 8 bits (quantized.moved_more)."""
KERNELS = {
    "block": 6.5, "product": 1.2, "cast": 1.9, "rms": 6.4, "rotary": 9.2, "unfused": 6.3, "eager": 4.3, "cross": 9.6,
    "experts": 18, "adapter": 8.2, "adapter cast": 3.1, "packed": 5,
}  # fmt: skip
"""In one pass, for each of what a block has."""
HIDDEN = 100
"""Operations of a product that hide the moving of one byte: cards compute 78 to 295 in that time (half precision)."""


def forward_flops(work: Workload) -> float:
    """Of one micro-batch on one process: matrix products, attention scores, vocabulary projection."""
    return sum(block.layers * _block_flops(work, block) for block in work.architecture.blocks) + _head_flops(work)


def micro_batch_flops(work: Workload) -> float:
    """What a device computes, forward and backward: twice the forward for all gradients, once where weights are frozen,
    and the recomputed forward of checkpointing (Korthikanti et al. 2022)."""
    forward = forward_flops(work)
    backward = 1.0 if work.lora else 2.0
    # The blocks are computed again, the vocabulary projection is not.
    recomputed = forward - _head_flops(work) if work.checkpointing else 0.0
    again = 0.0 if work.attention == "eager" else FUSED_BACKWARD * attention_flops(work)
    weights = (
        work.queries_of(block) * block.layers * work.lora_rank * (inputs + outputs)
        for block in work.architecture.blocks
        for _, inputs, outputs in work.adapted(block)
    )
    # The two products of each adapter.
    adapters = (3 + work.checkpointing) * float(FORWARD * work.micro_batch * sum(weights)) if work.lora else 0.0
    return forward * (1.0 + backward) + recomputed + again + adapters


def attention_flops(work: Workload) -> float:
    """Of the scores and sums of one forward pass, a part of `forward_flops`."""
    return sum(block.layers * _score_flops(work, block) for block in work.architecture.blocks)


def kernels(work: Workload) -> float:
    """Operations of one micro-batch, each a kernel launch."""
    total, cast = 0.0, work.formats.autocast
    for block in work.architecture.blocks:
        products = len(block.linears)
        adapted = len(work.adapted(block))
        counts = {
            "block": 1,
            "product": products,
            "cast": products * (cast and not work.lora),
            "rms": (block.norms + 2 * block.query_key_norm) * (block.norm != "layer"),
            "rotary": block.rotary,
            "cross": block.cross_attention,
            "unfused": block.activation in ("erf_unfused", "tanh_unfused"),
            "experts": block.experts > 0,
            "eager": (work.attention == "eager") * (1 + block.cross_attention),
            "adapter": adapted,
            "adapter cast": adapted * cast,
            "packed": len(packed_linears(work, block)),
        }
        total += block.layers * sum(KERNELS[name] * count for name, count in counts.items())
    return total * _passes(work) + 100


def moved_bytes(work: Workload) -> float:
    """What the operations of one micro-batch read and write beside wide products: norms, activations,
    sums, casts, adapters, logits. Without `weight_bytes`, a polynomial of the lengths."""
    formats, architecture, passes = work.formats, work.architecture, _passes(work)
    kind = _kind(work)
    plain = replace(work, lora_rank=0, checkpointing=False, base_precision="none")
    into, out_of = ADAPTED[kind]
    total = 0.0
    for block in architecture.blocks:
        tokens = work.micro_batch * work.queries_of(block)
        kept = block_bytes(plain, block) - weight_copy_bytes(plain, block.cast_parameters)
        one = KEPT[kind] / 3 * kept + UNPACKED * moved_more(work, block, tokens)
        turned = block.rotary * (block.attention_width + block.kv_width)
        one += ROTARY[kind] * formats.compute * tokens * turned
        one += tokens * sum(into * inputs + out_of * outputs for _, inputs, outputs in work.adapted(block))
        total += block.layers * passes * one
    return total + LOGIT[kind] * positions_of(work, work.micro_batch) * architecture.vocabulary


def weight_bytes(work: Workload) -> float:
    """What a micro-batch moves for its weights beside wide products: those of few rows read more than they compute."""
    architecture, element, passes = work.architecture, work.formats.compute, _passes(work)
    total = 0.0
    for block in architecture.blocks:
        rows = work.micro_batch * work.queries_of(block)
        total += block.layers * passes * element * block.expert_parameters
        for _, inputs, outputs in block.linears:
            total += block.layers * passes * _thin(rows, inputs, outputs, element)
    if not architecture.pooled and architecture.vocabulary:
        rows, wide = work.micro_batch * work.decoded_length, architecture.vocabulary
        total += (2 if work.lora else 3) * _thin(rows, architecture.vocabulary_parameters // wide, wide, element)
    if not work.lora:
        table = (TIED if architecture.tied else APART) * work.formats.weights
        total += WEIGHT[_kind(work)] * architecture.linear_parameters + table * architecture.vocabulary_parameters
    return total


LARGE = 32e6
"""Bytes of a tensor beyond which glibc asks the system for new pages each time."""


def large_bytes(work: Workload) -> float:
    """Of what is moved, by tensors that are LARGE: logits, and the gradient of a token table."""
    architecture, logits = work.architecture, positions_of(work, work.micro_batch) * work.architecture.vocabulary
    table = 0 if work.lora else work.formats.weights * architecture.vocabulary_parameters
    moved = LOGIT[_kind(work)] * logits if work.formats.compute * logits > LARGE else 0
    return float(moved + ((TIED if architecture.tied else APART) * table if table > LARGE else 0))


def _thin(rows: int, inputs: int, outputs: int, element: int) -> float:
    """Bytes that take time of their own: those of a wide product move while it computes, those of an adapter do not."""
    moved = element * (rows * (inputs + outputs) + inputs * outputs)
    return max(0.0, moved - FORWARD * float(rows) * inputs * outputs / HIDDEN)


def _kind(work: Workload) -> str:
    return "autocast" if work.formats.autocast else "fp32" if work.formats.compute == SINGLE else "half"


@dataclass(frozen=True, slots=True)
class Cost:
    flops: float
    moved_bytes: float
    kernels: float


def cost_of(work: Workload) -> Cost:
    return Cost(micro_batch_flops(work), moved_bytes(work) + weight_bytes(work), kernels(work))


def forward_cost(work: Workload) -> Cost:
    """Of the forward pass alone: a third of what training without recomputation moves and launches, or a half with LoRA."""
    plain = replace(work, checkpointing=False)
    share = 1 / _passes(plain)
    return Cost(forward_flops(work), (moved_bytes(plain) + weight_bytes(plain)) * share, kernels(plain) * share)


def _passes(work: Workload) -> int:
    """Forward, two of the backward pass (one where weights are frozen), and the recomputation."""
    return 1 + (1 if work.lora else 2) + (1 if work.checkpointing else 0)


def _head_flops(work: Workload) -> float:
    positions = work.micro_batch * work.decoded_length
    head = work.architecture.vocabulary_parameters
    if work.architecture.transform_head:
        head += work.architecture.hidden**2
    return float(FORWARD * positions * head)


def _block_flops(work: Workload, block: Block) -> float:
    tokens, scores = work.micro_batch * work.queries_of(block), _score_flops(work, block)
    if not block.cross_attention:
        return FORWARD * tokens * block.active_linear_parameters + scores
    # Keys and values of the cross-attention are computed from the encoder's tokens.
    cross = 2 * block.hidden * block.attention_width
    return FORWARD * (tokens * (block.active_linear_parameters - cross) + work.tokens * cross) + scores


def _score_flops(work: Workload, block: Block) -> float:
    """Of one block: queries with the keys they see, and what is summed of the values."""
    queries = work.queries_of(block)
    attended = queries / 2 if block.causal and work.attention != "eager" else float(queries)
    encoded = work.length if block.cross_attention else 0
    return 2 * FORWARD * work.micro_batch * queries * (attended + encoded) * block.attention_width


def exchanged_bytes(work: Workload) -> float:
    """Bytes of gradients and sharded weights that a step takes round; a ring moves (N - 1) / N of them over each link.

    DDP sums the gradients once a step (reduced and gathered: twice their bytes). ZeRO-1 does too and ZeRO-2 after
    each micro-batch (DeepSpeed 0.19 sums whole buckets and keeps its shard, `allreduce_and_scatter`); each process
    then steps its part of the weights, which all gather. ZeRO-3 and FSDP gather the weights for each forward and
    each backward pass and reduce the gradients after it. Counted on a cable: tests/core/nodes/test_traffic.py.
    """
    element = work.formats.adapters if work.lora else work.formats.weights
    gradients = float(work.trainable_parameters * element)
    if work.strategy in ("zero3", "fsdp"):
        return work.accumulation * (2 * work.architecture.parameters * work.formats.compute + gradients)
    sums = work.accumulation if work.strategy == "zero2" else 1
    stepped = gradients if work.strategy in ("zero1", "zero2") else 0.0
    return sums * 2 * gradients + stepped


ASSUMED_GBIT_S = 10.0
"""Where nobody says more: the slower of what servers are sold with. Nothing in a machine tells what its switch does."""
USED_SHARE = 0.6
"""Of the line rate, at worst, by a ring over TCP sockets; RDMA reaches nine tenths, and the slow end is what counts here."""
BITS = 8
GIGA = 1e9


def network_bytes_per_s(gbit_s: float) -> float:
    """At worst."""
    return USED_SHARE * gbit_s * GIGA / BITS


def network_bytes(work: Workload) -> float:
    """What a step sends out of each machine: a ring crosses every machine's link once, whatever number of cards it has."""
    return (work.world_size - 1) / work.world_size * exchanged_bytes(work)
