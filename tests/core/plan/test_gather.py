"""The edge: real profiles, the real catalogue, the sample that ships, this machine."""

import json
from pathlib import Path

import pytest
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import UsageError
from trainwiz.core.plan.gather import plan_run, probe_here

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
    assert made.to_json()["data"]["rows"] > 100


def test_the_demo_on_this_very_machine() -> None:
    request = PlanRequest(profile="cpu-demo", overrides={"engine.device": "cpu"})
    assert plan_run(request, probe_here(request)).memory.device == "host RAM"


def test_a_profile_without_its_card_collects_everything() -> None:
    made = plan_run(PlanRequest(profile="2080super"), CPU)
    assert {"missing_hardware", "missing_data", "takes_years"} <= codes(made)
    assert made.memory.verdict == "fits"
    assert made.batch.effective_tokens == 1_999_872


def test_a_smoke_run_keeps_the_engine() -> None:
    made = plan_run(PlanRequest(profile="2080super", mode="smoke"), CPU)
    assert not made.errors
    assert (made.config.engine.strategy, made.config.engine.offload) == ("zero2", "optimizer")
    assert made.config.engine.precision == "fp32"
    assert made.config.model.name == "esm2-tiny"


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


def test_a_folder_that_the_catalogue_hides_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    request = PlanRequest(overrides={"model.name": "qwen2-tiny"})
    assert "folder_of_same_name" not in codes(plan_run(request, CPU))
    config = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 64, "vocab_size": 500}
    config |= {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    Path("qwen2-tiny").mkdir()
    Path("qwen2-tiny/config.json").write_text(json.dumps(config))
    hidden = plan_run(request, CPU)
    found = finding(hidden, "folder_of_same_name")
    assert found.severity == "warning" and "./qwen2-tiny is the folder" in found.message
    meant = plan_run(PlanRequest(overrides=dict(found.remedies[0].changes)), CPU)
    assert "folder_of_same_name" not in codes(meant) and meant.model.parameters != hidden.model.parameters
