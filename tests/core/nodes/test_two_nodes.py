"""Two machines (network namespaces) train one run: to the same end, and through the loss of one of them."""

import os
import signal
from pathlib import Path

import pytest

from tests.core.nodes.conftest import TwoNodes
from tests.core.training.runs import different_tensors, losses, tiny_config, train, write_run
from tests.fakes.namespaces import TwoMachines

# One worker: the machines are made once.
pytestmark = [pytest.mark.real, pytest.mark.timeout(1200), pytest.mark.xdist_group("two_nodes")]

STEPS = 9
WINDOW = {"batch__micro_batch_size": 4, "training__max_steps": STEPS, "checkpoint__every_steps": 3}
# Activations are recomputed: the Trainer then says that every weight takes part; ESM's contact head does not.
SLOWLY = {**WINDOW, "batch__gradient_accumulation_steps": 12, "engine__checkpointing": True}
GONE_S = 600.0
"""Far more than a start takes on a busy machine."""


def both(two: TwoNodes) -> TwoNodes:
    two.prepare(**SLOWLY)
    two.join(1)
    two.join(0)
    return two


def to_the_end(two: TwoNodes) -> Path:
    assert (two.end_of(0, GONE_S), two.end_of(1, GONE_S)) == (0, 0), two.text(0) + two.text(1) + two.log()
    log = two.log()
    assert "the nodes connected over this interface" in log
    assert f": trainwiz export {two.folder} --script --main " in log
    assert (two.folder / "nodes" / "1" / "train.log").exists()
    assert not list(two.folder.glob("failure-*"))
    return two.folder


def test_a_killed_machine_is_missed_and_the_run_ends_as_one_process_ends_it(two: TwoNodes, tmp_path: Path) -> None:
    both(two).until_step(4)
    two.kill(1)
    two.until(lambda: two.state().attempts[0].exit is not None, GONE_S)
    two.join(1)
    folder = to_the_end(two)
    first, second = two.state().attempts
    assert first.exit["cause"] == "node_lost" and "Node 1 (" in first.exit["message"]
    assert (first.resume, second.resume) == (None, "checkpoint-3")
    alone = tiny_config(**WINDOW, batch__gradient_accumulation_steps=24)
    train(write_run(tmp_path / "alone", alone), alone)
    assert losses(folder) == pytest.approx(losses(tmp_path / "alone"), abs=1e-3)


@pytest.mark.all
def test_a_stop_and_a_kill_change_nothing_of_the_end(machines: TwoMachines, two: TwoNodes, tmp_path: Path) -> None:
    both(two).until_step(4)
    os.kill(two.started[1].pid, signal.SIGTERM)
    assert (two.end_of(0), two.end_of(1)) == (130, 130), two.text(0) + two.text(1)
    state = two.state()
    assert state.status == "stopped" and "by a stop request on Node 1 (" in state.exit.message
    stopped = state.outcome["step"]
    assert (two.folder / f"checkpoint-{stopped}").is_dir()
    two.join(1)
    two.join(0)
    two.until_step(stopped + 1)
    two.kill(0)
    two.until(lambda: "was lost" in two.text(1), GONE_S)
    assert "Node 0 (" in two.text(1)
    two.join(0)
    undisturbed = TwoNodes(machines, tmp_path / "undisturbed")
    ends = [folder / "final_model" for folder in (to_the_end(two), to_the_end(both(undisturbed)))]
    assert different_tensors(*ends) == []


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
