"""cgroup limits, from folders that look like the kernel's."""

from __future__ import annotations

from pathlib import Path

from trainwiz.core.hardware import host
from trainwiz.core.hardware.host import Limits, read_limits

from tests.each import each

MIB = 1024**2
GIB = 1024**3

V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def machine(root: Path, cgroup: str, mounts: str, files: dict[str, object]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    (root / "proc/self/mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + mounts)
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def v2(root: Path, files: dict[str, object]) -> Path:
    return machine(
        root, "0::/user.slice/job\n", V2_MOUNT, {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    )


@each(
    ("job", "above", "limits"),
    [
        (
            {"memory.max": 8 * GIB, "memory.current": 3 * GIB, "cpu.max": "250000 100000",
             "memory.stat": f"anon 100\ninactive_file {1 * GIB}\nactive_file 5"},
            {}, Limits(8 * GIB, 6 * GIB, 2.5),
        ),
        (
            {"memory.max": "max", "cpu.max": "max 100000"},
            {"memory.max": 4 * GIB, "memory.current": 1 * GIB, "cpu.max": "100000 100000"},
            Limits(4 * GIB, 3 * GIB, 1.0),
        ),
        ({"memory.max": "max", "cpu.max": "max 100000"}, {}, Limits()),
    ],
)  # fmt: skip
def test_version_2_where_the_tightest_level_counts(
    tmp_path: Path, job: dict[str, object], above: dict[str, object], limits: Limits
) -> None:
    files = {f"user.slice/job/{name}": value for name, value in job.items()}
    assert (
        read_limits(v2(tmp_path, {**files, **{f"user.slice/{name}": value for name, value in above.items()}})) == limits
    )


def test_a_container_sees_its_group_at_the_mount(tmp_path: Path) -> None:
    """Docker without a cgroup namespace: the path is the host's, the mount shows the container's group as its root."""
    mount = V2_MOUNT.replace(" / /sys", " /docker/abc /sys")
    files = {"sys/fs/cgroup/memory.max": 2 * GIB, "sys/fs/cgroup/memory.current": 1 * GIB}
    root = machine(tmp_path, "0::/docker/abc\n", mount, files)
    assert read_limits(root) == Limits(2 * GIB, 1 * GIB, None)


def test_version_1(tmp_path: Path) -> None:
    mounts = (
        "33 32 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "34 32 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    )
    files: dict[str, object] = {
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": 6 * GIB,
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": 2 * GIB,
        "sys/fs/cgroup/memory/job/memory.stat": f"inactive_file 1\ntotal_inactive_file {512 * MIB}",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": 9223372036854771712,
        "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": 350000,
        "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": 100000,
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": -1,
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": 100000,
    }
    root = machine(tmp_path, "4:memory:/job\n2:cpu,cpuacct:/job\n0::/\n", mounts, files)
    assert read_limits(root) == Limits(6 * GIB, 4 * GIB + 512 * MIB, 3.5)


@each("content", ["", "rubbish", "0::", "\x00\xff"])
def test_unreadable_files_are_no_limit(tmp_path: Path, content: str) -> None:
    assert read_limits(machine(tmp_path, content, content, {})) == Limits()
    assert read_limits(tmp_path / "nothing") == Limits()


def test_ram_and_cores_respect_the_limits(tmp_path: Path) -> None:
    limit = 64 * MIB
    root = v2(
        tmp_path,
        {
            "user.slice/job/memory.max": limit,
            "user.slice/job/memory.current": 24 * MIB,
            "user.slice/job/cpu.max": "50000 100000",
        },
    )
    assert host.read_memory(root) == host.Memory(limit, 40 * MIB, limited=True)
    assert host.count_cores(root) == 1
