"""Which interfaces other nodes can reach, and which InfiniBand adapters there are."""

import socket
from collections import namedtuple
from pathlib import Path

import psutil
import pytest
from trainwiz.core.hardware import host as network

Address = namedtuple("Address", "family address")
State = namedtuple("State", "isup")

HEADER = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
DOWN, NO_ADDRESS = "enp9s0", "enp8s0"


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    names = ["lo", "docker0", "veth12", "br-33", "wlan0", "eno1", DOWN, NO_ADDRESS]
    addresses = {name: [Address(socket.AF_INET, "10.0.0.1")] for name in names}
    addresses[NO_ADDRESS] = [Address(socket.AF_INET6, "fe80::1")]
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {name: State(name != DOWN) for name in names})
    (tmp_path / "proc/net").mkdir(parents=True)
    return tmp_path


ROUTES = (
    "eno1\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF",
    "eno1\t00000000\t0100000A\t0003\t0\t0\t600\t00000000",
    "wlan0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000",
)


def test_the_interface_of_the_default_route_is_first_and_others_are_in_order(box: Path) -> None:
    for lines, first in ((ROUTES, "wlan0"), ((), "eno1"), (("eno1",), "eno1"), (("\x00\xff",), "eno1")):
        (box / "proc/net/route").write_text(HEADER + "".join(line + "\n" for line in lines))
        assert network.interfaces(box)[0] == first and set(network.interfaces(box)) == {"eno1", "wlan0"}
    assert network.interfaces(box / "nothing") == ("eno1", "wlan0")


def test_adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    assert network.infiniband_adapters(tmp_path) == ()
    for name in ("mlx5_1", "mlx5_0"):
        (tmp_path / "sys/class/infiniband" / name).mkdir(parents=True)
    assert network.infiniband_adapters(tmp_path) == ("mlx5_0", "mlx5_1")
    monkeypatch.setattr("sys.platform", "darwin")
    assert network.infiniband_adapters(tmp_path) is None
