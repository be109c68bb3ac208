"""Where node 0 is, which interface leads to it, and what a node says of an end of which its processes said nothing."""

import json
from pathlib import Path

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.nodes.address import Address, network_variables, parse_address, plain_address
from trainwiz.core.nodes.node import WorkerNode
from trainwiz.core.run.folder import RunFolder

from tests.core.training.runs import tiny_config
from tests.each import each


@each("counted", [None, 0])
def test_a_kill_is_at_first_a_lost_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: int | None) -> None:
    """In a container without the counter too: the run goes on by itself after a lost node, not after lack of RAM."""
    monkeypatch.setattr("trainwiz.core.nodes.node.killed_since", lambda before: counted)
    node = WorkerNode(RunFolder(tmp_path), tiny_config(engine__nodes=2), 1, Address("127.0.0.1"))
    node.log.parent.mkdir(parents=True)
    cause = "  exitcode  : -9 (pid: 4711)\n  traceback : Signal 9 (SIGKILL) received by PID 4711\n"
    node.log.write_text(f"FAILED\nRoot Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 0)\n{cause}")
    node.last_words(1)
    said = json.loads((tmp_path / "failure-rank1-node.json").read_text())
    assert [finding["code"] for finding in said["findings"]] == ["node_lost"]
    assert said["message"].startswith("On node 1 (") and "SIGKILL" in said["message"]


def test_addresses() -> None:
    for text, address in (
        ("10.0.0.1", Address("10.0.0.1", 29500)), (" node-a.cluster:4000 ", Address("node-a.cluster", 4000)),
        ("[fe80::1]:4000", Address("fe80::1", 4000)), ("fe80::1", Address("fe80::1", 29500)),
    ):  # fmt: skip
        assert parse_address(text) == parse_address(str(address)) == address
    for text in ("", ":29500", "a b", "host:", "host:abc", "host:0", "host:65535", "$(id)", "--main"):
        with pytest.raises(UsageError, match="is not an address of node 0"):
            parse_address(text)


def test_the_interface_of_a_connection_is_used_where_the_user_has_set_none() -> None:
    here = {"lo": ["127.0.0.1", "::1"], "eth0": ["10.0.0.5"], "eth1": ["10.1.0.5", "fe80::1%eth1"]}
    both = {"NCCL_SOCKET_IFNAME": "=eth1", "GLOO_SOCKET_IFNAME": "eth1"}
    for place in ("::ffff:10.1.0.5", "fe80::1%eth1"):
        assert network_variables({}, plain_address(place), here) == both
    assert network_variables({"GLOO_SOCKET_IFNAME": "eth0"}, "10.1.0.5", here) == {"NCCL_SOCKET_IFNAME": "=eth1"}
    assert network_variables({}, "10.9.9.9", here) == {}
