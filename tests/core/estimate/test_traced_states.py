"""States of a trace, shared out as the strategy does."""

import pytest
from trainwiz.core.estimate.states import states_of
from trainwiz.core.estimate.traced import traced_peak
from trainwiz.core.estimate.workload import Moment
from trainwiz.core.tracing.request import TraceResult

from tests.core.estimate.test_peak import esm650
from tests.each import each


@each("strategy", ["zero1", "zero2", "zero3"])
@each("precision", ["fp16", "bf16"])
def test_deepspeed_holds_the_weights_in_half_as_the_trace_does(strategy: str, precision: str) -> None:
    work = esm650(strategy=strategy, precision=precision, world_size=2)
    whole = 2 * work.architecture.parameters
    moment = Moment("the backward pass of the last layer", {"weights": whole, "gradients": whole, "activations": 10**9})
    trace = TraceResult("full", (moment,), (), None, 1, 1, 1.0, 1.0, 1, 0.1)
    parts = traced_peak(work, trace).moment.parts
    states = states_of(work)
    assert parts["weights"] == states.weights + states.gathered
    assert parts["activations"] == 10**9


def shared(name: str, gradients: int = 0, **settings: object) -> dict[str, int]:
    """Parts of the moment of this name on one of eight processes, traced with so many bytes of gradients."""
    moment = Moment(name, {"weights": 4 * esm650().architecture.parameters, "gradients": gradients})
    trace = TraceResult("full", (moment,), (), None, 1, 1, 1.0, 1.0, 1, 0.1)
    return traced_peak(esm650(world_size=8, **settings), trace).moment.parts


def test_gathered_weights_are_gone_in_the_step() -> None:
    states = states_of(esm650(strategy="zero3", world_size=8))
    before, step = (shared(name, strategy="zero3") for name in ("the end of the backward pass", "the optimizer step"))
    assert before["weights"] - step["weights"] == states.gathered > 0
    assert step["temporary"] == states.step_temporary > 0


@pytest.mark.parametrize(("strategy", "stands"), [("zero2", False), ("zero3", True)])
def test_a_buffer_of_gradients_that_stands_is_there_before_the_first_one(strategy: str, stands: bool) -> None:
    states = states_of(esm650(strategy=strategy, world_size=8))
    assert states.standing_gradients == stands
    assert shared("the forward pass", strategy=strategy)["gradients"] == states.buckets + stands * states.gradients
    assert shared("the forward pass", 10**6, strategy=strategy)["gradients"] == states.buckets + states.gradients


def test_half_gradients_come_with_the_layers() -> None:
    settings = {"strategy": "zero1", "precision": "bf16"}
    half = states_of(esm650(world_size=8, **settings)).half_gradients
    early = ("the start of the backward pass", "the backward pass of the last layer")
    end, *first = (shared(name, **settings)["gradients"] for name in ("the end of the backward pass", *early))
    assert half > 0 and [end - one for one in first] == [half, half]


def test_ddp_holds_a_copy_of_all_gradients_from_the_start() -> None:
    assert shared("the forward pass", strategy="ddp")["gradients"] == 4 * esm650().architecture.parameters
