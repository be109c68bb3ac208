from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch.utils import cpp_extension
from torch.utils.file_baton import FileBaton
from trainwiz.core.training.engine import LONGEST_BUILD_S, KernelBaton, use_kernel_locks

HOLD = (
    "import sys, time; from trainwiz.core.training.engine import KernelBaton\n"
    "assert KernelBaton(sys.argv[1]).try_acquire(); print('held', flush=True); time.sleep(60)"
)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def holder(lock: Path) -> subprocess.Popen[str]:
    started = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None and started.stdout.readline() == "held\n"
    return started


def test_the_lock_of_a_killed_process_is_taken_over(lock: Path) -> None:
    other = holder(lock)
    mine = KernelBaton(str(lock))
    assert not mine.try_acquire()
    other.kill()
    other.wait()
    assert lock.exists()
    assert mine.try_acquire()
    assert not KernelBaton(str(lock)).try_acquire()
    mine.release()
    assert not lock.exists()


def test_waiting_ends_with_the_process_that_is_waited_for(lock: Path) -> None:
    other = holder(lock)
    other.kill()
    other.wait()
    with pytest.raises(RuntimeError, match="start again"):
        KernelBaton(str(lock)).wait()
    assert not lock.exists()


def test_a_lock_of_another_program_counts_until_it_is_old(lock: Path) -> None:
    assert FileBaton(str(lock)).try_acquire()
    assert not KernelBaton(str(lock)).try_acquire()
    old = time.time() - LONGEST_BUILD_S - 1
    os.utime(lock, (old, old))
    mine = KernelBaton(str(lock))
    assert mine.try_acquire()
    assert not FileBaton(str(lock)).try_acquire()
    mine.release()
    KernelBaton(str(lock)).wait()


def test_extensions_are_built_under_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp_extension, "FileBaton", FileBaton)
    use_kernel_locks()
    assert cpp_extension.FileBaton is KernelBaton  # type: ignore[attr-defined]
