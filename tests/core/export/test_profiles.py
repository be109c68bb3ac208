"""Every exported file of every profile: the real libraries read it back, and it says what the plan says."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from trainwiz.core.config import RunConfig
from trainwiz.core.config.build import build_config
from trainwiz.core.config.keys import ranks_checkpoints
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.export.accelerate import accelerate_yaml, launch_environment
from trainwiz.core.export.launch_script import export_files, launch_script
from trainwiz.core.export.training_arguments import mixed_precision, training_arguments
from trainwiz.core.launch.prepare import run_yaml_text
from trainwiz.core.plan.gather import plan_run
from trainwiz.core.plan.result import Plan
from trainwiz.core.profile.profile import Profile
from trainwiz.core.profile.store import list_profiles

from tests.each import each

PROFILES = [profile for profile in list_profiles() if profile.origin == "builtin"]


def kind_of(profile: Profile) -> tuple[Any, ...]:
    """What decides its files: the first of each kind is tried in every test run, all of them by `make test-all`."""
    config = build_config(profile, {})
    engine = config.engine
    several = profile.hardware.num_gpus > 1
    return config.task, config.peft.method, engine.strategy, engine.offload, engine.precision, several


TYPICAL = list({kind_of(profile): profile.name for profile in reversed(PROFILES)}.values())
OTHERS = [profile.name for profile in PROFILES if profile.name not in TYPICAL]
REFUSED_WITHOUT_A_GPU: dict[str, Any] = {"tf32": None, "use_cpu": True, "deepspeed": None}
"""Keywords that the real TrainingArguments takes only on the machine that the profile is made for."""
STEPS = 100_000
"""Of a run whose rows are not here, so that nobody knows how many."""


def arguments_of(plan: Plan, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real TrainingArguments, but for what this machine refuses; one process of as many as the plan has."""
    from transformers import TrainingArguments

    monkeypatch.chdir(folder)
    arguments = TrainingArguments(**{**training_arguments(plan.config), **REFUSED_WITHOUT_A_GPU})
    processes = plan.batch.world_size
    kind = type("OnTheMachineOfThePlan", (TrainingArguments,), {"world_size": property(lambda self: processes)})
    arguments.__class__ = kind
    return arguments


def training_arguments_agree(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, training = plan.config, plan.config.training
    arguments = arguments_of(plan, tmp_path, monkeypatch)
    samples = arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps * arguments.world_size
    assert samples == plan.batch.effective_samples
    assert (arguments.fp16, arguments.bf16) == (mixed_precision(config) == "fp16", mixed_precision(config) == "bf16")
    assert training_arguments(config).get("tf32") in (None, config.engine.precision == "tf32" or config.engine.tf32)
    if config.training.max_steps is not None:
        assert arguments.max_steps == config.training.max_steps == plan.time.steps
    else:
        assert arguments.max_steps == -1 and arguments.num_train_epochs == training.epochs
    assert arguments.optim == config.engine.optimizer
    assert (arguments.adam_beta1, arguments.adam_beta2) == (training.adam_beta1, training.adam_beta2)
    assert arguments.label_smoothing_factor == training.label_smoothing
    assert arguments.activation_checkpointing is bool(config.engine.checkpointing)
    assert arguments.save_steps == config.checkpoint.every_steps
    assert arguments.save_total_limit == (None if ranks_checkpoints(config) else config.checkpoint.keep)
    assert arguments.ddp_timeout == (config.engine.process_timeout_s or 1800)
    assert arguments.dataloader_num_workers == config.data.workers
    # With use_cpu transformers switches it off.
    assert training_arguments(config)["dataloader_pin_memory"] is bool(config.data.pin_memory)
    evaluates = config.data.validation_rows != 0 or bool(config.data.validation_sources)
    assert (arguments.eval_strategy.value != "no") is evaluates
    assert arguments.logging_nan_inf_filter is False, "a loss that is no number is logged as it is"
    assert arguments.report_to == [target for target in config.logging.report_to if target != "none"]
    assert arguments.torch_compile is config.engine.compile
    assert arguments.torch_empty_cache_steps == training.empty_cache_steps


def accelerate_agrees(plan: Plan, tmp_path: Path) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    config = plan.config
    file = tmp_path / "accelerate.yaml"
    file.write_text(accelerate_yaml(config))
    loaded: Any = load_config_from_file(str(file))
    assert loaded.num_processes == plan.batch.world_size and loaded.num_machines == config.engine.nodes
    deepspeed = str(config.engine.strategy).startswith("zero")
    kind = "DEEPSPEED" if deepspeed else "MULTI_GPU" if plan.batch.world_size > 1 else "NO"
    assert loaded.distributed_type.value == kind
    assert loaded.use_cpu is (config.engine.device == "cpu" and not deepspeed)
    if deepspeed:
        assert loaded.deepspeed_config["deepspeed_config_file"] == "deepspeed.json"
        # accelerate refuses to start when the file repeats what the JSON says.
        assert not {"mixed_precision", "gradient_accumulation_steps"} & set(yaml.safe_load(file.read_text()))
    else:
        assert loaded.mixed_precision == mixed_precision(config)


def deepspeed_agrees(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = plan.config
    text = export_files(config).get("deepspeed.json")
    assert (text is not None) is str(config.engine.strategy).startswith("zero")
    if text is None:
        return
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed")
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    arguments = arguments_of(plan, tmp_path, monkeypatch)
    processed = HfTrainerDeepSpeedConfig(json.loads(text))
    processed.trainer_config_process(arguments)
    model = type("Model", (), {"config": type("Config", (), {"hidden_size": 64})})
    # Raises ValueError with every mismatch.
    processed.trainer_config_finalize(arguments, model, config.training.max_steps or STEPS)
    assert "auto" not in json.dumps(processed.config)
    filled = processed.get_value
    assert filled("train_batch_size") == plan.batch.effective_samples
    assert filled("train_micro_batch_size_per_gpu") == plan.batch.micro_batch
    assert filled("gradient_accumulation_steps") == plan.batch.accumulation
    assert filled("gradient_clipping") == config.training.max_grad_norm
    assert filled("fp16.enabled") is (mixed_precision(config) == "fp16")
    assert filled("bf16.enabled") is (mixed_precision(config) == "bf16")
    assert f"zero{filled('zero_optimization.stage')}" == config.engine.strategy
    assert processed.is_offload() is (config.engine.offload != "none")
    if filled("optimizer") is not None:
        assert filled("optimizer.params.lr") == config.training.learning_rate
        assert filled("optimizer.params.betas") == [config.training.adam_beta1, config.training.adam_beta2]
        assert filled("optimizer.params.weight_decay") == config.training.weight_decay


def launch_sh_says_why_each_variable_is_set(plan: Plan) -> None:
    config = plan.config
    lines = launch_script(config).splitlines()
    exported = [(number, line) for number, line in enumerate(lines) if "export " in line and line[0] != "#"]
    for number, line in exported:
        assert lines[number - 1].startswith("# ") and len(lines[number - 1]) > 10, line
    for variable in launch_environment(config):
        assert any(variable in line for _, line in exported), variable
    for name, text in export_files(config).items():
        assert str(Path.cwd()) not in text and str(Path.home()) not in text, name
    assert set(config.engine.environment) <= set(launch_environment(config))
    gpus = launch_environment(config).get("CUDA_VISIBLE_DEVICES")
    if config.engine.device == "cuda":
        assert (gpus == "0") is (config.engine.processes == 1)


def run_yaml_is_the_same_run_when_it_is_read_back(plan: Plan) -> None:
    config = plan.config
    again = RunConfig.model_validate(yaml.safe_load(run_yaml_text(config)))
    assert again == config
    assert export_files(again) == export_files(config)
    assert training_arguments(again) == training_arguments(config)


def every_file_of_a_profile(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_run(PlanRequest(profile=name))
    training_arguments_agree(plan, tmp_path, monkeypatch)
    accelerate_agrees(plan, tmp_path)
    deepspeed_agrees(plan, tmp_path, monkeypatch)
    launch_sh_says_why_each_variable_is_set(plan)
    run_yaml_is_the_same_run_when_it_is_read_back(plan)


test_the_files_of_typical_profiles = each("name", TYPICAL)(every_file_of_a_profile)
test_the_files_of_the_others = pytest.mark.all(each("name", OTHERS)(every_file_of_a_profile))
