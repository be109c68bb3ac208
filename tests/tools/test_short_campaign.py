"""The short campaign: two real faults. The long one: `make faults`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.all
@pytest.mark.real
@pytest.mark.timeout(1500)
@pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc")
def test_a_killed_rank_and_a_killed_keeper_do_no_harm(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    words = ["--short", "--seed", "1", "--jobs", "2", "--report", str(report)]
    ended = subprocess.run(
        [sys.executable, "-m", "tools.faults", *words],
        cwd=REPOSITORY,
        env={key: value for key, value in os.environ.items() if not key.startswith("TRAINWIZ_")},
        capture_output=True,
        text=True,
        timeout=1300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads(report.read_text())
    assert [trial["not_done"] for trial in found["trials"] if not trial["injected"]] == []
    assert found["faults"] == 2 and set(found["problems"].values()) == {0}
