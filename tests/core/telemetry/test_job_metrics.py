"""Where a job's metrics lie, while it begins to write them."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter
from trainwiz.core.run.lost import identify
from trainwiz.core.telemetry.discovery import recognise
from trainwiz.core.telemetry.job import Job
from trainwiz.core.telemetry.job_metrics import Clues, find_metrics
from trainwiz.core.telemetry.processes import ProcessTable


@pytest.mark.parametrize(("is_trainer", "kind"), [(True, "trainer"), (False, "tensorboard")])
def test_whose_event_file_it_is_shows_with_its_first_event(is_trainer: bool, kind: str, tmp_path: Path) -> None:
    """A Trainer names its arguments in its event file a moment after it began it; its metrics have other names."""
    here = identify(os.getpid())
    assert here is not None
    job = Job((here,), "train.py", "python train.py")
    out = tmp_path / "out"

    def kinds() -> str | None:
        clues = Clues(cwd=tmp_path, pids=frozenset([here.pid]), outputs=(out,), folders=(out, tmp_path))
        found = find_metrics(job, clues, ProcessTable(), recognise)
        return found.target.kind if found is not None and found.rank == 0 else None

    with SummaryWriter(str(out / "runs" / f"{time.strftime('%b%d')}_{platform.node()}")) as writer:
        writer.flush()
        assert len(list(out.rglob("*tfevents*"))) == 1
        assert kinds() is None
        if is_trainer:
            writer.add_text("args", '{"max_steps": 5}')
        else:
            writer.add_scalar("loss", 1.0, 1)
        writer.flush()
        assert kinds() == kind
