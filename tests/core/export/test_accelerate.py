"""accelerate.yaml is read by accelerate's own class, and says what the run is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from trainwiz.core.config import RunConfig
from trainwiz.core.errors import CannotRunError
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


def test_deepspeed_on_a_cpu_does_not_say_use_cpu() -> None:
    """With use_cpu accelerate and the Trainer drop DeepSpeed silently."""
    config = solved_config("cpu-demo", engine__strategy="zero2")
    assert accelerate_config(config)["use_cpu"] is False


def test_fsdp_is_refused_with_a_remedy() -> None:
    with pytest.raises(CannotRunError) as caught:
        accelerate_config(solved_config(engine__strategy="fsdp"))
    assert caught.value.findings[0].remedies[0].changes == {"engine.strategy": "zero2"}
