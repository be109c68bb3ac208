"""Time of generating text: token by token, each a pass over all weights."""

from __future__ import annotations

from trainwiz.core.estimate.evaluation import cache_bytes_per_row
from trainwiz.core.estimate.flops import FORWARD, forward_flops
from trainwiz.core.estimate.time import LAUNCH_FAST_S, LAUNCH_SLOW_S, Range, Rate
from trainwiz.core.estimate.workload import Workload

KERNELS_A_LAYER = 45
"""Launches of one layer for one new position, the upkeep of its cache included."""
SEARCH_FAST_S, SEARCH_SLOW_S = 0.002, 0.010
"""Python's part of one position: stopping rules, scores, sorting the beams."""
SHORT_SHARE = 0.25
"""A batch ends with its longest text, which may come long before the limit."""


def generation_time(work: Workload, rate: Rate, rows: int, likely_length: int | None = None) -> Range:
    """Seconds for `rows` rows over all processes; `likely_length` is that of the longest text of a usual batch.

    One position reads all decoder weights and the keys and values of every beam (memory-bound), and
    never takes less than its kernel launches.
    """
    if rows <= 0 or work.generation_length == 0 or work.eval_micro_batch == 0:
        return Range(0.0, 0.0)
    batches = -(-rows // (work.eval_micro_batch * work.world_size))
    longest = work.generation_length
    shortest = min(longest, likely_length) if likely_length else max(1, round(SHORT_SHARE * longest))
    position, prompt = _position(work, rate), _prompt(work, rate)
    return Range(batches * (prompt.low + shortest * position.low), batches * (prompt.high + longest * position.high))


def _position(work: Workload, rate: Rate) -> Range:
    beams = work.eval_micro_batch * work.beams
    decoder = sum(block.layers * block.parameters for block in work.architecture.blocks if block.causal)
    head = work.architecture.vocabulary_parameters
    moved = (decoder + head) * work.formats.weights + beams * cache_bytes_per_row(work) / 2
    active = sum(block.layers * block.active_linear_parameters for block in work.architecture.blocks if block.causal)
    flops = FORWARD * beams * (active + head)
    layers = sum(block.layers for block in work.architecture.blocks if block.causal)
    on_cpu = work.device == "cpu"
    fast, slow = (0.0, 0.0) if on_cpu else (LAUNCH_FAST_S, LAUNCH_SLOW_S)
    return Range(
        max(moved / rate.bandwidth, flops / (rate.fast_share * rate.flops), KERNELS_A_LAYER * layers * fast)
        + SEARCH_FAST_S,
        max(2 * moved / rate.bandwidth, flops / (rate.slow_share * rate.flops), KERNELS_A_LAYER * layers * slow)
        + SEARCH_SLOW_S,
    )


def _prompt(work: Workload, rate: Rate) -> Range:
    """The source, or the prompt, once."""
    flops = forward_flops(work.with_micro_batch(work.eval_micro_batch))
    return Range(flops / (rate.fast_share * rate.flops), flops / (rate.slow_share * rate.flops))
