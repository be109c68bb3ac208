"""Waiting for the moment of a fault, by watching the run folder as any program may."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

from tools.faults.fault import Moment
from tools.faults.observation import last_step
from tools.faults.scenario import EVALUATE_EVERY

LOOK_EVERY_S = 0.003
CHECKPOINT = re.compile(r"checkpoint-(\d+)(?:\.partial)?")


def wait_for(moment: Moment, run: Path, undisturbed_s: float, over: Callable[[], bool]) -> bool:
    """True once the moment is there; False when the run was over before. `over` must be quick."""
    reached = _TESTS[moment.kind]
    began = time.monotonic()
    while not reached(moment, run, (time.monotonic() - began) / undisturbed_s):
        if over():
            return False
        time.sleep(LOOK_EVERY_S)
    return True


def _time(moment: Moment, run: Path, share: float) -> bool:
    return share >= moment.at


def _preparation(moment: Moment, run: Path, share: float) -> bool:
    return (run / "train.log").is_file() and not (run / "engine.json").exists()


def _step(moment: Moment, run: Path, share: float) -> bool:
    return last_step(run) >= moment.at


def _saving(moment: Moment, run: Path, share: float) -> bool:
    """A checkpoint that has begun and has not got its last file."""
    try:
        names = [path for path in run.iterdir() if CHECKPOINT.fullmatch(path.name)]
    except OSError:
        return False
    for path in names:
        found = CHECKPOINT.fullmatch(path.name)
        if found and int(found[1]) >= moment.at and not (path / "trainer_state.json").exists():
            return True
    return False


def _evaluation(moment: Moment, run: Path, share: float) -> bool:
    try:
        phase = json.loads((run / "phase.json").read_text()).get("phase")
    except (OSError, ValueError, AttributeError):
        phase = None
    return phase == "evaluating" or (last_step(run) == EVALUATE_EVERY)


def _final(moment: Moment, run: Path, share: float) -> bool:
    return (run / "final_model.partial").exists() or (run / "final_model").exists()


_TESTS: dict[str, Callable[[Moment, Path, float], bool]] = {
    "time": _time,
    "preparation": _preparation,
    "step": _step,
    "saving": _saving,
    "evaluation": _evaluation,
    "final": _final,
}
