"""States of a trace, shared out as the strategy does."""

import pytest
from trainwiz.core.estimate.moment import Moment
from trainwiz.core.estimate.states import states_of
from trainwiz.core.estimate.traced import traced_peak
from trainwiz.core.tracing.result import TraceResult

from tests.core.estimate.test_peak import esm650


@pytest.mark.parametrize("strategy", ["zero1", "zero2", "zero3"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_deepspeed_holds_the_weights_in_half_as_the_trace_does(strategy: str, precision: str) -> None:
    work = esm650(strategy=strategy, precision=precision, world_size=2)
    whole = 2 * work.architecture.parameters
    moment = Moment("the backward pass of the last layer", {"weights": whole, "gradients": whole, "activations": 10**9})
    trace = TraceResult("full", (moment,), (), None, 1, 1, 1.0, 1.0, 1, 0.1)
    parts = traced_peak(work, trace).moment.parts
    states = states_of(work)
    assert parts["weights"] == states.weights + states.gathered
    assert parts["activations"] == 10**9
