"""What a process holds whatever the batch is: weights, gradients, optimizer states."""

from __future__ import annotations

from trainwiz.core.estimate.sharded_states import fsdp_states, zero_states
from trainwiz.core.estimate.state_sizes import States, single_states
from trainwiz.core.estimate.workload import Workload

__all__ = ["States", "states_of"]


def states_of(work: Workload) -> States:
    """Weights, gradients and optimizer states of one process, by strategy and offload."""
    if work.deepspeed:
        return zero_states(work)
    alone = single_states(work)
    if work.strategy == "fsdp":
        return fsdp_states(work, alone)
    if work.strategy == "ddp":
        # accelerate leaves gradient_as_bucket_view off: the buckets are a copy of all gradients.
        return States(
            alone.weights,
            alone.gradients,
            alone.optimizer,
            buckets=alone.gradients,
            step_temporary=alone.step_temporary,
        )
    return alone
