"""Two machines (network namespaces) train one run: to the same end, and through the loss of one of them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.core.nodes.conftest import TwoNodes

# One worker: they share the run that nobody disturbs.
pytestmark = [pytest.mark.real, pytest.mark.timeout(600), pytest.mark.xdist_group("two_nodes")]

STEPS = 12
SLOWLY = {"training__max_steps": STEPS, "checkpoint__every_steps": 3, "batch__gradient_accumulation_steps": 24}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "final_model" / "model.safetensors")


def assert_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


@pytest.fixture(scope="module")
def undisturbed(machines: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nobody disturbed; both machines ended with 0 and the same weights."""
    two = TwoNodes(machines, tmp_path_factory.mktemp("undisturbed") / "run")  # type: ignore[arg-type]
    try:
        two.prepare(**SLOWLY)
        two.join(1)
        two.join(0)
        assert (two.end_of(0), two.end_of(1)) == (0, 0), two.text(0) + two.text(1) + two.log()
    finally:
        two.close()
    return two.folder


def test_both_end_with_equal_weights(undisturbed: Path) -> None:
    log = (undisturbed / "train.log").read_text()
    assert "the weights of all 2 processes are equal" in log
    assert "the nodes have met over this interface" in log
    assert f"On machine 1: {undisturbed}/launch.sh --node 1 --main " in log
    assert (undisturbed / "nodes" / "1" / "train.log").exists()
    assert not list(undisturbed.glob("failure-*"))


def test_a_machine_that_is_killed_is_missed_and_the_run_goes_on_to_the_same_end(
    two: TwoNodes, undisturbed: Path
) -> None:
    two.prepare(**SLOWLY)
    two.join(0)
    two.join(1)
    two.until_step(7)
    two.kill(1)
    killed = time.monotonic()
    two.until(lambda: two.state().attempts[0].exit is not None)
    assert time.monotonic() - killed < 30
    attempt = two.state().attempts[0]
    assert attempt.exit["cause"] == "node_lost"
    assert "Node 1 (" in attempt.exit["message"]
    two.join(1)
    assert (two.end_of(0), two.end_of(1)) == (0, 0), two.text(0) + two.text(1) + two.log()
    assert [one.resume for one in two.state().attempts] == [None, "checkpoint-6"]
    assert_equal(weights(two.folder), weights(undisturbed))


@pytest.mark.all
def test_the_first_machine_is_killed_and_started_again(two: TwoNodes, undisturbed: Path) -> None:
    two.prepare(**SLOWLY)
    two.join(0)
    two.join(1)
    two.until_step(7)
    two.kill(0)
    two.until(lambda: "was lost" in two.text(1))
    assert "Node 0 (" in two.text(1)
    two.join(0)
    assert (two.end_of(0), two.end_of(1)) == (0, 0), two.text(0) + two.text(1) + two.log()
    assert_equal(weights(two.folder), weights(undisturbed))


def test_a_stop_on_the_other_machine_stops_all_with_a_checkpoint(two: TwoNodes, undisturbed: Path) -> None:
    two.prepare(**SLOWLY)
    two.join(0)
    two.join(1)
    two.until_step(4)
    os.kill(two.started[1].pid, signal.SIGTERM)
    assert (two.end_of(0), two.end_of(1)) == (130, 130), two.text(0) + two.text(1)
    state = two.state()
    assert state.status == "stopped"
    assert "by a stop on Node 1 (" in state.exit.message
    assert (two.folder / f"checkpoint-{state.outcome['step']}").is_dir()
    two.join(1)
    two.join(0)
    assert (two.end_of(0), two.end_of(1)) == (0, 0), two.text(0) + two.text(1) + two.log()
    assert_equal(weights(two.folder), weights(undisturbed))


def test_a_machine_that_does_not_come_ends_the_run_with_the_cause(two: TwoNodes) -> None:
    two.prepare(engine__nodes_timeout_s=10)
    began = time.monotonic()
    two.join(0)
    assert two.end_of(0) == 1
    assert time.monotonic() - began < 60
    found = two.state().exit
    assert found.cause == "node_lost"
    assert "Node 1 of 2 did not come within 10 s" in found.message
    assert "port 29501" in found.message
    assert len(two.state().attempts) == 1


@pytest.mark.all
def test_a_wrong_address_is_told_on_the_machine_that_has_it(two: TwoNodes) -> None:
    two.prepare(engine__nodes_timeout_s=10)
    two.join(1, main="10.88.7.77:29500")
    assert two.end_of(1) == 1
    assert "Node 0 could not be reached at 10.88.7.77, port 29501 within 10 s" in " ".join(two.text(1).split())


@pytest.mark.all
def test_a_wrong_interface_is_told_with_those_that_there_are(two: TwoNodes) -> None:
    two.prepare(engine__environment={"GLOO_SOCKET_IFNAME": "ib0"}, engine__nodes_timeout_s=10)
    two.join(0)
    assert two.end_of(0) == 1
    found = two.state().exit
    assert found.cause == "config_mismatch"
    assert "GLOO_SOCKET_IFNAME is ib0" in found.message
    assert found.remedy is not None and "Start all machines" in found.remedy
    assert two.machines.interfaces[0] in found.message


@pytest.mark.all
def test_a_cable_that_is_cut_is_noticed(two: TwoNodes) -> None:
    two.prepare(**SLOWLY, engine__nodes_timeout_s=10, recovery__max_restarts=0)
    two.join(0)
    two.join(1)
    two.until_step(4)
    two.machines.cut_cable()
    cut = time.monotonic()
    try:
        assert two.end_of(0) == 1
    finally:
        two.machines.mend_cable()
    assert time.monotonic() - cut < 90
    found = two.state().exit
    assert found.cause == "node_lost", found
