"""accelerate.yaml is read by accelerate's own class, and says what the run is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from trainwiz.core.config import RunConfig
from trainwiz.core.export.accelerate import accelerate_config, accelerate_yaml

from tests.core.export.solved_config import solved_config


def read_back(config: RunConfig, folder: Path) -> Any:
    """accelerate refuses unknown keys with a ValueError here."""
    from accelerate.commands.config.config_args import load_config_from_file

    file = folder / "accelerate.yaml"
    file.write_text(accelerate_yaml(config))
    return load_config_from_file(str(file))


def test_one_process_on_a_cpu(tmp_path: Path) -> None:
    loaded = read_back(solved_config("cpu-demo"), tmp_path)
    assert loaded.distributed_type.value == "NO"
    assert loaded.num_processes == 1 and loaded.use_cpu
    assert loaded.mixed_precision == "no"


def test_no_is_text_and_not_false() -> None:
    text = accelerate_yaml(solved_config("cpu-demo"))
    assert "distributed_type: 'NO'" in text
    assert yaml.safe_load(text)["distributed_type"] == "NO"


def test_two_processes_on_a_cpu_are_multi_gpu_with_gloo(tmp_path: Path) -> None:
    """MULTI_CPU would start one process without a word."""
    loaded = read_back(solved_config("cpu-demo", engine__processes=2, engine__strategy="ddp"), tmp_path)
    assert loaded.distributed_type.value == "MULTI_GPU"
    assert loaded.num_processes == 2 and loaded.use_cpu


@pytest.mark.parametrize(
    ("precision", "mixed"), [("fp16", "fp16"), ("bf16", "bf16"), ("tf32", "no"), ("bf16-true", "no")]
)
def test_mixed_precision_is_that_of_training_arguments(tmp_path: Path, precision: str, mixed: str) -> None:
    from trainwiz.core.export.training_arguments import training_arguments

    config = solved_config(engine__device="cuda", engine__precision=precision)
    loaded = read_back(config, tmp_path)
    assert loaded.mixed_precision == mixed and not loaded.use_cpu
    kwargs = training_arguments(config)
    assert kwargs["fp16"] == (mixed == "fp16") and kwargs["bf16"] == (mixed == "bf16")


def test_deepspeed_refers_to_its_json_and_repeats_nothing(tmp_path: Path) -> None:
    loaded = read_back(solved_config("2080super", engine__device="cuda"), tmp_path)
    assert loaded.distributed_type.value == "DEEPSPEED"
    assert loaded.deepspeed_config == {"deepspeed_config_file": "deepspeed.json", "zero3_init_flag": False}
    # accelerate refuses to start when mixed_precision stands beside deepspeed_config_file.
    assert "mixed_precision" not in accelerate_config(solved_config("2080super", engine__device="cuda"))


def fsdp(**changes: Any) -> RunConfig:
    return solved_config(engine__strategy="fsdp", engine__device="cuda", engine__processes=2, **changes)


def test_fsdp_is_read_by_the_plugin_of_accelerate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the file through the launcher's own variables to the object that wraps the model."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.launch import prepare_multi_gpu_env

    config = fsdp(engine__offload="all", engine__checkpointing=True, engine__precision="bf16")
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


def test_deepspeed_on_a_cpu_does_not_say_use_cpu() -> None:
    """With use_cpu accelerate and the Trainer drop DeepSpeed silently."""
    config = solved_config("cpu-demo", engine__strategy="zero2")
    assert accelerate_config(config)["use_cpu"] is False
