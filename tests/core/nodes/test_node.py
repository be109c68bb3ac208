"""What an attempt does before the nodes meet, and what a node says of an end of which its processes said nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trainwiz.core.nodes.address import Address, NodeProblem
from trainwiz.core.nodes.handshake import introduce
from trainwiz.core.nodes.node import NodeAttempt, NodeOrder, last_words_of
from trainwiz.core.run.folder import RunFolder

from tests.each import each


class Met(Exception):
    """The attempt came as far as the meeting."""


@each("had_met", [True, False])
def test_an_interface_that_was_there_may_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, had_met: bool
) -> None:
    seen = iter([{"lo": ["127.0.0.1"]}, {"lo": ["127.0.0.1"], "eth0": ["10.0.0.2"]}])

    def meet(*given: object, interface: tuple[str, str] | None, **more: object) -> None:
        assert interface == ("eth0", "10.0.0.2")
        raise Met

    monkeypatch.setattr("trainwiz.core.nodes.node.interface_addresses", lambda: next(seen))
    monkeypatch.setattr("trainwiz.core.nodes.node.attend", meet)
    order = NodeOrder(
        tmp_path,
        introduce(1, 2, 1),
        Address("10.0.0.1"),
        patience_s=5.0,
        command=lambda given: ["false", *given],
        environment={"GLOO_SOCKET_IFNAME": "eth0"},
        had_met=had_met,
    )
    with pytest.raises(Met if had_met else NodeProblem):
        NodeAttempt(order, stop_requested=lambda: False).run(())


KILLED = """\
trainwiz.core.training FAILED
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 0)
  exitcode  : -9 (pid: 4711)
  traceback : Signal 9 (SIGKILL) received by PID 4711
"""


@each("counted", [None, 0])
def test_a_kill_is_a_lost_node_until_the_kernel_says_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: int | None
) -> None:
    """In a container without the counter too: the run goes on by itself after a lost node, not after lack of RAM."""
    monkeypatch.setattr("trainwiz.core.nodes.node.counted_oom_kills", lambda: counted)
    monkeypatch.setattr("trainwiz.core.nodes.node.kernel_oom_kills", lambda: counted or 0)
    log = tmp_path / "train.log"
    write = last_words_of(RunFolder(tmp_path), introduce(1, 2, 1), log)
    log.write_text(KILLED)
    write(1)
    said = json.loads((tmp_path / "failure-rank1-node.json").read_text())
    assert [finding["code"] for finding in said["findings"]] == ["node_lost"]
    assert said["message"].startswith("On node 1 (") and "SIGKILL" in said["message"]
