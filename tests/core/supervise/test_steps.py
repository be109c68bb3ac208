"""How many steps a run has is the training process's word, once it has spoken."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainwiz.core.run.folder import RunFolder, write_json_atomic
from trainwiz.core.run.state import RunState
from trainwiz.core.supervise.attempt import take_engine


@pytest.mark.parametrize(("said", "known"), [(90, 90), (None, 129), (0, 129), ("many", 129)])
def test_the_steps_of_the_process_replace_the_planned_ones(tmp_path: Path, said: object, known: int) -> None:
    state, run = RunState(max_steps=129, engine={"planned": "single"}), RunFolder(tmp_path)
    assert not take_engine(state, run) and state.max_steps == 129
    write_json_atomic(run.engine_json, {"actual": "single", "max_steps": said})
    assert take_engine(state, run)
    assert state.max_steps == known
