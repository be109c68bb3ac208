"""deepspeed.json is filled in by transformers' own class, without a mismatch."""

from __future__ import annotations

import json
from typing import Any

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.export.deepspeed import deepspeed_config
from trainwiz.core.export.launch_script import export_files
from trainwiz.core.export.training_arguments import training_arguments

from tests.core.export.solved_config import solved_config


class Arguments:
    """The attributes that trainer_config_process reads. The real class cannot be made for CUDA on a machine without it;
    the keywords and transformers' defaults are real."""

    def __init__(self, config: RunConfig) -> None:
        import dataclasses

        from transformers import TrainingArguments

        for field in dataclasses.fields(TrainingArguments):
            setattr(self, field.name, None if field.default is dataclasses.MISSING else field.default)
        for name, value in training_arguments(config).items():
            setattr(self, name, value)
        self.world_size = 1


def filled_in(config: RunConfig) -> Any:
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed")
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    document = deepspeed_config(config)
    assert document is not None
    processed = HfTrainerDeepSpeedConfig(json.loads(json.dumps(document)))
    processed.trainer_config_process(Arguments(config))
    return processed


@pytest.mark.parametrize("profile", ["2080super", "2080super-guide", "3080-10g", "3080-12g"])
def test_transformers_finds_no_mismatch(profile: str) -> None:
    config = solved_config(profile, engine__device="cuda")
    processed = filled_in(config)
    assert processed.mismatches == []
    assert processed.get_value("gradient_accumulation_steps") == config.batch.gradient_accumulation_steps
    assert processed.get_value("train_micro_batch_size_per_gpu") == config.batch.micro_batch_size
    assert processed.get_value("fp16.enabled") == (config.engine.precision == "fp16")
    assert processed.get_value("bf16.enabled") == (config.engine.precision == "bf16")
    assert processed.get_value("optimizer.params.lr") == 4e-4
    assert processed.get_value("optimizer.params.betas") == [0.9, 0.98]
    assert "auto" not in json.dumps(processed.config)


def test_a_mismatch_is_seen_by_this_test() -> None:
    """Proof that `mismatches == []` above can fail."""
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed")
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    config = solved_config("2080super", engine__device="cuda")
    processed = HfTrainerDeepSpeedConfig({**(deepspeed_config(config) or {}), "gradient_accumulation_steps": 8})
    processed.trainer_config_process(Arguments(config))
    assert len(processed.mismatches) == 1


def test_without_deepspeed_there_is_no_file() -> None:
    assert deepspeed_config(solved_config("cpu-demo")) is None
    assert set(export_files(solved_config("cpu-demo"))) == {"accelerate.yaml", "launch.sh"}
    assert "deepspeed" not in training_arguments(solved_config("cpu-demo"))


def test_zero2_with_the_optimizer_in_host_ram() -> None:
    document = deepspeed_config(solved_config("2080super", engine__device="cuda"))
    assert document is not None
    zero = document["zero_optimization"]
    assert (zero["stage"], zero["offload_optimizer"]) == (2, {"device": "cpu", "pin_memory": True})
    assert "offload_param" not in zero and document["data_types"] == {"grad_accum_dtype": "fp32"}


def test_zero3_offloading_all() -> None:
    config = solved_config("2080super", engine__device="cuda", engine__strategy="zero3", engine__offload="all")
    processed = filled_in(config)
    assert processed.is_zero3() and processed.is_offload()
    assert processed.mismatches == []


def test_an_optimizer_that_deepspeed_does_not_know_stays_the_trainers() -> None:
    config = solved_config("2080super", engine__device="cuda", engine__optimizer="adafactor")
    document = deepspeed_config(config)
    assert document is not None and "optimizer" not in document
    assert document["zero_allow_untested_optimizer"] is True
    assert document["zero_force_ds_cpu_optimizer"] is False
