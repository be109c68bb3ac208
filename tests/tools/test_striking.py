"""Failures on purpose: their grammar, and when they strike."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from tests.each import each
from tools.faults.striking import FAULTS_VARIABLE, Faults


def faults(text: str, folder: Path) -> Faults:
    return Faults.of_environment(folder, {FAULTS_VARIABLE: text})


@each("text", ["oom", "oom@", "oom@0", "oom@x", "rain@3", "oom@3:deep", "oom@3:during=lunch", "@3"])
def test_what_is_no_fault_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=FAULTS_VARIABLE):
        faults(text, tmp_path)


def test_it_strikes_at_its_step_and_moment_and_above_its_size_alone(tmp_path: Path) -> None:
    some = faults("oom@7:above=3; nan@8; host_oom@9:during=evaluation; disk@9:during=saving", tmp_path)
    some.strike("training", 6, 8)
    some.strike("evaluation", 7, 8)
    some.strike("training", 7, 3)
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        some.strike("training", 7, 4)
    assert some.strike("training", 8, 4)
    with pytest.raises(MemoryError):
        some.strike("evaluation", 9, 4)
    with pytest.raises(OSError, match="No space left"):
        some.strike("saving", 9, 4)


def test_a_rank_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert not faults("error@3:rank=0", tmp_path).strike("training", 3, 1)
    with pytest.raises(ValueError, match="on purpose"):
        faults("error@3:rank=1", tmp_path).strike("training", 3, 1)


def test_once_is_for_the_first_attempt_and_for_all_its_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        with pytest.raises(torch.distributed.DistBackendError):
            faults("nccl@3:once", tmp_path).strike("training", 3, 1)
    # A note that another rank has only just made is of this attempt too; that of an earlier one is not.
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert not faults("nccl@3:once", tmp_path).strike("training", 3, 1)
