"""accelerate.yaml and deepspeed.json are read by the libraries' own classes, and say what the run is."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.export.accelerate import accelerate_config, accelerate_yaml
from trainwiz.core.export.deepspeed import deepspeed_config
from trainwiz.core.export.launch_script import export_files
from trainwiz.core.export.training_arguments import training_arguments

from tests.core.export.solved_config import solved_config


def read_back(config: RunConfig, folder: Path) -> Any:
    """accelerate refuses unknown keys with a ValueError here."""
    from accelerate.commands.config.config_args import load_config_from_file

    file = folder / "accelerate.yaml"
    file.write_text(accelerate_yaml(config))
    return load_config_from_file(str(file))


def test_processes_on_a_cpu(tmp_path: Path) -> None:
    loaded = read_back(solved_config("cpu-demo"), tmp_path)
    assert (loaded.distributed_type.value, loaded.num_processes, loaded.mixed_precision) == ("NO", 1, "no")
    assert loaded.use_cpu and "distributed_type: 'NO'" in accelerate_yaml(solved_config("cpu-demo"))
    # MULTI_CPU would start one process without a word; with use_cpu the Trainer drops DeepSpeed silently.
    loaded = read_back(solved_config("cpu-demo", engine__processes=2, engine__strategy="ddp"), tmp_path)
    assert (loaded.distributed_type.value, loaded.num_processes, loaded.use_cpu) == ("MULTI_GPU", 2, True)
    assert accelerate_config(solved_config("cpu-demo", engine__strategy="zero2"))["use_cpu"] is False


def test_fsdp_is_read_by_the_plugin_of_accelerate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the file through the launcher's own variables to the object that wraps the model."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.launch import prepare_multi_gpu_env

    engine = {"strategy": "fsdp", "device": "cuda", "processes": 2, "offload": "all", "checkpointing": True}
    config = solved_config(**{f"engine__{key}": value for key, value in engine.items()}, engine__precision="bf16")
    loaded = read_back(config, tmp_path)
    assert (loaded.distributed_type.value, loaded.num_processes, loaded.mixed_precision) == ("FSDP", 2, "bf16")
    given = launch_command_parser().parse_args(["--config_file", str(tmp_path / "accelerate.yaml"), "train.py"])
    launched, _, _ = _validate_launch_command(given)
    variables = prepare_multi_gpu_env(launched)
    assert variables["ACCELERATE_USE_FSDP"] == "true" and variables["ACCELERATE_MIXED_PRECISION"] == "bf16"
    for name in variables:
        if name.startswith("FSDP_"):
            monkeypatch.setenv(name, variables[name])
    plugin = FullyShardedDataParallelPlugin()
    plugin.set_mixed_precision("bf16")
    assert plugin.fsdp_version == 2 and plugin.reshard_after_forward is True
    assert plugin.auto_wrap_policy.__name__ == "transformer_auto_wrap_policy"
    assert plugin.transformer_cls_names_to_wrap is None, "the blocks are what the model itself names"
    assert type(plugin.cpu_offload).__name__ == "CPUOffloadPolicy"
    assert plugin.state_dict_type.name == "FULL_STATE_DICT"
    assert str(plugin.mixed_precision_policy.param_dtype) == "torch.bfloat16"
    # Recomputing is that of transformers: accelerate's forgets the random state of the first pass.
    assert plugin.activation_checkpointing is False


class Arguments:
    """The attributes that trainer_config_process reads. The real class cannot be made for CUDA on a machine without it;
    the keywords and transformers' defaults are real."""

    def __init__(self, config: RunConfig) -> None:
        from transformers import TrainingArguments

        for field in dataclasses.fields(TrainingArguments):
            setattr(self, field.name, None if field.default is dataclasses.MISSING else field.default)
        for name, value in training_arguments(config).items():
            setattr(self, name, value)
        self.world_size = 1


def filled_in(config: RunConfig, **changes: Any) -> Any:
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed")
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    document = deepspeed_config(config)
    assert document is not None
    processed = HfTrainerDeepSpeedConfig({**json.loads(json.dumps(document)), **changes})
    processed.trainer_config_process(Arguments(config))
    return processed


def test_transformers_finds_no_mismatch() -> None:
    """Of all profiles: test_profiles.py."""
    config = solved_config("2080super", engine__device="cuda")
    processed = filled_in(config)
    assert processed.mismatches == []
    assert len(filled_in(config, gradient_accumulation_steps=8).mismatches) == 1, "or this test sees none"
    expected = {
        "gradient_accumulation_steps": 651, "train_micro_batch_size_per_gpu": 6, "fp16.enabled": True,
        "bf16.enabled": False, "optimizer.params.lr": 4e-4, "optimizer.params.betas": [0.9, 0.98],
    }  # fmt: skip
    assert {key: processed.get_value(key) for key in expected} == expected
    assert "auto" not in json.dumps(processed.config)
    everything = solved_config("2080super", engine__device="cuda", engine__strategy="zero3", engine__offload="all")
    processed = filled_in(everything)
    assert processed.is_zero3() and processed.is_offload() and processed.mismatches == []


def test_what_stands_in_the_json_and_what_does_not(tmp_path: Path) -> None:
    assert deepspeed_config(solved_config("cpu-demo")) is None
    assert set(export_files(solved_config("cpu-demo"))) == {"accelerate.yaml", "launch.sh"}
    assert "deepspeed" not in training_arguments(solved_config("cpu-demo"))
    config = solved_config("2080super", engine__device="cuda")
    zero = (document := deepspeed_config(config) or {})["zero_optimization"]
    assert (zero["stage"], zero["offload_optimizer"]) == (2, {"device": "cpu", "pin_memory": True})
    assert "offload_param" not in zero and document["data_types"] == {"grad_accum_dtype": "fp32"}
    # accelerate's file refers to it; accelerate refuses to start when mixed_precision stands beside the reference.
    loaded = read_back(config, tmp_path)
    assert loaded.distributed_type.value == "DEEPSPEED"
    assert loaded.deepspeed_config == {"deepspeed_config_file": "deepspeed.json", "zero3_init_flag": False}
    assert "mixed_precision" not in accelerate_config(config)
    # An optimizer that DeepSpeed does not know stays the Trainer's.
    own = deepspeed_config(solved_config("2080super", engine__device="cuda", engine__optimizer="adafactor")) or {}
    assert "optimizer" not in own and own["zero_allow_untested_optimizer"] is True
    assert own["zero_force_ds_cpu_optimizer"] is False
