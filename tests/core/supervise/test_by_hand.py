"""Several processes of one launch.sh: who keeps the run, and who is another run."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.lost import LOCK_FILE
from trainwiz.core.run.state import read_state
from trainwiz.core.supervise.by_hand import KeptByHand, refuse_active

RANK_0 = """
import os, sys, time
from pathlib import Path
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.lost import RunLock
from trainwiz.core.run.lost import identify, machine_identity
from trainwiz.core.run.state import RunState, write_state
run = RunFolder(Path(sys.argv[1]))
lock = RunLock.take(run.path)
print("held", flush=True)
time.sleep(1.0)
if sys.argv[2] == "writes":
    me = identify(os.getpid())
    write_state(run, RunState(status="starting", machine=machine_identity(), supervisor=me, heartbeat_s=time.time()))
time.sleep(600)
"""


@pytest.mark.parametrize("writes", ["writes", "never writes"])
def test_rank_0_of_the_same_launcher_is_no_other_run_before_it_wrote_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: str
) -> None:
    command = [sys.executable, "-c", RANK_0, str(tmp_path), writes]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        assert read_state(RunFolder(tmp_path)).is_active
        with monkeypatch.context() as patch:
            patch.setattr(os, "getppid", os.getpid)
            if writes == "writes":
                refuse_active(tmp_path, patience_s=100.0)
            else:
                with pytest.raises(UsageError, match="is already running"):
                    refuse_active(tmp_path, patience_s=0.5)
        # The run of another launcher is another run.
        with pytest.raises(UsageError, match="is already running"):
            refuse_active(tmp_path, patience_s=0.1)
        process.kill()


def test_somebody_who_looks_at_the_lock_does_not_prevent_the_start(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    threading.Timer(0.1, os.close, (descriptor,)).start()
    before = signal.getsignal(signal.SIGUSR1)
    began = time.monotonic()
    try:
        kept = KeptByHand.begin(tmp_path, None, lambda: False)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert time.monotonic() - began >= 0.1
    assert read_state(RunFolder(tmp_path)).status == "starting"
    kept.end(1)
    assert read_state(RunFolder(tmp_path)).status == "failed"
