"""A failure that the training has survived is no cause; one that nothing came after is."""

from __future__ import annotations

import pytest
from trainwiz.core.diagnosis.line_text import lines_in
from trainwiz.core.diagnosis.scan import SURVIVED_AFTER, LogScan

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
