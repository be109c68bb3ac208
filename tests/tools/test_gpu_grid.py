"""The GPU grid: its cells are plans that run, its fit finds what made the numbers, and its probes write rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.launch.probe import FOUND_OUT_ON_A_GPU, NOT_OF_A_STEP
from trainwiz.core.plan.gather import gather, plan_gathered

from tests.each import each
from tools.benchmarks.gpu_grid import COLUMNS, _model_name, main
from tools.benchmarks.grid_cells import Cell, cells
from tools.benchmarks.grid_fit import figures_of, fit, report
from tools.benchmarks.measured_rows import Row, read_rows

CONTEXT, FACTOR, EFFICIENCY, BANDWIDTH, LAUNCH = 450 * 2**20, 1.1, 0.4, 0.7, 5e-6


def test_the_halves_share_models_and_settings() -> None:
    every = cells()
    assert len({cell.name for cell in every}) == len(every) > 60
    for half in ("fit", "report"):
        chosen = [cell for cell in every if cell.half == half]
        assert {cell.model for cell in chosen} == {cell.model for cell in every}
        for setting in ("precision", "attention", "checkpointing", "accumulation"):
            assert {getattr(cell, setting) for cell in chosen} >= {
                getattr(cell, setting) for cell in every if cell.model.startswith("esm2")
            }


@each("cell", cells())
def test_every_cell_is_a_plan_that_a_probe_takes(cell: Cell, tmp_path: Path) -> None:
    request = PlanRequest(
        gpu="H100 80GB",
        overrides=cell.overrides(_model_name(cell.model, tmp_path), "cuda"),
        output_dir=str(tmp_path / "run"),
    )
    gathered = gather(request)
    plan = plan_gathered(gathered)
    unwanted = {one.code for one in plan.errors} - NOT_OF_A_STEP - FOUND_OUT_ON_A_GPU
    assert unwanted == set()
    assert plan.work is not None
    assert plan.memory.verdict == "fits"
    seen = (plan.work.micro_batch, plan.work.accumulation, plan.work.length, plan.work.precision, plan.work.attention)
    assert seen == (cell.micro_batch, cell.accumulation, cell.length, cell.precision, cell.attention)
    assert (plan.work.checkpointing, plan.work.lora) == (cell.checkpointing, "lora" in cell.name)


def _row(number: int, half: str, repeat: int = 0, **changes: Any) -> Row:
    """A measured cell that follows the law exactly."""
    flops, moved, kernels, accumulation = (
        1e13 * (1 + number % 3),
        4e10 * (1 + number % 4),
        900.0 + 700 * (number % 5),
        2.0,
    )
    allocated = (1 + number) * 2**30
    seconds = accumulation * (flops / (EFFICIENCY * 4e14) + moved / (BANDWIDTH * 2e12) + kernels * LAUNCH)
    values = {
        "cell": f"cell {number}", "half": half, "repeat": repeat, "accumulation": accumulation, "flops": flops,
        "moved_bytes": moved, "kernels": kernels, "peak_flops": 4e14, "bandwidth_bytes_per_s": 2e12,
        "allocated_bytes": allocated, "reserved_bytes": FACTOR * allocated, "used_bytes": FACTOR * allocated + CONTEXT,
        "traced_allocated_bytes": allocated * 1.02, "planned_allocated_bytes": allocated * 0.5,
        "planned_low_bytes": 0, "planned_high_bytes": 2**60, "planned_step_low_s": seconds * 2,
        "planned_step_high_s": seconds * 3, "step_s": seconds, "problem": "",
    }  # fmt: skip
    return {name: str({**values, **changes}.get(name, "")) for name in COLUMNS}


def test_the_fit_finds_the_constants_that_made_the_numbers() -> None:
    rows = [_row(number, "fit" if number % 2 else "report", repeat) for number in range(16) for repeat in range(3)]
    # One repeat was disturbed: the median leaves it out.
    rows[3] = _row(1, "fit", 0, step_s=9.0)
    found = fit(figures_of(rows, "fit"))
    assert found.context_bytes == pytest.approx(CONTEXT)
    assert found.reserved_factor == pytest.approx(FACTOR)
    assert found.flops_efficiency == pytest.approx(EFFICIENCY, rel=1e-3)
    assert found.bandwidth_efficiency == pytest.approx(BANDWIDTH, rel=1e-3)
    assert found.launch_s == pytest.approx(LAUNCH, rel=1e-3)
    lines = "\n".join(report(rows))
    assert "fitted to 8 cells, reported on 8" in lines
    assert lines.count("trace ") == lines.count("(+2.0%)") == 8 and lines.count("(-50.0%)") == 8
    assert lines.count("DOES NOT HOLD IT") == 8 and lines.count("holds it") == 8
    assert "cell 1 " not in lines


def test_rows_that_failed_are_said_and_fit_nothing() -> None:
    rows = [_row(1, "fit", step_s="", problem="out of memory"), _row(2, "fit", problem="does not fit")]
    found = fit(figures_of(rows, "fit"))
    assert (found.context_bytes, found.flops_efficiency) == (None, None)
    assert "  not measured: cell 1: out of memory" in report(rows)


@pytest.mark.real
@pytest.mark.all
def test_tiny_cells_are_measured_on_the_cpu_and_not_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "grid.csv"
    assert main([str(path), "--tiny", "--repeats", "1", "--seconds", "40"]) == 0
    rows = read_rows(path)
    assert [row["half"] for row in rows] == ["fit", "report"]
    assert all(float(row["step_s"]) > 0 and float(row["flops"]) > 0 and row["tier"] == "traced" for row in rows)
    assert "reported on 1" in capsys.readouterr().out
    assert main([str(path), "--tiny", "--repeats", "1"]) == 0
    assert read_rows(path) == rows
