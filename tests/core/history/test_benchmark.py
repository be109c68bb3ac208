"""A benchmark: steps beside the plan, nothing saved."""

import json
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config.build import build_config
from trainwiz.core.config.modes import BENCHMARK_STEPS, BENCHMARK_WARM_STEPS, apply_mode
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.history.run import benchmark_of
from trainwiz.core.profile.store import load_profile
from trainwiz.core.run.folder import RunFolder

from tests.core.training.runs import metrics, tiny_config, train, write_run

PLAN = {
    "time": {"step_s": 0.3, "step_low_s": 0.2, "step_high_s": 0.5, "tokens_per_s": 4000.0, "basis": "formula"},
    "memory": {"allocated_bytes": 700, "device_used_bytes": 900, "host_ram_bytes": 1000},
}


def line(step: int, step_s: float, **more: Any) -> dict[str, Any]:
    counts = {"tokens": 100 * step, "real_tokens": 60 * step, "peak_allocated_bytes": step}
    return {"step": step, "loss": 1.0, "step_s": step_s, **counts, **more}


def folder_of(place: Path, lines: list[dict[str, Any]], system: list[dict[str, Any]], plan: Any = PLAN) -> RunFolder:
    run = RunFolder(place)
    for path, rows in ((run.metrics_jsonl, lines), (run.system_jsonl, system)):
        path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    run.plan_json.write_text(json.dumps(plan))
    return run


def test_the_first_steps_are_not_measured(tmp_path: Path) -> None:
    counted = [line(step, 0.5, data_wait_s=0.1) for step in (3, 4)]
    lines = [line(1, 9.0), line(2, 7.0), *counted, line(5, 1.0, data_wait_s=0.3)]
    processes = [{"pid": 7, "role": "trainer", "rss_bytes": 500}, {"pid": 8, "role": "loader", "rss_bytes": 40}]
    found = benchmark_of(folder_of(tmp_path, lines, [{"processes": processes}]))
    assert found is not None
    assert (found.steps, found.step_s, found.step_low_s, found.step_high_s) == (3, 0.5, 0.5, 1.0)
    assert found.tokens_per_s == pytest.approx(300 / 2.0)
    assert found.real_tokens_per_s == pytest.approx(180 / 2.0)
    assert found.data_wait_share == pytest.approx(0.5 / 2.0)
    assert (found.host_ram_bytes, found.peak_allocated_bytes, found.device_used_bytes) == (540, 5, None)
    assert (found.planned_step_s, found.planned_step_high_s, found.planned_tokens_per_s) == (0.3, 0.5, 4000.0)
    assert (found.planned_allocated_bytes, found.planned_host_ram_bytes) == (700, 1000)
    assert set(found.to_json()) == set(type(found).__slots__)
    # A plan that says nothing leaves its figures open.
    broken: list[Any] = [{"time": None, "memory": 3}, {"time": {"step_s": "soon"}, "memory": {}}, []]
    for plan in broken:
        found = benchmark_of(folder_of(tmp_path, [line(step, 0.1) for step in range(1, 6)], [], plan))
        assert found is not None
        assert (found.planned_step_s, found.planned_basis, found.data_wait_share) == (None, None, None)


def test_the_mode_changes_what_is_saved_and_measured_and_not_the_steps() -> None:
    before = build_config(load_profile("3080-10g"), {"training.max_steps": 900, "data.validation_rows": 50})
    config = apply_mode(before, PlanRequest(mode="benchmark", benchmark_steps=7), None)
    assert (config.training.max_steps, config.mode.benchmark_steps) == (7 + BENCHMARK_WARM_STEPS, 7)
    assert config.data.validation_rows == 0 and not config.checkpoint.keep_best and not config.mode.saves
    for section in ("batch", "engine", "peft", "model"):
        assert getattr(config, section) == getattr(before, section)
    assert config.data.sources == before.data.sources
    usual = apply_mode(before, PlanRequest(mode="benchmark"), None)
    assert usual.mode.benchmark_steps == BENCHMARK_STEPS


@pytest.mark.real
@pytest.mark.timeout(1200)
def test_a_benchmark_leaves_no_checkpoint_and_no_model(tmp_path: Path) -> None:
    benchmark: Any = {"mode__kind": "benchmark", "mode__benchmark_steps": 10, "data__validation_rows": 0}
    config = tiny_config(training__max_steps=12, checkpoint__every_steps=4, **benchmark)
    folder = write_run(tmp_path / "run", config)
    assert train(folder, config)["outcome"] == "finished"
    assert not [*folder.glob("checkpoint-*"), *folder.glob("final_model")]
    found = benchmark_of(RunFolder(folder))
    assert found is not None and found.steps == 10
    assert (found.tokens_per_s or 0) > (found.real_tokens_per_s or 0) > 0
    assert metrics(folder)[-1]["step"] == 12 and not any("eval_loss" in one for one in metrics(folder))
