"""The peak that a trace gives: its moments, with the states shared out as the strategy does."""

from __future__ import annotations

from collections.abc import Sequence

from trainwiz.core.estimate.evaluation import weight_copies
from trainwiz.core.estimate.moment import KINDS, Moment
from trainwiz.core.estimate.peak import Peak
from trainwiz.core.estimate.state_sizes import States, single_states
from trainwiz.core.estimate.states import states_of
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.language import mark
from trainwiz.core.tracing.result import TraceResult

STEP = mark("the optimizer step")
"""Name of the step's moment in a trace."""


def traced_peak(work: Workload, trace: TraceResult) -> Peak:
    """The fullest moment of the training step on one device. A trace holds all states in one process."""
    return _peak(work, trace.training)


def traced_evaluation_peak(work: Workload, trace: TraceResult) -> Peak | None:
    """Likewise of evaluating and generating; None where nothing is held out."""
    if work.eval_micro_batch == 0 or not trace.evaluation:
        return None
    return _peak(work, trace.evaluation)


def replayed_factor(trace: TraceResult) -> float | None:
    """Reserved over allocated memory, of the replayed allocator; None where it was not replayed."""
    if not trace.reserved_bytes:
        return None
    fullest = max(moment.bytes for moment in (*trace.training, *trace.evaluation))
    return max(1.0, trace.reserved_bytes / max(1, fullest))


def _peak(work: Workload, traced: Sequence[Moment]) -> Peak:
    states = states_of(work)
    moments = tuple(_shared(work, states, moment) for moment in traced)
    return Peak(max(moments, key=lambda moment: moment.bytes), moments, states)


def _shared(work: Workload, states: States, moment: Moment) -> Moment:
    """The moment of one process of several: states by the strategy's rules, all else as it was traced."""
    parts = {kind: moment.parts.get(kind, 0) for kind in KINDS}
    if work.strategy == "single":
        return Moment(moment.name, parts)
    # In the number formats of this strategy: that is how the trace held them.
    alone = single_states(work)
    step = moment.name == STEP
    whole = alone.gradients
    share = 1.0 if whole == 0 else min(1.0, parts["gradients"] / whole)
    parts["weights"] += states.weights - alone.weights + (0 if step else states.gathered)
    parts["optimizer"] = states.optimizer
    if states.flat_gradients:
        begun = share > 0 or states.standing_gradients
        parts["gradients"] = (states.gradients if begun else 0) + _half_gradients(states, moment)
    else:
        parts["gradients"] = int(states.gradients * share)
    parts["gradients"] += states.buckets
    if step:
        parts["temporary"] = states.step_temporary
    elif work.strategy == "fsdp":
        # Weights are gathered in the format that they compute in: autocast copies nothing.
        parts["temporary"] = max(0, parts["temporary"] - weight_copies(work))
        parts["gradients"] += _backward_buffers(states, moment)
    else:
        parts["gradients"] += _backward_buffers(states, moment)
    return Moment(moment.name, {kind: max(0, size) for kind, size in parts.items()})


def _backward_buffers(states: States, moment: Moment) -> int:
    return states.backward_buffers if "backward" in moment.name else 0


def _half_gradients(states: States, moment: Moment) -> int:
    """They come with the layers: none at the start of the backward pass."""
    early = moment.name.startswith("the start") or "last layer" in moment.name
    return states.half_gradients if "backward" in moment.name and not early else 0
