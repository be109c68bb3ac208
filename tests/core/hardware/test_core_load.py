import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from trainwiz.core.hardware.cgroup import cpu_groups, cpu_used_s
from trainwiz.core.hardware.core_load import Bound, CoreLoad, bounds_of_this_process

from tests.core.hardware.test_cgroup import v2


@dataclass
class Machine:
    """A clock, and what was used of some bounds."""

    now_s: float = 0.0
    own_s: float = 0.0
    used_s: dict[str, float | None] = field(default_factory=dict)

    def load(self, **cores: float) -> CoreLoad:
        bounds = [Bound(number, lambda name=name: self.used_s[name]) for name, number in cores.items()]  # type: ignore[misc]
        return CoreLoad(bounds, lambda: self.own_s, lambda: self.now_s)

    def passes(self, seconds: float, own: float, **used: float) -> None:
        """Cores that were busy meanwhile."""
        self.now_s += seconds
        self.own_s += seconds * own
        for name, cores in used.items():
            self.used_s[name] = (self.used_s[name] or 0.0) + seconds * cores


def test_what_others_take_is_missing() -> None:
    machine = Machine(used_s={"cores": 50.0})
    load = machine.load(cores=4)
    machine.passes(0.5, own=4, cores=4)
    assert load.missing(4) == pytest.approx(0)
    machine.passes(0.5, own=3, cores=4)
    assert load.missing(4) == pytest.approx(1)
    assert load.missing(4) == pytest.approx(0), "nothing since the last look"
    machine.passes(0.5, own=2, cores=4)
    assert load.missing(2) == pytest.approx(0), "another process of the run has the other half"
    machine.passes(0.5, own=1.9, cores=1.6)
    assert load.missing(4) == pytest.approx(0), "the kernel's books of the machine and of a process differ"


def test_the_tightest_bound_counts() -> None:
    machine = Machine(used_s={"cores": 0.0, "quota": 0.0})
    load = machine.load(cores=16, quota=4)
    machine.passes(1, own=4, cores=12, quota=4)
    assert load.missing(4) == pytest.approx(0)
    machine.passes(1, own=3, cores=3, quota=4.0)
    assert load.missing(4) == pytest.approx(1)
    machine.passes(1, own=4, cores=16, quota=4)
    assert load.missing(6) == pytest.approx(2)


def test_a_bound_that_says_nothing_is_never_free() -> None:
    machine = Machine(used_s={"cores": 0.0, "quota": None})
    load = machine.load(cores=16, quota=4)
    machine.passes(1, own=1, cores=1)
    assert load.missing(1) == float("inf")


def test_a_quota_of_version_2(tmp_path: Path) -> None:
    root = v2(
        tmp_path,
        {"user.slice/job/cpu.max": "250000 100000", "user.slice/job/cpu.stat": "usage_usec 7500000\nuser_usec 1\n"},
    )
    ((group, cores),) = cpu_groups(root)
    assert (cores, cpu_used_s(group)) == (2.5, 7.5)
    bounds = bounds_of_this_process(root)
    assert [bound.cores for bound in bounds] == [len(os.sched_getaffinity(0)), 2.5]
    assert bounds[1].used_s() == 7.5
    (group / "cpu.stat").write_text("nr_periods 1\n")
    assert cpu_used_s(group) is None


def test_usage_of_version_1(tmp_path: Path) -> None:
    (tmp_path / "cpuacct.usage").write_text("3000000000\n")
    assert cpu_used_s(tmp_path) == 3.0


def test_the_cores_of_this_process_are_read_as_they_are() -> None:
    bound = bounds_of_this_process()[0]
    before, own = bound.used_s(), time.process_time()
    while time.process_time() < own + 0.3:
        pass
    after = bound.used_s()
    assert before is not None and after is not None
    # Ticks of 10 ms; other processes only add to it.
    assert after - before >= 0.2


@pytest.mark.parametrize("shown", [PermissionError("hidden"), []])
def test_where_the_system_does_not_say_the_cores_are_never_free(shown: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def cpu_times(percpu: bool) -> object:
        if isinstance(shown, OSError):
            raise shown
        return shown

    monkeypatch.setattr(psutil, "cpu_times", cpu_times)
    assert CoreLoad(bounds_of_this_process()).missing(1) == float("inf")
