"""Two machines (network namespaces) train one run: to the same end, and through the loss of one of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.core.nodes.conftest import TwoNodes
from tests.fakes.namespaces import TwoMachines

# One worker: they share the run that nobody disturbs.
pytestmark = [pytest.mark.real, pytest.mark.timeout(1200), pytest.mark.xdist_group("two_nodes")]

STEPS = 9
SLOWLY = {"training__max_steps": STEPS, "checkpoint__every_steps": 3, "batch__gradient_accumulation_steps": 12}
GONE_S = 600.0
"""Far more than a start takes on a busy machine."""


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "final_model" / "model.safetensors")


def assert_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def both(two: TwoNodes) -> TwoNodes:
    two.prepare(**SLOWLY)
    two.join(1)
    two.join(0)
    return two


def to_the_end(two: TwoNodes) -> Path:
    assert (two.end_of(0, GONE_S), two.end_of(1, GONE_S)) == (0, 0), two.text(0) + two.text(1) + two.log()
    log = two.log()
    assert "the weights of all 2 processes are equal" in log
    assert "the nodes connected over this interface" in log
    assert f"On node 1: {two.folder}/launch.sh --node 1 --main " in log
    assert (two.folder / "nodes" / "1" / "train.log").exists()
    assert not list(two.folder.glob("failure-*"))
    return two.folder


@pytest.fixture(scope="module")
def undisturbed(machines: TwoMachines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a run that nobody disturbed."""
    two = TwoNodes(machines, tmp_path_factory.mktemp("undisturbed") / "run")
    yield to_the_end(both(two))
    two.close()


@pytest.fixture(scope="module")
def killed(machines: TwoMachines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    """A run of whose second machine all processes were killed, and which came back."""
    two = both(TwoNodes(machines, tmp_path_factory.mktemp("killed") / "run"))
    try:
        two.until_step(4)
        two.kill(1)
        two.until(lambda: two.state().attempts[0].exit is not None, GONE_S)
        two.join(1)
        to_the_end(two)
        yield two
    finally:
        two.close()


def test_a_machine_that_is_killed_is_missed_and_both_end_with_equal_weights(killed: TwoNodes) -> None:
    first, second = killed.state().attempts
    assert first.exit["cause"] == "node_lost" and "Node 1 (" in first.exit["message"]
    assert (first.resume, second.resume) == (None, "checkpoint-3")


@pytest.mark.all
def test_a_killed_machine_changes_nothing_of_the_end(killed: TwoNodes, undisturbed: Path) -> None:
    assert_equal(weights(killed.folder), weights(undisturbed))


@pytest.mark.all
def test_the_first_machine_is_killed_and_started_again(two: TwoNodes, undisturbed: Path) -> None:
    both(two).until_step(4)
    two.kill(0)
    two.until(lambda: "was lost" in two.text(1), GONE_S)
    assert "Node 0 (" in two.text(1)
    two.join(0)
    assert_equal(weights(to_the_end(two)), weights(undisturbed))


@pytest.mark.all
def test_a_stop_on_the_other_machine_stops_all_with_a_checkpoint(two: TwoNodes, undisturbed: Path) -> None:
    both(two).until_step(4)
    os.kill(two.started[1].pid, signal.SIGTERM)
    assert (two.end_of(0), two.end_of(1)) == (130, 130), two.text(0) + two.text(1)
    state = two.state()
    assert state.status == "stopped" and "by a stop request on Node 1 (" in state.exit.message
    assert (two.folder / f"checkpoint-{state.outcome['step']}").is_dir()
    two.join(1)
    two.join(0)
    assert_equal(weights(to_the_end(two)), weights(undisturbed))


@pytest.mark.all
def test_a_cable_that_is_cut_is_noticed(two: TwoNodes) -> None:
    two.prepare(**SLOWLY, engine__nodes_timeout_s=10, recovery__max_restarts=0)
    two.join(0)
    two.join(1)
    two.until_step(4)
    two.machines.cut_cable()
    try:
        assert two.end_of(0, GONE_S) == 1
    finally:
        two.machines.mend_cable()
    found = two.state().exit
    assert found.cause == "node_lost", found
