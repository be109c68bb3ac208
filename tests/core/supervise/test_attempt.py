"""What a new start finds in the folder of a run that was killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainwiz.core.files import ROWS
from trainwiz.core.run.folder import ADAPTER, BASE_MODEL, FINAL_MODEL, GENERATIONS, PARTIAL, TOKENIZER, TRACE, RunFolder
from trainwiz.core.run.state import RunState
from trainwiz.core.supervise.attempt import CannotStart, begin_attempt, choose_checkpoint, put_away_last_attempt

from tests.core.run.checkpoint_files import cut, write_adapter

WHOLE = (TOKENIZER, BASE_MODEL, ROWS, TRACE)


def killed(folder: Path) -> RunFolder:
    """Killed while it wrote its final model, its adapter and a checkpoint."""
    for name in (*WHOLE, f"{FINAL_MODEL}{PARTIAL}", f"{ADAPTER}{PARTIAL}"):
        (folder / name).mkdir()
        (folder / name / "file").write_text(name)
    (folder / GENERATIONS).write_text("{}\n")
    (folder / "outcome.json").write_text("{}")
    write_adapter(folder, 4)
    cut(write_adapter(folder, 8) / "adapter_model.safetensors")
    return RunFolder(folder)


def test_what_is_whole_stays_and_what_is_not_is_put_away(tmp_path: Path) -> None:
    run = killed(tmp_path)
    state = RunState(status="lost")
    checkpoint = begin_attempt(run, state, "auto", "mark")
    assert checkpoint == tmp_path / "checkpoint-4"
    assert all((tmp_path / name / "file").read_text() == name for name in WHOLE)
    assert run.generations_jsonl.read_text() == "{}\n"
    assert not list(tmp_path.glob(f"*{PARTIAL}"))
    away = tmp_path / "attempts" / "0"
    assert sorted(path.name for path in away.iterdir()) == ["adapter.partial", "final_model.partial", "outcome.json"]
    assert (tmp_path / "broken-checkpoint-8" / "adapter_config.json").is_file()
    assert "adapter_model.safetensors is truncated" in state.attempts[0].set_aside[0]


def test_the_same_thing_twice_loses_neither(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for text in ("first", "second"):
        (tmp_path / f"{FINAL_MODEL}{PARTIAL}").mkdir()
        (tmp_path / f"{FINAL_MODEL}{PARTIAL}" / "file").write_text(text)
        put_away_last_attempt(run, 1)
    found = sorted(path.read_text() for path in (tmp_path / "attempts" / "1").glob("*/file"))
    assert found == ["first", "second"]


def test_a_checkpoint_by_name_is_refused_where_it_is_not_complete(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for step in (4, 8, 12):
        write_adapter(tmp_path, step)
    cut(tmp_path / "checkpoint-12" / "optimizer.pt")
    for name in ("checkpoint-12", "checkpoint-77"):
        with pytest.raises(CannotStart, match="complete checkpoints: checkpoint-4, checkpoint-8"):
            choose_checkpoint(run, name)
    assert (tmp_path / "checkpoint-12").exists()
    chosen, said = choose_checkpoint(run, "checkpoint-4")
    assert chosen.step == 4 and len(said) == 2
    assert (tmp_path / "broken-checkpoint-12").exists() and (tmp_path / "later-checkpoint-8").exists()
