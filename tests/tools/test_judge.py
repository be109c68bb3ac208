"""The judge sees what it must see: each bad outcome fed to it is called by its name, and a good one is not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.each import each
from tools.faults.fault import Fault, Moment
from tools.faults.judge import judge
from tools.faults.observation import End, Observation, Start
from tools.faults.scenario import STEPS
from tools.faults.tensors import compare

KILLED = Fault(1, "signal", "esm", "rank0", "SIGKILL", Moment("step", 7.0))
FAILED = End("failed", "unknown", "A training process was terminated by an external SIGKILL.", last_step=7)


def good() -> Observation:
    """A rank was killed at step 7 with step 6 saved, the run was taken up again there and finished."""
    starts = [Start(1, 0, (3, 6)), Start(2, 6, (9, 12, 15, 16))]
    return Observation(
        KILLED,
        injected=True,
        shown={"start": "step 7/16", "resume": "Finished"},
        codes={"start": 1, "resume": 0},
        end=FAILED,
        last=End("finished"),
        starts=starts,
        starts_before_resume=starts[:1],
        compared=60,
    )


def kinds(seen: Observation) -> list[str]:
    return [problem.kind for problem in judge(seen)]


TRACEBACK = 'Traceback (most recent call last):\n  File "x.py"\nKeyError: 1'
BY_THE_FRONT = replace(KILLED, target="front", how="SIGTERM")
STOPPED = End("stopped", "user_stop", last_step=7)
EARLY = [Start(1, 0, (3, 6)), Start(2, 3, (6, 9))]
CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []), ({"orphans": ["4711: python -m trainwiz.core.training ."]}, ["orphan"]),
    ({"starts": EARLY}, ["lost_steps"]),
    # Unless the fault itself destroyed that save.
    ({"starts": EARLY, "damaged": frozenset({6})}, []), ({"fault": BY_THE_FRONT, "end": STOPPED}, ["lost_steps"]),
    ({"fault": BY_THE_FRONT, "end": replace(STOPPED, on_purpose_at_once=True)}, []),
    ({"differences": ["final_model/model.safetensors: a differs by 1e-06 of 1"]}, ["wrong_resume"]),
    ({"compared": 0}, ["wrong_resume"]), ({"shown": {"runs show": TRACEBACK}}, ["traceback"]),
    ({"end": End("stopped", "user_stop", "Stopped by you.")}, ["ending"]), ({"end": End("running")}, ["ending"]),
    ({"end": End("failed", "cuda_oom", "The GPU ran out of memory after SIGKILL.")}, ["diagnosis"]),
    ({"end": End("failed", "unknown", "The training ended with exit code 1.")}, ["diagnosis"]),
    ({"end": End("finished", failed=(("disk_full", "The disk is full."),))}, ["diagnosis"]),
    ({"hung": ["the run did not end in 150 s: it is running"], "end": End("running")}, ["hang"]),
    ({"diagnosed": "unknown"}, []), ({"diagnosed": "cuda_oom"}, ["diagnosis"]),
    ({"last": End("failed", "python_error", "KeyError")}, ["ending"]),
    ({"codes": {"start": 1, "resume": 0, "diagnose": -11}}, ["ending"]),
    ({"fault": replace(KILLED, target="front"), "end": replace(STOPPED, last_step=6), "codes": {"start": -9}}, []),
]  # fmt: skip
"""What is otherwise than in a good outcome, and what the judge must call it."""


@each(("changes", "called"), CASES)
def test_each_bad_outcome_is_called_by_its_name(changes: dict[str, Any], called: list[str]) -> None:
    seen = good()
    for name, value in changes.items():
        setattr(seen, name, value)
    assert kinds(seen) == called


def _run(folder: Path, weight: float, loss: float) -> Path:
    for name in ("final_model", f"checkpoint-{STEPS}"):
        (folder / name).mkdir(parents=True)
        save_file({"a": torch.full((4,), weight)}, folder / name / "model.safetensors")
    state = {"state": {0: {"exp_avg": torch.full((4,), weight)}}}
    torch.save(state, folder / f"checkpoint-{STEPS}" / "optimizer.pt")
    (folder / "metrics.jsonl").write_text(f'{{"step": 1, "loss": {loss}}}\n')
    return folder


def test_tensors_and_losses_are_really_compared(tmp_path: Path) -> None:
    undisturbed = _run(tmp_path / "undisturbed", 1.0, 2.0)
    assert compare(undisturbed, _run(tmp_path / "same", 1.0, 2.0)) == ([], 3)
    changed, _ = compare(undisturbed, _run(tmp_path / "changed", 1.0 + 1e-6, 2.0))
    assert len(changed) == 3
    assert compare(undisturbed, tmp_path / "changed", exact=False)[0] == []
    other_loss, _ = compare(undisturbed, _run(tmp_path / "other", 1.0, 2.5), exact=False)
    assert other_loss == ["loss of step 1: 2.5 instead of 2.0"]
    missing, _ = compare(undisturbed, tmp_path / "nothing")
    assert len(missing) == 3
