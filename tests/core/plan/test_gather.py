"""The edge: real profiles, the real catalogue, the sample that ships, this machine."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import UsageError
from trainwiz.core.plan.gather import gather_data, plan_run, probe_here

from tests.core.plan.machines import codes, finding, machine, real
from tests.each import each

CPU = real(machine(None, cores=4), deepspeed="0.18")


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


def test_the_demo_runs_here() -> None:
    made = plan_run(PlanRequest(profile="cpu-demo"), CPU)
    assert not made.errors
    assert made.memory.verdict == "fits"
    assert made.config.training.max_steps == 120
    assert (made.time.total_low_s or 0) < 60 < (made.time.total_high_s or 0)
    assert made.extra["data"]["rows"] > 100


def test_the_demo_on_this_very_machine() -> None:
    request = PlanRequest(profile="cpu-demo", overrides={"engine.device": "cpu"})
    assert plan_run(request, probe_here(request)).memory.device == "host RAM"


def test_a_profile_without_its_card_collects_everything() -> None:
    made = plan_run(PlanRequest(profile="2080super"), CPU)
    assert {"missing_hardware", "missing_data", "takes_years"} <= codes(made)
    assert made.memory.verdict == "fits"
    assert made.batch.effective_tokens == 1_999_872


def test_missing_data_names_the_one_choice() -> None:
    found = finding(plan_run(PlanRequest(profile="2080super"), CPU), "missing_data")
    assert any("--dataset" in one.text or "--dataset" in (one.command or "") for one in found.remedies)


def test_a_smoke_run_keeps_the_engine() -> None:
    made = plan_run(PlanRequest(profile="2080super", mode="smoke"), CPU)
    assert not made.errors
    assert (made.config.engine.strategy, made.config.engine.offload) == ("zero2", "optimizer")
    assert made.config.engine.precision == "fp32"
    assert made.config.model.name == "esm2-tiny"


def test_real_lengths(shared_data: Path) -> None:
    request = PlanRequest(
        profile="2080super",
        overrides={
            "data.sources.0.name": str(shared_data / "uniref90_10k.parquet"),
            "data.sources.0.text_column": "sequence",
        },
    )
    made = plan_run(request, CPU)
    assert made.batch.real_tokens == pytest.approx(1_130_000, rel=0.03)


def test_a_missing_file_is_a_finding_and_not_an_exception() -> None:
    made = plan_run(PlanRequest(overrides={"data.sources": "no-such-file.parquet"}), CPU)
    assert "missing_data" in codes(made)
    assert made.errors


@each(
    "request_",
    [
        PlanRequest(profile="2080-super"),
        PlanRequest(overrides={"engine.precison": "fp16"}),
        PlanRequest(overrides={"batch.micro_batch_size": "0"}),
        PlanRequest(overrides={"batch.micro_batch_size": "-3"}),
        PlanRequest(overrides={"batch.sequence_length": "99999999999"}),
        PlanRequest(gpu="RTX 3081"),
    ],
)
def test_what_is_asked_wrongly_is_a_usage_error(request_: PlanRequest) -> None:
    with pytest.raises(UsageError) as caught:
        plan_run(request_, CPU)
    assert caught.value.exit_code == 2


def test_force_is_recorded() -> None:
    assert plan_run(PlanRequest(profile="cpu-demo", force=True), CPU).config.forced is True


def test_quick_beside_the_data() -> None:
    request = PlanRequest(profile="cpu-demo")
    made = plan_run(request, CPU)

    def seconds(work: Callable[[], object]) -> float:
        start = time.thread_time()
        work()
        return time.thread_time() - start

    of_the_data = min(seconds(lambda: gather_data(made.config)) for _ in range(3))
    assert min(seconds(lambda: plan_run(request, CPU)) for _ in range(3)) - of_the_data < 0.3
