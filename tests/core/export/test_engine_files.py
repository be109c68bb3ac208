"""accelerate.yaml, deepspeed.json and TrainingArguments as the libraries take them, and what they say of the run."""

from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.export.accelerate import accelerate_config, accelerate_yaml
from trainwiz.core.export.deepspeed import deepspeed_config
from trainwiz.core.export.launch_script import export_files
from trainwiz.core.export.training_arguments import rate_schedule, scheduler_arguments, training_arguments

from tests.core.export.solved_config import solved_config
from tests.each import each


def read_back(config: RunConfig, folder: Path) -> Any:
    """accelerate refuses unknown keys with a ValueError here."""
    from accelerate.commands.config.config_args import load_config_from_file

    file = folder / "accelerate.yaml"
    file.write_text(accelerate_yaml(config))
    return load_config_from_file(str(file))


def test_processes_on_a_cpu(tmp_path: Path) -> None:
    assert "distributed_type: 'NO'" in accelerate_yaml(solved_config("cpu-demo"))
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


def test_what_stands_in_the_json_and_what_does_not(tmp_path: Path) -> None:
    assert deepspeed_config(solved_config("cpu-demo")) is None
    assert set(export_files(solved_config("cpu-demo"))) == {"accelerate.yaml", "launch.sh"}
    assert "deepspeed" not in training_arguments(solved_config("cpu-demo"))
    config = solved_config("2080super", engine__device="cuda")
    zero = (document := deepspeed_config(config) or {})["zero_optimization"]
    assert (zero["stage"], zero["offload_optimizer"]) == (2, {"device": "cpu", "pin_memory": True})
    assert "offload_param" not in zero and document["data_types"] == {"grad_accum_dtype": "fp32"}
    assert read_back(config, tmp_path).deepspeed_config["zero3_init_flag"] is False
    whole = solved_config("2080super", engine__device="cuda", engine__strategy="zero3", engine__offload="all")
    zero = (deepspeed_config(whole) or {})["zero_optimization"]
    assert (zero["stage"], zero["offload_param"]["device"]) == (3, "cpu")
    # An optimizer that DeepSpeed does not know stays the Trainer's.
    own = deepspeed_config(solved_config("2080super", engine__device="cuda", engine__optimizer="adafactor")) or {}
    assert "optimizer" not in own and own["zero_allow_untested_optimizer"] is True
    assert own["zero_force_ds_cpu_optimizer"] is False


def construct(config: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real TrainingArguments, made in the run folder as the training makes it."""
    from transformers import TrainingArguments

    monkeypatch.chdir(folder)
    return TrainingArguments(**training_arguments(config))


def test_what_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # transformers refuses a prefetch without workers with a ValueError.
    arguments = construct(solved_config(data__workers=0, data__prefetch=8), tmp_path, monkeypatch)
    assert arguments.dataloader_prefetch_factor is None and arguments.report_to == ["tensorboard"]
    workers = {"data__workers": 2, "data__prefetch": 8, "data__persistent_workers": True}
    arguments = construct(solved_config(logging__report_to=["none"], **workers), tmp_path, monkeypatch)
    assert arguments.dataloader_prefetch_factor == 8 and arguments.dataloader_persistent_workers
    assert arguments.report_to == []
    unsolved = solved_config().with_values({"batch.micro_batch_size": None}, "you")
    with pytest.raises(ValueError, match=r"batch\.micro_batch_size is not solved"):
        training_arguments(unsolved)


@each(("precision", "strategy", "mixed"), [
    ("fp32", "single", "no"), ("tf32", "single", "no"), ("fp16", "single", "fp16"), ("bf16", "single", "bf16"),
    ("bf16-true", "single", "no"), ("bf16-true", "zero2", "bf16"),
])  # fmt: skip
def test_precision_flags_are_those_of_accelerate(precision: str, strategy: str, mixed: str) -> None:
    config = solved_config(engine__device="cuda", engine__precision=precision, engine__strategy=strategy)
    kwargs = training_arguments(config)
    assert (kwargs["fp16"], kwargs["bf16"]) == (mixed == "fp16", mixed == "bf16")
    assert kwargs.get("tf32") is (True if precision == "tf32" else None)
    # Beside DeepSpeed's file accelerate refuses it.
    assert accelerate_config(config).get("mixed_precision") == (None if strategy == "zero2" else mixed)


@each("pinned", [False, True])
def test_pinned_batches_do_not_block(pinned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the loader that the real Trainer makes has it, on a GPU; there is no copy on a CPU."""
    import torch
    from transformers import Trainer

    changes = {"data__pin_memory": pinned, "data__validation_rows": 0}
    config = solved_config("cpu-demo", engine__device="cuda", **changes)
    rows: Any = [{"x": 1}] * 100
    trainer = Trainer(model=torch.nn.Linear(1, 1), args=construct(config, tmp_path, monkeypatch), train_dataset=rows)
    loader: Any = trainer.get_train_dataloader()
    assert loader._non_blocking is loader.base_dataloader.pin_memory is pinned
    assert "accelerator_config" not in training_arguments(solved_config("cpu-demo", data__pin_memory=pinned))


def rates_of_transformers(config: RunConfig, steps: int) -> list[float]:
    """The rates that a Trainer's optimizer has before each step, and after the last one."""
    import torch
    import transformers

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=config.training.learning_rate)
    arguments = transformers.TrainingArguments(output_dir="unused", **scheduler_arguments(config))
    scheduler = transformers.get_scheduler(
        arguments.lr_scheduler_type,
        optimizer,
        num_warmup_steps=arguments.get_warmup_steps(steps),
        num_training_steps=steps,
        scheduler_specific_kwargs=dict(arguments.lr_scheduler_kwargs or {}),
    )
    rates = []
    for _ in range(steps + 1):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return rates


@each(("final", "warmup", "steps"), [
    (0.0, 0, 120), (0.0, 0.3333, 7), (4e-5, 0.02, 120), (4e-5, 10, 7), (4e-4, 1, 120), (4e-5, 2000, 120), (0.0, 1, 1),
])  # fmt: skip
def test_every_step_has_the_rate_of_transformers(final: float, warmup: float, steps: int) -> None:
    for schedule in ("linear", "cosine", "constant", "polynomial"):
        values = {"learning_rate": 4e-4, "schedule": schedule, "final_learning_rate": final, "warmup": warmup}
        config = RunConfig().with_values(
            {f"training.{key}": value for key, value in {**values, "max_steps": steps}.items()}, "you"
        )
        ours = rate_schedule(config, steps)
        theirs = rates_of_transformers(config, steps)
        assert [ours.at(step) for step in range(steps + 1)] == pytest.approx(theirs, rel=1e-9, abs=1e-15)
        assert ours.highest == pytest.approx(max(theirs[:-1]), rel=1e-9, abs=1e-15)
