"""`trainwiz monitor X --once --json` on every Trainer folder of the real data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.telemetry.trainer_folder import trainer_name
from trainwiz.tui.cli import main

from tests.core.telemetry.event_writers import accumulated


def once(capsys: pytest.CaptureFixture[str], path: Path) -> tuple[int, dict[str, Any]]:
    code = main(["monitor", str(path), "--once", "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_trainer_folders(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = sorted((shared_data / "wild" / "trainer").iterdir())
    assert len(folders) >= 15
    for folder in folders:
        code, document = once(capsys, folder)
        state = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
        counts: dict[str, int] = {}
        for row in state["log_history"]:
            for name, value in row.items():
                if name not in ("step", "epoch") and isinstance(value, int | float):
                    counts[name] = counts.get(name, 0) + 1
        for file in folder.rglob("*tfevents.*"):
            tags = {tag: len(points) for tag, points in accumulated(file).items() if tag != "train/epoch"}
            counts |= {trainer_name(tag): count for tag, count in tags.items()}
        assert (code, document["source"], document["problems"]) == (0, "trainer", []), folder
        assert (document["step"], document["max_steps"]) == (state["global_step"], state["max_steps"]), folder
        assert {name: metric["count"] for name, metric in document["metrics"].items()} == counts, folder
