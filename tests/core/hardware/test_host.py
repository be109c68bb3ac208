"""cgroup limits, interfaces that other nodes can reach, InfiniBand adapters: by folders like the kernel's."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from trainwiz.core.hardware import host
from trainwiz.core.hardware.host import Limits

from tests.each import each

MIB = 1024**2
GIB = 1024**3

V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.fixture(autouse=True)
def _another_computer(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 64 cores; `host.ROOT` is put back."""
    monkeypatch.setattr(host, "ROOT", host.ROOT)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(64), raising=False)


def limits_of(root: Path, cgroup: str, mounts: str, files: dict[str, object]) -> tuple[Limits, int]:
    """(of memory, cores)."""
    host.ROOT = root
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    (root / "proc/self/mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + mounts)
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return host.memory_limits(host.memory_groups()), host.count_cores()


JOB, CPU = "sys/fs/cgroup/user.slice/job", "sys/fs/cgroup/cpu,cpuacct"
V1_MOUNTS = (
    "33 32 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "34 32 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
)


@each(("cgroup", "mounts", "files", "limits"), [
    (
        "0::/user.slice/job\n", V2_MOUNT,
        {f"{JOB}/memory.max": 8 * GIB, f"{JOB}/memory.current": 3 * GIB, f"{JOB}/cpu.max": "250000 100000",
         f"{JOB}/memory.stat": f"anon 100\ninactive_file {1 * GIB}\nactive_file 5"},
        (Limits(8 * GIB, 6 * GIB), 2),
    ),
    # The tightest level counts.
    (
        "0::/user.slice/job\n", V2_MOUNT,
        {f"{JOB}/memory.max": "max", f"{JOB}/cpu.max": "max 100000", "sys/fs/cgroup/user.slice/memory.max": 4 * GIB,
         "sys/fs/cgroup/user.slice/memory.current": 1 * GIB, "sys/fs/cgroup/user.slice/cpu.max": "100000 100000"},
        (Limits(4 * GIB, 3 * GIB), 1),
    ),
    ("0::/user.slice/job\n", V2_MOUNT, {f"{JOB}/memory.max": "max", f"{JOB}/cpu.max": "max 100000"}, (Limits(), 64)),
    # Docker without a cgroup namespace: the path is the host's, the mount shows the container's group as its root.
    (
        "0::/docker/abc\n", V2_MOUNT.replace(" / /sys", " /docker/abc /sys"),
        {"sys/fs/cgroup/memory.max": 2 * GIB, "sys/fs/cgroup/memory.current": 1 * GIB},
        (Limits(2 * GIB, 1 * GIB), 64),
    ),
    (
        "4:memory:/job\n2:cpu,cpuacct:/job\n0::/\n", V1_MOUNTS,
        {"sys/fs/cgroup/memory/job/memory.limit_in_bytes": 6 * GIB,
         "sys/fs/cgroup/memory/job/memory.usage_in_bytes": 2 * GIB,
         "sys/fs/cgroup/memory/job/memory.stat": f"inactive_file 1\ntotal_inactive_file {512 * MIB}",
         "sys/fs/cgroup/memory/memory.limit_in_bytes": 9223372036854771712,
         f"{CPU}/job/cpu.cfs_quota_us": 350000, f"{CPU}/job/cpu.cfs_period_us": 100000,
         f"{CPU}/cpu.cfs_quota_us": -1, f"{CPU}/cpu.cfs_period_us": 100000},
        (Limits(6 * GIB, 4 * GIB + 512 * MIB), 3),
    ),
])  # fmt: skip
def test_limits_of_both_versions(
    tmp_path: Path, cgroup: str, mounts: str, files: dict[str, object], limits: tuple[Limits, int]
) -> None:
    assert limits_of(tmp_path, cgroup, mounts, files) == limits


@each("content", ["", "rubbish", "0::", "\x00\xff"])
def test_unreadable_files_are_no_limit(tmp_path: Path, content: str) -> None:
    assert limits_of(tmp_path, content, content, {}) == (Limits(), 64)
    host.ROOT = tmp_path / "nothing"
    assert host.count_cores() == 64


def test_ram_and_cores_respect_the_limits(tmp_path: Path) -> None:
    files = {"memory.max": 64 * MIB, "memory.current": 24 * MIB, "cpu.max": "50000 100000"}
    in_job = {f"{JOB}/{name}": text for name, text in files.items()}
    assert limits_of(tmp_path, "0::/user.slice/job\n", V2_MOUNT, in_job)[1] == 1
    assert host.read_memory() == host.Memory(64 * MIB, 40 * MIB, limited=True)


HEADER = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
ROUTES = (
    "eno1\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF",
    "eno1\t00000000\t0100000A\t0003\t0\t0\t600\t00000000",
    "wlan0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000",
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
