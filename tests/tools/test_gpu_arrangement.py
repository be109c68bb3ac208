"""The comparison for a GPU: its cases are plans that fit a card, its table says what was measured, tiny ones run on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.estimate.flops import useful_flops
from trainwiz.core.plan.gather import gather, plan_gathered

from tests.each import each
from tools.benchmarks.arrangement_arms import OURS, PLAIN
from tools.benchmarks.arrangement_place import SHARED, Case
from tools.benchmarks.arrangement_table import COLUMNS, table
from tools.benchmarks.arrangement_work import work_of
from tools.benchmarks.gpu_arrangement import cases, main, measure, tiny_cases
from tools.benchmarks.gpu_grid import _model_name
from tools.benchmarks.measured_rows import read_rows

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data")


@each("case", cases())
def test_every_case_fits_a_card_of_24_gb(case: Case, tmp_path: Path) -> None:
    overrides = {
        "task": case.task,
        "model.name": _model_name(case.model, tmp_path),
        "batch.micro_batch_size": case.micro_batch,
        "batch.gradient_accumulation_steps": case.accumulation,
        "batch.sequence_length": case.length,
        "engine.precision": case.precision,
        "engine.device": case.device,
        "engine.processes": 1,
        **case.changes,
    }
    request = PlanRequest(gpu="RTX 3090", overrides=overrides, output_dir=str(tmp_path / "run"))
    plan = plan_gathered(gather(request))
    assert plan.work is not None
    assert (plan.work.micro_batch, plan.work.accumulation, plan.work.length) == (
        case.micro_batch, case.accumulation, case.length,
    )  # fmt: skip
    assert plan.memory.verdict in ("fits", "tight")
    assert useful_flops(plan.work) > 0


def _row(arm: str, repeat: int, seconds: float, **changes: Any) -> dict[str, str]:
    values = {
        "case": "esm2", "arm": arm, "repeat": repeat, "device": "H100", "torch": "2.13.0", "precision": "bf16",
        "step_rows": 320, "steps": 2, "seconds": seconds, "real_tokens": 1000, "computed_tokens": 1500,
        "real_operations": 1e14, "computed_operations": 1.8e14, "peak_flops": 1e14, "peak_bytes": 2**30, "problem": "",
    }  # fmt: skip
    return {name: str({**values, **changes}[name]) for name in COLUMNS}


def test_the_table_gives_the_median_of_the_repeats_and_every_one_of_them() -> None:
    fixed, dynamic, grouped = PLAIN
    rows = [_row(fixed, 0, "", problem="out of memory")]
    rows += [_row(dynamic, number, seconds) for number, seconds in enumerate((4.0, 4.2, 9.0))]
    rows += [_row(grouped, 0, 4.2, real_tokens=2000)]
    rows += [_row(OURS, number, 2.1, computed_operations=1.05e14, peak_bytes=2**31) for number in range(3)]
    lines = "\n".join(table(rows))
    assert "esm2, bf16, on H100, torch 2.13.0" in lines
    assert f"| {fixed}, repeat 0 | out of memory |" in lines
    assert f"| {dynamic} | 4.00 4.20 9.00 | 1.00 | 238 | 1.80 | 42.9% | 23.8% | 1.0 GiB |" in lines
    # Other rows in a step: the pace is that of real tokens.
    assert f"| {grouped} | 4.20 | 2.00 | 476 |" in lines
    assert f"| {OURS} | 2.10 2.10 2.10 | 2.00 | 476 | 1.05 | 50.0% | 47.6% | 2.0 GiB |" in lines
    assert "1.71 times fewer operations than dynamic padding\n" in lines


def test_other_rows_are_not_compared_in_silence() -> None:
    rows = [_row(PLAIN[1], 0, 4.0), _row(OURS, 0, 2.0, real_tokens=1001)]
    assert any(line.endswith("but of OTHER ROWS") for line in table(rows))


def test_work_counts_padding_at_the_length_of_its_micro_batch() -> None:
    batches = [{"shape": [2, 10, 4], "real": [[10, 3], [4, 1]]}, {"shape": [1, 5, 2], "real": [[5], [2]]}]
    work = work_of([{"seconds": 1.5, "batches": batches}], lambda source, target: source**2 + target)
    assert (work.seconds, work.computed, work.real) == (1.5, 35, 25)
    assert work.computed_operations == 2 * (100 + 4) + 25 + 2
    assert work.real_operations == (100 + 4) + (9 + 1) + (25 + 2)


@needs_shared
def test_a_plan_that_is_refused_is_a_row_with_the_reason(tmp_path: Path) -> None:
    case = tiny_cases()[0]
    refused = Case(**{**vars(case), "length": 1})
    measure([refused], tmp_path / "rows.csv", repeats=1, steps=1)
    problems = [row["problem"] for row in read_rows(tmp_path / "rows.csv")]
    assert len(problems) == 4 and all("--length cannot be 1" in problem for problem in problems)


@pytest.mark.real
@pytest.mark.all
@needs_shared
def test_tiny_cases_run_on_the_cpu_with_the_same_rows_and_not_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.csv"
    arguments = [str(path), "--tiny", "--repeats", "1", "--steps", "1"]
    assert main(arguments) == 0
    rows = read_rows(path)
    assert len(rows) == 4 * len(tiny_cases()) and not any(row["problem"] for row in rows)
    said = capsys.readouterr().out
    assert said.count("times fewer operations") == len(tiny_cases()) and "OTHER ROWS" not in said
    assert main(arguments) == 0
    assert read_rows(path) == rows
