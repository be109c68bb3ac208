"""A disk without room: fewer checkpoints are kept, then the training waits, and what is saved stays whole."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.run.attempts import read_phase
from trainwiz.core.run.checkpoints import complete_checkpoints, list_checkpoints
from trainwiz.core.run.folder import RunFolder

from tests.core.training.runs import start, tiny_config, write_run

pytestmark = pytest.mark.real
PATIENCE_S = 600.0
SIZE_MIB = 48
BLOCK_BYTES = 1 << 18
BALLOON = "of-others"
"""A file that takes room as other users of the disk would."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """An empty tmpfs of SIZE_MIB; skips where none may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("there is no mount command here, so no small file system")
    made = subprocess.run([mount, "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(place)], capture_output=True)
    if made.returncode != 0:
        pytest.skip("this user may mount no tmpfs; run as root, or the whole of pytest under `unshare -Urm`")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path, leave_bytes: int) -> Path:
    """Take all room that is there now but about `leave_bytes`; the file that does it, which grows at each call."""
    balloon = disk / BALLOON
    with balloon.open("ab", buffering=0) as file:
        # A run beside it takes and gives back room meanwhile.
        while (free := shutil.disk_usage(disk).free - leave_bytes) > 0:
            try:
                file.write(b"\1" * min(free, BLOCK_BYTES))
            except OSError:
                return balloon
    return balloon


@pytest.fixture(autouse=True)
def nothing_is_left(small_disk: Path) -> Iterator[None]:
    """Whatever a test has found, no process of its run outlives it."""
    yield
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if (entry / "cwd").readlink().is_relative_to(small_disk):
                    os.kill(int(entry.name), signal.SIGKILL)


LEFT_BYTES = 3 << 20
"""Too little for a checkpoint even where an older one goes; enough for lines of a log."""


def config(**changes: Any) -> RunConfig:
    """A checkpoint takes about 8 MiB, so that four or five fill the disk."""
    wide = {"num_hidden_layers": 3, "hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 4}
    return tiny_config(
        **{
            "model__architecture_overrides": wide,
            # Steps slow enough to fill the disk between two of them.
            "batch__gradient_accumulation_steps": 24,
            "training__max_steps": 40,
            "checkpoint__every_steps": 2,
            "checkpoint__keep": 30,
            "evaluation__every_steps": 100,
            **changes,
        }
    )


def wait(run: RunFolder, good: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not good():
        assert time.monotonic() < deadline and not run.file("outcome.json").exists(), run.train_log.read_text(
            errors="replace"
        )[-3000:]
        time.sleep(0.05)


def is_paused(run: RunFolder) -> bool:
    phase = read_phase(run)
    return phase is not None and phase.phase == "paused"


def wait_for_pause(run: RunFolder, disk: Path) -> None:
    """Others take whatever becomes free."""
    wait(run, lambda: bool(fill(disk, LEFT_BYTES)) and is_paused(run))


def advice(run: RunFolder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.file("advice.jsonl").read_text().splitlines()]


def complete_steps(run: RunFolder) -> list[int]:
    return [found.step for found in complete_checkpoints(run)]


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.all)])
def test_fewer_are_kept_then_the_run_waits_and_goes_on(small_disk: Path, processes: int) -> None:
    strategy = "single" if processes == 1 else "ddp"
    wanted = config(engine__processes=processes, engine__strategy=strategy)
    run = RunFolder(write_run(small_disk / "run", wanted))
    process = start(run.path, wanted)
    wait(run, lambda: "to free space for the next checkpoint" in run.train_log.read_text(errors="replace"))
    wait_for_pause(run, small_disk)
    # All but the last good one made room; nothing is half written.
    wait(run, lambda: len(complete_steps(run)) == 1)
    assert all(found.problem is None for found in list_checkpoints(run))
    standing = advice(run)[-1]
    assert standing["code"] == "waiting_for_disk" and standing["severity"] == "error"
    assert "MiB free and the checkpoint needs" in standing["text"]
    assert process.poll() is None
    (small_disk / BALLOON).unlink()
    assert process.wait(PATIENCE_S) == 0, run.train_log.read_text(errors="replace")[-3000:]
    assert advice(run)[-1]["severity"] == "cleared"
    assert complete_steps(run)[-1] == 40
    assert json.loads(run.file("outcome.json").read_text())["outcome"] == "finished"
