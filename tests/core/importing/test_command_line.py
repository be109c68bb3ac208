"""Launch commands of every launcher, with what people put in front of and behind them."""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.importing import command_line
from trainwiz.core.importing.command_line_options import (
    ACCELERATE_FLAGS,
    ACCELERATE_PREFIXES,
    ACCELERATE_VALUES,
    DEEPSPEED_FLAGS,
    DEEPSPEED_VALUES,
    TORCHRUN_FLAGS,
    TORCHRUN_VALUES,
)
from trainwiz.core.importing.merge import data_parallel_findings
from trainwiz.core.importing.report import Imported, NotImportable, engine_values

from tests.each import each

TRAIN = "train.py --learning_rate 1e-4"


def read(command: str) -> Imported:
    return command_line.read(command, "command")


def codes(imported: Imported) -> set[str]:
    return {finding.code for finding in imported.report.findings}


def unknown(imported: Imported) -> dict[str, Any]:
    return {one.name: one.value for one in imported.report.unknown}


@each(
    ("command", "launcher", "engine"),
    [
        (f"python {TRAIN}", "python", {}),
        (f"python3.11 -u -X dev {TRAIN}", "python", {}),
        (f"/opt/v/bin/python -m pkg.{TRAIN}".replace(".py", ""), "python", {}),
        (f"torchrun --nproc_per_node=8 {TRAIN}", "torchrun", {"engine.processes": 8, "engine.strategy": "ddp"}),
        (f"torchrun {TRAIN}", "torchrun", {"engine.processes": 1, "engine.strategy": "single"}),
        (f"torchrun --nproc 2 {TRAIN}", "torchrun", {"engine.processes": 2}),
        (f"torchrun --nnodes 2 --nproc-per-node 4 {TRAIN}", "torchrun", {"engine.nodes": 2, "engine.processes": 4}),
        (f"torchrun --standalone --nproc_per_node=gpu {TRAIN}", "torchrun", {}),
        (
            f"python -m torch.distributed.launch --nproc_per_node 2 --use_env {TRAIN}",
            "torchrun",
            {"engine.processes": 2},
        ),
        (f"python -m torch.distributed.run --nproc_per_node 2 {TRAIN}", "torchrun", {"engine.processes": 2}),
        (f"deepspeed --num_gpus 4 {TRAIN}", "deepspeed", {"engine.processes": 4}),
        (f"deepspeed --include localhost:1,3 {TRAIN}", "deepspeed", {"engine.gpus": ["1", "3"], "engine.processes": 2}),
        (f"deepspeed --include a:0,1@b:0,1 {TRAIN}", "deepspeed", {"engine.nodes": 2, "engine.processes": 2}),
        (f"accelerate launch --multi_gpu --num_processes=4 {TRAIN}", "accelerate", {"engine.processes": 4}),
        (f"accelerate launch --num_processes 4 --num_machines 2 {TRAIN}", "accelerate", {"engine.processes": 2}),
        (f"accelerate launch --mixed-precision bf16 {TRAIN}", "accelerate", {"engine.precision": "bf16"}),
        (f"accelerate launch --fp16 {TRAIN}", "accelerate", {"engine.precision": "fp16"}),
        (f"accelerate launch --cpu {TRAIN}", "accelerate", {"engine.device": "cpu"}),
        (
            f"accelerate launch --use_deepspeed --zero_stage 3 --offload_param_device cpu {TRAIN}",
            "accelerate",
            {"engine.strategy": "zero3", "engine.offload": "all"},
        ),
        (
            f"accelerate launch --use_fsdp --fsdp_sharding_strategy FULL_SHARD --fsdp_activation_checkpointing true {TRAIN}",
            "accelerate",
            {"engine.strategy": "fsdp", "engine.checkpointing": True},
        ),
        (f"accelerate-launch -m pkg.{TRAIN}".replace(".py", ""), "accelerate", {}),
    ],
)
def test_launchers(command: str, launcher: str, engine: dict[str, Any]) -> None:
    imported = read(command)
    assert imported.setup["launcher"] == launcher
    assert imported.values["training.learning_rate"] == 1e-4
    values = {**engine_values(imported.setup), **imported.values}
    assert {key: values.get(key) for key in engine} == engine
    assert unknown(imported) == {}


@each(
    "prefix",
    [
        "",
        "nohup ",
        "env ",
        "time nice -n 5 ",
        "cd /work && source venv/bin/activate && ",
        "srun --gres=gpu:4 -N 1 ",
        "sudo -E ",
        "timeout 3600 ",
        "uv run ",
        "poetry run ",
        "conda run -n env ",
        "docker run --gpus all --rm image ",
        "singularity exec --nv image.sif ",
        "$ ",
        "!",
        "if true; then ",
        "echo start; ",
    ],
)
@each("suffix", ["", " > log.txt 2>&1 &", " 2>&1 | tee log", " && echo done", " # a remark", " < /dev/null"])
def test_what_stands_around_a_command_does_not_change_it(prefix: str, suffix: str) -> None:
    imported = read(f"{prefix}torchrun --nproc_per_node 2 {TRAIN} --seed 7{suffix}")
    assert imported.setup["num_processes"] == 2
    assert imported.values["training.seed"] == 7
    assert unknown(imported) == {}


def test_a_command_in_quotes_of_a_shell_is_read_with_its_lines() -> None:
    imported = read(f"set -e\n\nsrun bash -c 'torchrun --nproc_per_node 2 {TRAIN}'")
    assert imported.setup["num_processes"] == 2
    assert imported.place_of("training.learning_rate") == "command:3"


@pytest.mark.parametrize("start", ["eval $CMD", 'eval "$CMD"', "$CMD", 'bash -c "$CMD"'])
def test_a_command_in_a_variable_is_read(start: str) -> None:
    imported = read(
        f'N=2\nARGS="--learning_rate 1e-4 \\\n --seed 5"\nCMD="torchrun --nproc_per_node $N train.py $ARGS"\n{start}\n'
    )
    assert imported.setup["num_processes"] == 2
    assert imported.values["training.learning_rate"] == 1e-4


def test_variables_of_the_environment() -> None:
    imported = read(
        f"CUDA_VISIBLE_DEVICES=0,2 OMP_NUM_THREADS=4 NCCL_DEBUG=INFO HF_TOKEN=hf_abc MASTER_PORT=29500 python {TRAIN}"
    )
    assert imported.values["engine.gpus"] == ["0", "2"]
    assert imported.values["engine.cpu_threads"] == 4
    assert imported.values["engine.environment.NCCL_DEBUG"] == "INFO"
    assert {"HF_TOKEN", "MASTER_PORT"} <= {one.name for one in imported.report.dropped}
    assert "hf_abc" not in json.dumps(imported.report.to_json())
    assert read(f"CUDA_VISIBLE_DEVICES= python {TRAIN}").values["engine.device"] == "cpu"


def test_what_only_a_shell_knows_is_unknown_and_has_no_value() -> None:
    imported = read("torchrun $DISTRIBUTED_ARGS train.py --learning_rate $LR --max_steps $((N*2)) --seed 3 $EXTRA_ARGS")
    assert unknown(imported) == {
        "$DISTRIBUTED_ARGS": "$DISTRIBUTED_ARGS",
        "learning_rate": "$LR",
        "max_steps": "$((N*2))",
        "$EXTRA_ARGS": "$EXTRA_ARGS",
    }
    assert imported.values == {"training.seed": 3}
    assert "num_processes" not in imported.setup


def test_files_that_are_named_are_references() -> None:
    imported = read(
        "accelerate launch --config_file acc.yaml scripts/train.py --config recipe.yaml --deepspeed ds.json --x y.txt"
    )
    assert [(one.role, one.path) for one in imported.references] == [
        ("accelerate", "acc.yaml"),
        ("script", "scripts/train.py"),
        ("arguments", "recipe.yaml"),
        ("deepspeed", "ds.json"),
    ]
    # The DeepSpeed file says how processes share the work, also where it is not here.
    assert "distributed_type" not in read("deepspeed --num_gpus 2 train.py --deepspeed ds.json --seed 1").setup


def test_arguments_of_scripts() -> None:
    imported = read(
        "python run_clm.py --model_name_or_path=gpt2 --report_to wandb tensorboard --no_remove_unused_columns "
        "--bf16 --label_smoothing_factor 0.1 --max_grad_norm -1 trainer.x=3 weight_decay=0.2"
    )
    assert imported.values["logging.report_to"] == ["wandb", "tensorboard"]
    assert imported.values["engine.precision"] == "bf16"
    assert imported.values["training.max_grad_norm"] == -1
    assert imported.values["task"] == "causal-lm"
    assert [one.value for one in imported.report.dropped if one.name == "no_remove_unused_columns"] == [False]


def test_old_ways_to_launch_are_told() -> None:
    imported = read(f"python -m torch.distributed.launch --nproc_per_node 2 {TRAIN} --per_gpu_train_batch_size 4")
    renamed = {(one.old, one.new) for one in imported.report.renamed}
    assert ("python -m torch.distributed.launch", "torchrun") in renamed
    assert ("per_gpu_train_batch_size", "per_device_train_batch_size") in renamed


def test_of_several_commands_the_training_is_read() -> None:
    imported = read(f"pip install x\npython prepare.py --seed 1\ntorchrun {TRAIN} --seed 2\npython evaluate.py\n")
    assert imported.values["training.seed"] == 2
    assert "several_trainings" in codes(imported)


def test_options_that_a_launcher_does_not_have() -> None:
    imported = read(f"accelerate launch --main_port=1 --num_processes 2 {TRAIN}")
    assert "main_port" in unknown(imported) and "unknown_option" in codes(imported)
    assert imported.setup["num_processes"] == 2


@each(
    "command",
    ["ls -l", "pip install torch", "python -c 'print(1)'", "accelerate config", "python --version", "echo python", "torchrun",
     "accelerate launch --config_file x.yaml", "", "# accelerate launch train.py", "python -m pip install x"],
)  # fmt: skip
def test_what_starts_no_training_is_refused_in_a_sentence(command: str) -> None:
    with pytest.raises(NotImportable) as refused:
        read(command)
    assert len(refused.value.findings) == 1


def test_half_a_command_is_told() -> None:
    assert "cut_off" in codes(read(f"python {TRAIN} \\"))
    assert "cut_off" in codes(read(f"python {TRAIN} --run_name 'x"))


VALUES = {"batch.micro_batch_size": 4, "batch.gradient_accumulation_steps": 2}


@each(
    ("command", "said"),
    [
        (f"CUDA_VISIBLE_DEVICES=0,1,2 python {TRAIN}", "8 x 3 = 24"),
        (f"python {TRAIN}", "32 with 4"),
        (f"CUDA_VISIBLE_DEVICES=1 python {TRAIN}", None),
        (f"CUDA_VISIBLE_DEVICES='' python {TRAIN}", None),
        (f"CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 {TRAIN}", None),
        (f"accelerate launch {TRAIN}", None),
    ],
)
def test_plain_python_on_several_gpus_is_data_parallel(command: str, said: str | None) -> None:
    imported = read(command)
    findings = list(data_parallel_findings(imported.setup, {**VALUES, **imported.values}, "command"))
    assert [said in finding.message for finding in findings if said] == ([True] if said else [])
    assert len(findings) == (1 if said else 0)
    assert all("DataParallel" in finding.message for finding in findings)


def test_wild_commands_are_read(shared_data: Path) -> None:
    commands = json.loads((shared_data / "wild" / "launch_commands.json").read_text(encoding="utf-8"))
    for command in commands:
        imported = read(command)
        # Not a word is lost: what is no value of an option is in the report, in the setup, or a reference.
        assert imported.report.mapped or imported.report.unknown or imported.report.dropped or imported.references


def options_of(package: str, file: str) -> set[tuple[str, bool]]:
    """(option, whether it is a flag) of the parsers in a source file; importing torch for it takes seconds."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    tree = ast.parse((Path(spec.submodule_search_locations[0]) / file).read_text(encoding="utf-8"))
    found: set[tuple[str, bool]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            names = [
                one.value for one in node.args if isinstance(one, ast.Constant) and str(one.value).startswith("--")
            ]
            action = next((keyword.value for keyword in node.keywords if keyword.arg == "action"), None)
            flag = isinstance(action, ast.Constant) and str(action.value).startswith(("store_", "help"))
            # torch's own action for a flag that the environment can set.
            flag = flag or (isinstance(action, ast.Name) and action.id == "check_env")
            found |= {(str(name)[2:].replace("-", "_"), flag) for name in names}
    return found


@pytest.mark.parametrize(
    ("package", "file", "flags", "values"),
    [
        ("accelerate", "commands/launch.py", ACCELERATE_FLAGS, ACCELERATE_VALUES),
        ("torch", "distributed/run.py", TORCHRUN_FLAGS, TORCHRUN_VALUES),
        ("torch", "distributed/launch.py", TORCHRUN_FLAGS, TORCHRUN_VALUES),
        ("deepspeed", "launcher/runner.py", DEEPSPEED_FLAGS, DEEPSPEED_VALUES),
    ],
)
def test_options_are_those_of_the_installed_launchers(
    package: str, file: str, flags: frozenset[str], values: frozenset[str]
) -> None:
    for name, is_flag in options_of(package, file):
        if name.startswith(ACCELERATE_PREFIXES):
            continue
        assert name in (flags if is_flag else values), name
    assert not flags & values
