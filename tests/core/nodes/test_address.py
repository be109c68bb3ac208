"""Where node 0 is, and which interface leads to it."""

import socket
from types import SimpleNamespace

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.nodes.address import (
    Address,
    NodeProblem,
    chosen_interface,
    interface_addresses,
    interface_of,
    network_variables,
    parse_address,
)

from tests.each import each

HERE = {
    "lo": ["127.0.0.1", "::1"],
    "eth0": ["10.0.0.5"],
    "eth1": ["10.1.0.5", "fe80::1%eth1"],
    "docker0": ["172.17.0.1"],
}


@each(
    ("text", "address"),
    [
        ("10.0.0.1", Address("10.0.0.1", 29500)),
        (" node-a.cluster:4000 ", Address("node-a.cluster", 4000)),
        ("[fe80::1]:4000", Address("fe80::1", 4000)),
        ("fe80::1", Address("fe80::1", 29500)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address
    assert address.meeting_port == address.port + 1


@each("text", ["", ":29500", "a b", "host:", "host:abc", "host:0", "host:65535", "$(id)", "--main"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match="is not an address of node 0"):
        parse_address(text)


@each(
    ("environment", "interface"),
    [
        ({}, None),
        ({"NCCL_SOCKET_IFNAME": "eth"}, "eth0"),
        ({"NCCL_SOCKET_IFNAME": "^docker0,lo"}, None),
        ({"GLOO_SOCKET_IFNAME": "eth1"}, "eth1"),
        ({"NCCL_SOCKET_IFNAME": "ib0,eth1"}, "eth1"),
    ],
)
def test_the_interface_that_was_chosen(environment: dict[str, str], interface: str | None) -> None:
    assert chosen_interface(environment, HERE) == interface


@each(
    "environment",
    [
        {"NCCL_SOCKET_IFNAME": "=eth"},
        {"GLOO_SOCKET_IFNAME": "eth"},
        {"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "ib0"},
    ],
)
def test_an_interface_that_is_not_here_is_named_with_those_that_are(environment: dict[str, str]) -> None:
    with pytest.raises(NodeProblem) as caught:
        chosen_interface(environment, HERE)
    assert caught.value.code == "wrong_interface"
    assert "eth1 (10.1.0.5)" in caught.value.message


def test_a_cable_that_is_out_makes_no_wrong_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {"eth0": "up,broadcast,multicast", "eth1": "broadcast,multicast", "lo": "up,loopback,running"}
    stats = {name: SimpleNamespace(isup="running" in text, flags=text) for name, text in flags.items()}
    address = SimpleNamespace(family=socket.AF_INET, address="10.0.0.5")
    monkeypatch.setattr("psutil.net_if_stats", lambda: stats)
    monkeypatch.setattr("psutil.net_if_addrs", lambda: {name: [address] for name in flags})
    assert interface_addresses() == {"eth0": ["10.0.0.5"], "lo": ["10.0.0.5"]}


def test_the_interface_of_a_connection_is_used_where_the_user_has_set_none() -> None:
    found = {place: interface_of(place, HERE) for place in ("::ffff:10.1.0.5", "fe80::1%eth1", "10.9.9.9")}
    assert found == {"::ffff:10.1.0.5": "eth1", "fe80::1%eth1": "eth1", "10.9.9.9": None}
    assert network_variables({}, "eth0") == {"NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0"}
    assert network_variables({"GLOO_SOCKET_IFNAME": "eth1"}, "eth0") == {"NCCL_SOCKET_IFNAME": "=eth0"}
    assert network_variables({}, None) == {}
