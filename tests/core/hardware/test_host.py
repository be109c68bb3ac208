"""cgroup limits, interfaces that other nodes can reach, InfiniBand adapters: by folders like the kernel's."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from trainwiz.core.diagnosis.sources import kernel_oom_kills
from trainwiz.core.hardware import host
from trainwiz.core.hardware.host import Memory

from tests.each import each

MIB = 1024**2
GIB = 1024**3


@pytest.fixture(autouse=True)
def _another_computer(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 64 cores; `host.ROOT` is put back."""
    monkeypatch.setattr(host, "ROOT", host.ROOT)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(64), raising=False)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=64 * GIB, available=48 * GIB))


def limited(root: Path, cgroup: str, files: dict[str, object]) -> tuple[Memory, int]:
    """(RAM, cores)."""
    host.ROOT = root
    for name, content in {"proc/self/cgroup": cgroup, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return host.read_memory(), host.count_cores()


FREE = Memory(64 * GIB, 48 * GIB)
JOB, CPU = "sys/fs/cgroup/user.slice/job", "sys/fs/cgroup/cpu"


@each(("cgroup", "files", "expected"), [
    (
        "0::/user.slice/job",
        {f"{JOB}/memory.max": 8 * GIB, f"{JOB}/memory.current": 3 * GIB, f"{JOB}/cpu.max": "250000 100000",
         f"{JOB}/memory.stat": f"anon 100\ninactive_file {1 * GIB}\nactive_file 5"},
        (Memory(8 * GIB, 6 * GIB, limited=True), 2),
    ),
    # The tightest level counts.
    (
        "0::/user.slice/job",
        {f"{JOB}/memory.max": "max", f"{JOB}/cpu.max": "max 100000", "sys/fs/cgroup/user.slice/memory.max": 4 * GIB,
         "sys/fs/cgroup/user.slice/memory.current": 1 * GIB, "sys/fs/cgroup/user.slice/cpu.max": "50000 100000"},
        (Memory(4 * GIB, 3 * GIB, limited=True), 1),
    ),
    ("0::/user.slice/job", {f"{JOB}/memory.max": "max", f"{JOB}/cpu.max": "max 100000"}, (FREE, 64)),
    # Docker without a cgroup namespace: the path is the host's, the mount shows the container's group as its root.
    (
        "0::/docker/abc", {"sys/fs/cgroup/memory.max": 2 * GIB, "sys/fs/cgroup/memory.current": 1 * GIB},
        (Memory(2 * GIB, 1 * GIB, limited=True), 64),
    ),
    (
        "4:memory:/job\n2:cpu,cpuacct:/job\n0::/",
        {"sys/fs/cgroup/memory/job/memory.limit_in_bytes": 6 * GIB,
         "sys/fs/cgroup/memory/job/memory.usage_in_bytes": 2 * GIB,
         "sys/fs/cgroup/memory/job/memory.stat": f"inactive_file 1\ntotal_inactive_file {512 * MIB}",
         "sys/fs/cgroup/memory/memory.limit_in_bytes": 9223372036854771712,
         f"{CPU}/job/cpu.cfs_quota_us": 350000, f"{CPU}/job/cpu.cfs_period_us": 100000,
         f"{CPU}/cpu.cfs_quota_us": -1, f"{CPU}/cpu.cfs_period_us": 100000},
        (Memory(6 * GIB, 4 * GIB + 512 * MIB, limited=True), 3),
    ),
    *((content, {}, (FREE, 64)) for content in ("", "rubbish", "0::", "\x00:\xff", "0::/\x00")),
])  # fmt: skip
def test_limits_of_both_versions(
    tmp_path: Path, cgroup: str, files: dict[str, object], expected: tuple[Memory, int]
) -> None:
    assert limited(tmp_path, cgroup, files) == expected


def test_the_kernel_tells_whom_it_killed_for_memory(tmp_path: Path) -> None:
    for number, (group, name) in enumerate((("0::/user.slice/job", f"{JOB}/memory.events"),
                                            ("4:memory:/job", "sys/fs/cgroup/memory/job/memory.oom_control"))):  # fmt: skip
        limited(tmp_path / str(number), group, {name: "oom 3\noom_kill 2"})
        assert kernel_oom_kills() == 2
    host.ROOT = tmp_path / "nothing"
    assert kernel_oom_kills() is None


HEADER = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
ROUTES = (
    "eno1\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF",
    "wlan0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000",
    "eno1\t00000000\t0100000A\t0003\t0\t0\t600\t00000000",
)


def test_the_interface_of_the_default_route_is_first_and_others_are_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    down, no_address = "enp9s0", "enp8s0"
    names = ["lo", "docker0", "veth12", "br-33", "wlan0", "eno1", down, no_address]
    addresses = {name: [SimpleNamespace(family=socket.AF_INET, address="10.0.0.1")] for name in names}
    addresses[no_address] = [SimpleNamespace(family=socket.AF_INET6, address="fe80::1")]
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {name: SimpleNamespace(isup=name != down) for name in names})
    (tmp_path / "proc/net").mkdir(parents=True)
    host.ROOT = tmp_path
    for lines, first in ((ROUTES, "wlan0"), ((), "eno1"), (("eno1",), "eno1"), (("\x00\xff",), "eno1")):
        (tmp_path / "proc/net/route").write_text(HEADER + "".join(line + "\n" for line in lines))
        assert host.interfaces()[0] == first and set(host.interfaces()) == {"eno1", "wlan0"}
    host.ROOT = tmp_path / "nothing"
    assert host.interfaces() == ("eno1", "wlan0")


def test_adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host.ROOT = tmp_path
    monkeypatch.setattr("sys.platform", "linux")
    assert host.infiniband_adapters() == ()
    for name in ("mlx5_1", "mlx5_0"):
        (tmp_path / "sys/class/infiniband" / name).mkdir(parents=True)
    assert host.infiniband_adapters() == ("mlx5_0", "mlx5_1")
    monkeypatch.setattr("sys.platform", "darwin")
    assert host.infiniband_adapters() is None
