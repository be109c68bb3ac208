"""TrafficSampler: rates of real interfaces and disks, and counters that go back, vanish or cannot be read."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from trainwiz.core.telemetry.machine_history import MachineHistory
from trainwiz.core.telemetry.traffic import MOST_OF_A_KIND, TrafficSampler

MIB = 1024**2


class Counters:
    """What psutil is to say; the clock beside it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.network: Mapping[str, tuple[int, int]] | Exception = {}
        self.disks: Mapping[str, tuple[int, int]] | Exception = {}
        monkeypatch.setattr(psutil, "net_io_counters", lambda **_: self._say(self.network, "bytes_recv", "bytes_sent"))
        monkeypatch.setattr(psutil, "disk_io_counters", lambda **_: self._say(self.disks, "read_bytes", "write_bytes"))

    @staticmethod
    def _say(counters: Mapping[str, tuple[int, int]] | Exception, first: str, second: str) -> dict[str, Any]:
        if isinstance(counters, Exception):
            raise counters
        return {name: SimpleNamespace(**{first: one[0], second: one[1]}) for name, one in counters.items()}


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> Counters:
    return Counters(monkeypatch)


@pytest.fixture
def sampler(counters: Counters, tmp_path: Path) -> TrafficSampler:
    for name in ("nvme0n1", "sda", "loop0", "dm-0"):
        (tmp_path / name).mkdir()
    return TrafficSampler(clock=lambda: counters.now_s, block_folder=tmp_path)


def rates(rows: list[dict[str, Any]]) -> dict[str, tuple[float | None, float | None]]:
    return {row["name"]: (row["in_bytes_per_s"], row["out_bytes_per_s"]) for row in rows}


def test_rates_are_of_the_time_between_two_samples(counters: Counters, sampler: TrafficSampler) -> None:
    counters.network = {"eth0": (1_000, 500)}
    counters.disks = {"sda": (10 * MIB, 0)}
    rows, unavailable = sampler.sample()
    assert rates(rows) == {"eth0": (None, None), "sda": (None, None)}
    assert [row["kind"] for row in rows] == ["network", "disk"]
    assert unavailable == {}
    counters.now_s += 2
    counters.network = {"eth0": (5_000, 600)}
    counters.disks = {"sda": (10 * MIB, 8 * MIB)}
    assert rates(sampler.sample()[0]) == {"eth0": (2_000.0, 50.0), "sda": (0.0, 4.0 * MIB)}


def test_a_counter_that_goes_back_is_no_rate(counters: Counters, sampler: TrafficSampler) -> None:
    """It wrapped around at 32 bits, or the device was plugged in anew."""
    for received, expected in ((2**32 - 100, None), (50, None), (1_050, 1_000.0)):
        counters.network = {"eth0": (received, received)}
        counters.now_s += 1
        assert rates(sampler.sample()[0])["eth0"] == (expected, expected)


def test_a_device_that_vanishes_has_no_row_and_none_when_it_is_back(
    counters: Counters, sampler: TrafficSampler
) -> None:
    counters.network = {"eth0": (100, 100), "wlan0": (100, 100)}
    sampler.sample()
    counters.network = {"eth0": (200, 200)}
    counters.now_s += 1
    assert list(rates(sampler.sample()[0])) == ["eth0"]
    counters.network = {"eth0": (300, 300), "wlan0": (900, 900)}
    counters.now_s += 1
    assert rates(sampler.sample()[0])["wlan0"] == (None, None)


def test_only_what_leads_out_of_the_machine_and_whole_disks(counters: Counters, sampler: TrafficSampler) -> None:
    counters.network = dict.fromkeys(("lo", "eth0", "docker0", "veth12ab", "br-77", "ib0"), (10, 10))
    counters.network = {**counters.network, "eth1": (0, 0)}
    counters.disks = dict.fromkeys(("sda", "sda1", "nvme0n1", "nvme0n1p2", "loop0", "dm-0"), (10, 10))
    assert list(rates(sampler.sample()[0])) == ["eth0", "ib0", "nvme0n1", "sda"]


def test_of_hundreds_of_interfaces_the_busiest_are_shown(counters: Counters, sampler: TrafficSampler) -> None:
    counters.network = {f"eth{number}": (number + 1, 0) for number in range(300)}
    names = list(rates(sampler.sample()[0]))
    assert len(names) == MOST_OF_A_KIND
    assert set(names) == {f"eth{number}" for number in range(300 - MOST_OF_A_KIND, 300)}


def test_what_cannot_be_read_is_a_reason_and_leaves_the_other(counters: Counters, sampler: TrafficSampler) -> None:
    counters.network = PermissionError(13, "Permission denied")
    counters.disks = {"sda": (1, 1)}
    rows, unavailable = sampler.sample()
    assert list(rates(rows)) == ["sda"]
    assert "Permission denied" in unavailable["traffic.network"]
    counters.disks = {}
    assert set(sampler.sample()[1]) == {"traffic.network", "traffic.disk"}


def test_real_bytes_on_the_real_loopback_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwiz.core.telemetry.traffic.INNER_INTERFACES", ())
    if "lo" not in psutil.net_io_counters(pernic=True):
        pytest.skip("this system does not count its loopback")
    sampler = TrafficSampler()
    sampler.sample()
    started_s = time.monotonic()
    _send(4 * MIB)
    rows, _ = sampler.sample()
    span_s = time.monotonic() - started_s
    received, sent = rates(rows)["lo"]
    assert received is not None and sent is not None
    assert received * span_s >= 4 * MIB * 0.9 and sent * span_s >= 4 * MIB * 0.9


def _send(size: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = threading.Thread(target=lambda: _write(server.getsockname()[1], size))
        sender.start()
        connection, _ = server.accept()
        with connection:
            while connection.recv(MIB):
                pass
        sender.join()


def _write(port: int, size: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"x" * size)


def test_the_history_keeps_a_chart_for_each_device() -> None:
    history = MachineHistory()
    for rate in (None, 5.0, 7.0):
        row = {"name": "eth\x1b[31m0", "kind": "network", "in_bytes_per_s": rate, "out_bytes_per_s": 1.0}
        history.add_rows([{"time_s": 1.0, "traffic": [row, "garbage"]}])
    (reading,) = history.host().traffic
    assert (reading.name, reading.kind, reading.in_bytes_per_s) == ("eth0", "network", 7.0)
    assert reading.in_history == (None, 5.0, 7.0)
    assert reading.to_json()["out_bytes_per_s"] == 1.0
