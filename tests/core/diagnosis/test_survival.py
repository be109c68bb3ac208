"""A failure that the training has survived is no cause; one that nothing came after is."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainwiz.core.diagnosis import log_file as kernel
from trainwiz.core.diagnosis.cause import Evidence, KernelFacts
from trainwiz.core.diagnosis.diagnose import diagnose
from trainwiz.core.diagnosis.log_file import read_log
from trainwiz.core.diagnosis.scan import SURVIVED_AFTER, LogScan, lines_in

FAILURE = "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1, unhandled system error"


def causes(*lines: str) -> list[str]:
    scan = LogScan()
    for number, line in enumerate(lines, 1):
        for one in lines_in(line):
            scan.feed(number, one)
    return [hit.cause for hit in scan.facts().hits]


def bar(step: int) -> str:
    return f" {step}%|#    | {step}/100 [00:01<00:19,  4.9it/s]"


@pytest.mark.parametrize("after", [SURVIVED_AFTER - 1, SURVIVED_AFTER])
def test_so_many_steps_later_it_is_survived(after: int) -> None:
    steps = [bar(8 + step) for step in range(after)]
    assert causes(bar(7), FAILURE, *steps) == ([] if after == SURVIVED_AFTER else ["nccl_error"])
    metrics = [f"{{'loss': 2.5, 'epoch': {step}}}" for step in range(after)]
    assert causes(FAILURE, *metrics) == ([] if after == SURVIVED_AFTER else ["nccl_error"])


def test_a_bar_that_is_drawn_again_is_no_step() -> None:
    assert causes(bar(7), FAILURE, *[bar(7)] * 20) == ["nccl_error"]


def test_the_first_rank_of_the_table_is_the_root(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    earlier = "one\ntwo\n"
    log.write_text(f"{earlier}Root Cause (first observed failure):\n  rank      : 1 (local_rank: 1)\n  rank : 0\n")
    facts = read_log(log, len(earlier))
    assert facts.root_rank == 1
    assert facts.root_line.number == 4, "lines count from the beginning of the file"


def test_the_kernel_is_no_cause_where_the_training_had_failed_of_itself() -> None:
    killed = KernelFacts(told=True, oom_kills=1)
    scan = LogScan()
    assert diagnose(Evidence(exit_code=-9, log=scan.facts(), kernel=killed)).cause == "host_oom"
    (line,) = lines_in("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    scan.feed(1, line)
    assert diagnose(Evidence(exit_code=1, log=scan.facts(), kernel=killed)).cause == "cuda_oom"


def test_the_kernel_tells_of_the_time_of_the_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "Out of memory: Killed process 77 (python) total-vm:1kB"
    monkeypatch.setattr(kernel, "read_kmsg", lambda: [(99.0, said), (101.0, said), (400.0, said)])
    assert len(kernel.kernel_facts(100.0, 200.0).lines) == 1
    assert len(kernel.kernel_facts(100.0, None).lines) == 2
