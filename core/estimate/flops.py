"""Operations and bytes of a step, its padding, and what it moves between processes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import sqrt
from statistics import NormalDist

from trainwiz.core.data.lengths import padded_length
from trainwiz.core.estimate.architecture import Block
from trainwiz.core.estimate.quantized import LAUNCHES, moved_more, packed_linears
from trainwiz.core.estimate.workload import SINGLE, Workload

# Padding: how many tokens a step computes when each micro-batch is padded to its own longest row, and when rows are arranged by length.

NORMAL_POINTS = tuple(NormalDist().inv_cdf((place + 0.5) / 16) for place in range(16))
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
    """How many rows have which length; never empty. Equal only to itself, so that answers can be kept by it."""

    values: tuple[int, ...]
    """Each length once, shortest first."""
    ranks: tuple[int, ...]
    """Rows of at most that length."""

    @classmethod
    def of(cls, ordered: Sequence[int]) -> LengthCounts:
        """From lengths, shortest first."""
        ranks = {length: rank for rank, length in enumerate(ordered, 1)}
        return cls(tuple(ranks), tuple(ranks.values()))

    @property
    def rows(self) -> int:
        return self.ranks[-1]

    def mean(self, limit: int) -> float:
        return self.expected_longest(1, limit)

    def expected_longest(self, rows: int, limit: int, power: int = 1) -> float:
        """Of so many rows drawn at random and cut at `limit`: the sum over t of P(longest > t), which is 1 - F(t)^rows.

        Or the mean of a `power` of the longest, by steps of t^power.
        """
        total, below, share = 0.0, 0, 0.0
        last = bisect_left(self.values, limit)
        for value, rank in zip(self.values[:last], self.ranks[:last], strict=True):
            total += (float(value) ** power - float(below) ** power) * (1 - share**rows)
            below, share = value, rank / self.rows
        beyond = limit if last < len(self.values) else below
        return total + (float(beyond) ** power - float(below) ** power) * (1 - share**rows)

    def quantile(self, share: float, limit: int) -> int:
        """The length that this share of the rows, 0 to 1, keeps to, cut at `limit`."""
        place = bisect_left(self.ranks, share * self.rows)
        return min(limit, self.values[min(place, len(self.values) - 1)])

    def expected_rank(self, rank: int, rows: int, limit: int, power: int = 1) -> float:
        """Expected length of the rank-th shortest (from 1) of so many rows, or the mean of a `power` of it.

        The rank-th of n uniform numbers is Beta(rank, n + 1 - rank), here a normal of its mean and
        deviation, taken at NORMAL_POINTS equally likely places.
        """
        if rank == rows:
            return self.expected_longest(rows, limit, power)
        mean = rank / (rows + 1)
        deviation = sqrt(mean * (1 - mean) / (rows + 2))
        shares = (min(1.0, max(0.0, mean + point * deviation)) for point in NORMAL_POINTS)
        return sum(float(self.quantile(share, limit)) ** power for share in shares) / len(NORMAL_POINTS)


@lru_cache(maxsize=32)
def rounded_counts(counts: LengthCounts, multiple: int) -> LengthCounts:
    """Of the same rows, each length rounded up to a multiple. Kept: a plan is made at every keystroke."""
    if multiple == 1:
        return counts
    highest = {padded_length(value, multiple): rank for value, rank in zip(counts.values, counts.ranks, strict=True)}
    return LengthCounts(tuple(highest), tuple(highest.values()))


@lru_cache(maxsize=64)
def padding_of(counts: LengthCounts, limit: int, micro_batch: int, groups: int, multiple: int = 1) -> Padding:
    """A step of `groups` micro-batches (accumulation x processes) of rows cut at `limit` tokens, each micro-batch padded
    to a `multiple`: its longest row is that of the rounded lengths, for rounding keeps their order."""
    rows, rounded = micro_batch * groups, rounded_counts(counts, multiple)
    real = rows * counts.mean(limit)
    padded = rows * rounded.expected_longest(micro_batch, limit)
    if groups == 1 or micro_batch == 1:
        return Padding(real, padded, padded)
    longest = arranged_longest(rounded, limit, micro_batch, groups)
    arranged = rows * sum(longest) / len(longest)
    return Padding(real, padded, min(padded, max(real, arranged)))


@lru_cache(maxsize=64)
def arranged_longest(
    counts: LengthCounts, limit: int, micro_batch: int, groups: int, power: int = 1
) -> tuple[float, ...]:
    """Expected lengths of micro-batches, shortest first, that the rows of a step in order are cut into, or means of a
    `power` of them; of MOST_GROUPS evenly spread ones where there are more."""
    rows = micro_batch * groups
    return tuple(counts.expected_rank(group * micro_batch, rows, limit, power) for group in _spread(groups))


def _spread(groups: int) -> list[int]:
    """Numbers from 1 to `groups`: all, or MOST_GROUPS at the middles of equal parts."""
    if groups <= MOST_GROUPS:
        return list(range(1, groups + 1))
    return [round((part + 0.5) * groups / MOST_GROUPS + 0.5) for part in range(MOST_GROUPS)]


# Floating-point operations and bytes of one optimizer step.

FORWARD = 2
"""A multiplication and an addition for each weight and token."""
BETWEEN_AUTOCAST, BETWEEN_SINGLE, BETWEEN_HALF = 280, 350, 235
"""Bytes a token, pass and hidden unit of norms, activations, sums, casts, dropout."""
WEIGHT_AUTOCAST = 40
"""Bytes a weight: its half copy made and read, its gradient made, cast and added up."""
EAGER_SCORE = 65
"""Bytes a score of unfused attention, over three passes."""
LOGIT = 50
"""Bytes a logit, forward and backward, its fp32 copies included."""


def forward_flops(work: Workload) -> float:
    """Of one micro-batch on one process: matrix products, attention scores, vocabulary projection."""
    return sum(block.layers * _block_flops(work, block) for block in work.architecture.blocks) + _head_flops(work)


def micro_batch_flops(work: Workload) -> float:
    """Forward and backward: twice the forward for all gradients, once where weights are frozen, and the
    recomputed forward of checkpointing (Korthikanti et al. 2022)."""
    forward = forward_flops(work)
    backward = 1.0 if work.lora else 2.0
    # The blocks are computed again, the vocabulary projection is not.
    recomputed = forward - _head_flops(work) if work.checkpointing else 0.0
    return forward * (1.0 + backward) + recomputed


def useful_flops(work: Workload) -> float:
    """Without what checkpointing computes twice: what published shares of the peak count."""
    return forward_flops(work) * (2.0 if work.lora else 3.0)


def kernels(work: Workload) -> int:
    """Operations of one micro-batch, each a kernel launch or more: 30 to 60 a block and pass in traces of six models."""
    each = 55 if work.formats.autocast else 40
    packed = sum(block.layers * len(packed_linears(work, block)) for block in work.architecture.blocks)
    return _passes(work) * (each * work.architecture.layers + LAUNCHES * packed) + 100


def moved_bytes(work: Workload) -> float:
    """What the operations of one micro-batch read and write: products, what lies between them, weights, logits.

    The constants are of traces of six models (core/estimate/trace), which this meets within a third. A cache
    that answers some of it makes the device's memory move less.
    """
    formats, architecture = work.formats, work.architecture
    element, passes = formats.compute, _passes(work)
    between = BETWEEN_AUTOCAST if formats.autocast else BETWEEN_SINGLE if element == SINGLE else BETWEEN_HALF
    total = 0.0
    for block in architecture.blocks:
        tokens = work.micro_batch * work.queries_of(block)
        products = sum(inputs + outputs for _, inputs, outputs in block.linears)
        total += block.layers * tokens * passes * (element * products + between * block.hidden)
        total += block.layers * passes * moved_more(work, block, tokens)
        if work.attention == "eager":
            total += block.layers * tokens * passes * EAGER_SCORE / 3 * block.heads * work.length
    each = WEIGHT_AUTOCAST if formats.autocast else 6 * formats.weights
    total += each * architecture.linear_parameters * (0.5 if work.lora else 1.0)
    return total + LOGIT * work.micro_batch * work.decoded_length * architecture.vocabulary


@dataclass(frozen=True, slots=True)
class Cost:
    """What one micro-batch asks of the device."""

    flops: float
    moved_bytes: float
    kernels: float

    def scaled(self, other: Cost, like: Cost) -> Cost:
        """These figures of `like`, at the size of `other`: each grows as the formulas of the two do."""
        return Cost(
            self.flops * other.flops / like.flops,
            self.moved_bytes * other.moved_bytes / like.moved_bytes,
            self.kernels * other.kernels / like.kernels,
        )


def cost_of(work: Workload) -> Cost:
    """By formulas, forward and backward."""
    return Cost(micro_batch_flops(work), moved_bytes(work), float(kernels(work)))


def forward_cost(work: Workload) -> Cost:
    """Of the forward pass alone: a third of what training without recomputation moves and launches, or a half with LoRA."""
    plain = replace(work, checkpointing=False)
    share = 1 / _passes(plain)
    return Cost(forward_flops(work), moved_bytes(plain) * share, kernels(plain) * share)


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
    queries = work.queries_of(block)
    tokens = work.micro_batch * queries
    attended = queries / 2 if block.causal and work.attention != "eager" else queries
    scores = 2 * FORWARD * tokens * attended * block.attention_width
    if not block.cross_attention:
        return FORWARD * tokens * block.active_linear_parameters + scores
    # Keys and values of the cross-attention are computed from the encoder's tokens.
    cross = 2 * block.hidden * block.attention_width
    linear = FORWARD * (tokens * (block.active_linear_parameters - cross) + work.tokens * cross)
    return linear + scores + 2 * FORWARD * tokens * work.length * block.attention_width


# What the processes of a run move between each other in a step.


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


# The network between the machines of a run: how fast it is, and what a step moves over it.

ASSUMED_GBIT_S = 10.0
"""Where nobody says more: the slower of what servers are sold with. Nothing in a machine tells what its switch does."""
USED_SHARE = 0.6
"""Of the line rate, at worst, by a ring over TCP sockets; RDMA reaches nine tenths, and the slow end is what counts here."""
BITS = 8
GIGA = 1e9


@dataclass(frozen=True, slots=True)
class Network:
    """Between the machines, as given or assumed."""

    gbit_s: float
    assumed: bool

    @classmethod
    def of(cls, gbit_s: float | None) -> Network:
        return cls(ASSUMED_GBIT_S, True) if gbit_s is None else cls(gbit_s, False)

    @property
    def bytes_per_s(self) -> float:
        """At worst."""
        return USED_SHARE * self.gbit_s * GIGA / BITS


def network_bytes(work: Workload) -> float:
    """What a step sends out of each machine: a ring crosses every machine's link once, whatever number of cards it has."""
    return (work.world_size - 1) / work.world_size * exchanged_bytes(work)


def network_time_s(work: Workload, network: Network) -> float:
    """Of a step, where no computation hides it."""
    return network_bytes(work) / network.bytes_per_s
