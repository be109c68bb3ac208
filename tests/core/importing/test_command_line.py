"""Launch commands of every launcher, with what people put in front of and behind them."""

import ast
import contextlib
import importlib.util
import itertools
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.importing import command_line, gather
from trainwiz.core.importing.command_line import FLAGS, commands_of
from trainwiz.core.importing.report import Imported, NotImportable

from tests.core.importing.told import codes, names, unknown, whole
from tests.each import each

TRAIN = "train.py --learning_rate 1e-4"


def read(command: str) -> Imported:
    return command_line.read(command, "command")


@each(("command", "engine"), [
    ("python TRAIN", {}),
    ("/opt/v/bin/python -m pkg.train --learning_rate 1e-4", {}),
    ("torchrun --nproc=8 TRAIN", {"engine.processes": 8, "engine.strategy": "ddp"}),
    ("torchrun TRAIN", {"engine.processes": 1, "engine.strategy": "single"}),
    ("torchrun --nnodes 2 --nproc-per-node 4 TRAIN", {"engine.nodes": 2, "engine.processes": 4}),
    ("torchrun --standalone --nproc_per_node=gpu TRAIN", {}),
    ("python -m torch.distributed.launch --nproc_per_node 2 --use_env TRAIN", {"engine.processes": 2}),
    ("python -m torch.distributed.run --nproc_per_node 2 TRAIN", {"engine.processes": 2}),
    ("deepspeed --num_gpus 4 TRAIN", {"engine.processes": 4}),
    ("deepspeed --include localhost:1,3 TRAIN", {"engine.gpus": ["1", "3"], "engine.processes": 2}),
    ("CUDA_VISIBLE_DEVICES=0,1,2,3 deepspeed --num_gpus 2 TRAIN", {"engine.processes": 2}),
    ("accelerate launch --multi_gpu --num_processes=4 TRAIN", {"engine.processes": 4}),
    ("accelerate launch --num_processes 4 --num_machines 2 TRAIN", {"engine.processes": 2}),
    ("accelerate launch --mixed-precision bf16 TRAIN", {"engine.precision": "bf16"}),
    ("accelerate launch --fp16 TRAIN", {"engine.precision": "fp16"}),
    ("accelerate launch --cpu TRAIN", {"engine.device": "cpu"}),
    ("accelerate launch --use_deepspeed --zero_stage 3 --offload_param_device cpu TRAIN",
     {"engine.strategy": "zero3", "engine.offload": "all"}),
    ("accelerate launch --use_fsdp --fsdp_sharding_strategy FULL_SHARD --fsdp_activation_checkpointing true TRAIN",
     {"engine.strategy": "fsdp", "engine.checkpointing": True}),
    ("accelerate-launch -m pkg.train --learning_rate 1e-4", {}),
    # Programs that start processes by themselves, and those of which nobody knows how many.
    ("FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=4 llamafactory-cli train a.yaml", {"engine.nodes": None}),
    ("CUDA_VISIBLE_DEVICES=0,1 axolotl train a.yaml", {"engine.processes": 2, "engine.strategy": "ddp"}),
    ("srun python TRAIN", {"engine.processes": None}),
    ("CUDA_VISIBLE_DEVICES=0,1 mpirun -np 8 -H a:4,b:4 python TRAIN", {"engine.processes": None}),
])  # fmt: skip
def test_launchers(command: str, engine: dict[str, Any]) -> None:
    imported = read(command.replace("TRAIN", TRAIN))
    values = whole(imported)
    assert values.get("training.learning_rate") == (1e-4 if "1e-4" in command.replace("TRAIN", TRAIN) else None)
    assert {key: values.get(key) for key in engine} == engine
    assert unknown(imported) == {}
    assert ("processes_unknown" in codes(imported)) is ("run python" in command or "mpirun" in command)


@each("command", [f"{prefix}torchrun --nproc_per_node 2 {TRAIN} --seed 7{suffix}" for prefix, suffix in zip([
    "", "nohup ", "env ", "time nice -n 5 ", "cd /work && source venv/bin/activate && ", "srun --gres=gpu:4 -N 1 ",
    "sudo -E ", "timeout 3600 ", "uv run ", "poetry run ", "conda run -n env ", "docker run --gpus all --rm image ",
    "singularity exec --nv image.sif ", "$ ", "!", "if true; then ", "echo start; ",
], itertools.cycle(["", " > log.txt 2>&1 &", " 2>&1 | tee log", " && echo done", " # a remark", " < /dev/null"]))])  # fmt: skip
def test_what_stands_around_a_command_does_not_change_it(command: str) -> None:
    imported = read(command)
    assert whole(imported)["engine.processes"] == 2
    assert imported.values["training.seed"] == 7
    assert unknown(imported) == {}


def test_a_command_in_a_variable_is_read_with_its_line_and_one_in_quotes_of_a_shell_is_not() -> None:
    for start in ("eval $CMD", "$CMD"):
        imported = read(
            f'N=2\nARGS="--learning_rate 1e-4 \\\n --seed 5"\nCMD="torchrun --nproc_per_node $N x.py $ARGS"\n{start}\n'
        )
        assert whole(imported)["engine.processes"] == 2, start
        assert imported.values["training.learning_rate"] == 1e-4, start
    assert imported.place_of("training.learning_rate") == "command:5"
    with pytest.raises(NotImportable, match="paste the one"):
        read(f"srun bash -c 'torchrun --nproc_per_node 2 {TRAIN}'")


def test_variables_of_the_environment() -> None:
    imported = read(
        "CUDA_VISIBLE_DEVICES=0,2 OMP_NUM_THREADS=4 NCCL_DEBUG=INFO HF_TOKEN=hf_abc AWS_SECRET_ACCESS_KEY=hf_abc "
        f"MASTER_PORT=29500 python {TRAIN}"
    )
    values = whole(imported)
    assert (values["engine.gpus"], values["engine.processes"], values["engine.cpu_threads"]) == (["0", "2"], 2, 4)
    assert values["engine.environment.NCCL_DEBUG"] == "INFO"
    assert {"HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "MASTER_PORT"} <= names(imported.dropped)
    assert "hf_abc" not in json.dumps(imported.to_json())
    assert whole(read(f"CUDA_VISIBLE_DEVICES= python {TRAIN}"))["engine.device"] == "cpu"
    # One process that sees several GPUs feeds them all.
    starts = ("CUDA_VISIBLE_DEVICES=0,2 python", "python", "CUDA_VISIBLE_DEVICES=1 python", "torchrun")
    told = ["data_parallel" in codes(read(f"{start} {TRAIN}")) for start in starts]
    assert told == [True, True, False, False]


def test_what_only_a_shell_knows_is_unknown_and_has_no_value() -> None:
    imported = read("torchrun $DISTRIBUTED_ARGS train.py --learning_rate $LR --max_steps $((N*2)) --seed 3 $EXTRA_ARGS")
    words = {"learning_rate": "$LR", "max_steps": "$((N*2))", "$EXTRA_ARGS": "$EXTRA_ARGS"}
    assert unknown(imported) == words | {"$DISTRIBUTED_ARGS": "$DISTRIBUTED_ARGS"}
    assert whole(imported) == {"training.seed": 3}


def test_files_that_are_named_are_references() -> None:
    imported = read(
        "accelerate launch --config_file acc.yaml scripts/train.py --config recipe.yaml --deepspeed ds.json --x y.txt"
    )
    assert {one.name: one.value for one in [*imported.references, *imported.inner[0].references]} == {
        "accelerate": "acc.yaml", "script": "scripts/train.py", "arguments": "recipe.yaml", "deepspeed": "ds.json"
    }  # fmt: skip
    # The DeepSpeed file says how processes share the work, also where it is not here.
    assert "engine.strategy" not in whole(read("deepspeed --num_gpus 2 train.py --deepspeed ds.json --seed 1"))
    bare = read("deepspeed train.py --deepspeed --deepspeed_config conf/ds.json --epochs 2")
    assert [one.value for one in bare.references if one.name == "deepspeed"] == ["conf/ds.json"]
    assert {one.name: one.why for one in bare.dropped}["deepspeed"].startswith("It only enables DeepSpeed")
    assert bare.unknown == []


def test_arguments_of_scripts() -> None:
    imported = read(
        "python run_clm.py --model_name_or_path=gpt2 --report_to wandb tensorboard "
        "--bf16 --label_smoothing_factor 0.1 --max_grad_norm -1 trainer.x=3 weight_decay=0.2"
    )
    assert imported.values["logging.report_to"] == ["wandb", "tensorboard"]
    assert imported.values["engine.precision"] == "bf16"
    assert unknown(imported) == {"trainer.x": "3"} | {"max_grad_norm": "-1"}, "not the option -1"
    assert imported.values["task"] == "causal-lm"
    # A token of the text is no password.
    dropped = read("trl sft --eos_token '<|im_end|>' --hub_token hf_x --learning_rate 1e-4").dropped
    assert {one.name: one.value for one in dropped} == {"eos_token": "<|im_end|>", "hub_token": "***"}


def test_wrong_options_and_other_commands_are_told() -> None:
    assert "other_training" in codes(read(f"python {TRAIN} --image_folder img"))
    several = read(f"pip install x\npython prepare.py --seed 1\ntorchrun {TRAIN} --seed 2\npython evaluate.py\n")
    assert several.values["training.seed"] == 2
    assert "several_trainings" in codes(several)
    wrong = read(f"accelerate launch --main_port=1 --num_processes 2 {TRAIN}")
    assert "main_port" in unknown(wrong.inner[0])
    assert whole(wrong)["engine.processes"] == 2
    assert "cut_off" in codes(read(f"python {TRAIN} \\"))
    for options in ("fp16 --mixed_precision bf16", "use_fsdp --use_deepspeed", "num_processes 2 --num_processes 4"):
        texts = [gather.text_of(f"accelerate launch --{options} train.py")]
        assert codes(gather.import_together(texts), "warning") == ["contradiction"]
    with pytest.raises(NotImportable, match="incomplete"):
        read(f"python {TRAIN} --run_name 'x")


def options_of(package: str, file: str) -> set[tuple[str, bool]]:
    """(option, whether it is a flag) of the parsers in a source file; importing torch for it takes seconds."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    tree = ast.parse((Path(spec.submodule_search_locations[0]) / file).read_text(encoding="utf-8"))
    found: set[tuple[str, bool]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            given = [str(one.value) for one in node.args if isinstance(one, ast.Constant)]
            action = next((keyword.value for keyword in node.keywords if keyword.arg == "action"), None)
            flag = isinstance(action, ast.Constant) and str(action.value).startswith(("store_", "help"))
            # torch's own action for a flag that the environment can set.
            flag = flag or (isinstance(action, ast.Name) and action.id == "check_env")
            found |= {(name[2:].replace("-", "_"), flag) for name in given if name.startswith("--")}
    return found


@each(("package", "file"), [
    ("accelerate", "commands/launch.py"), ("torch", "distributed/run.py"), ("torch", "distributed/launch.py"),
    ("deepspeed", "launcher/runner.py"),
])  # fmt: skip
def test_flags_are_those_of_the_installed_launchers(package: str, file: str) -> None:
    # All other options take a value.
    assert {name for name, is_flag in options_of(package, file) if is_flag != (name in FLAGS)} == set()


@each("command", ["trl sft", "accelerate launch trl/scripts/sft.py"])
def test_supervised_tuning_by_trl(command: str) -> None:
    imported = read(
        f"{command} --model_name_or_path=Qwen/Qwen2.5-0.5B --dataset_name trl-lib/Capybara --use_peft --lora_r 16 "
        "--max_length 2048 --packing --gradient_checkpointing --eval_strategy no"
    )
    expected = {
        "task": "causal-lm", "model.name": "Qwen/Qwen2.5-0.5B", "data.sources.0.name": "trl-lib/Capybara",
        "data.packing": True, "batch.sequence_length": 2048, "peft.method": "lora", "peft.rank": 16,
        "engine.checkpointing": True,
    }  # fmt: skip
    assert expected.items() <= imported.values.items()
    assert imported.defaults["training.learning_rate"] == 2e-5 and "engine.precision" not in imported.defaults
    assert unknown(imported) == {}


# Words of shell scripts: the same as bash makes of them, where a shell could know them.


SCRIPTS = [
    "show a b  c", "show 'a b' \"c d\" e\\ f ''", "show a\\\n  b \\\n c", "show a # b\nshow c#d",
    "X=1; show $X ${X}0 \"$X\"", "A='--lr 1e-4  --x 2'\nshow $A \"$A\" z",
    'show ${NOT_SET_HERE:-x y} "${NOT_SET_HERE:-x y}" ${NOT_SET_HERE-7}', 'E=\nshow a $E b "$E" c',
    "show a >/dev/null; show b 2>&1 | cat; show c &> /dev/null", "show x && show y || show z",
    "export Q=5 R=6\nshow $Q$R", "show a --x=\"1 2\"",
    "if true; then show yes; fi\nfor i in 1; do show loop; done", "{ show in; }\n( show sub )",
    'show "a\\"b" \'d"e\'', "A=1 B=2 show c", 'P="--nodes 2 \\\n --gpus 4"\nshow $P',
]  # fmt: skip


@each("script", SCRIPTS)
def test_words_are_those_of_bash(script: str) -> None:
    bash = shutil.which("bash") or pytest.skip("no bash here to compare with")
    define = "exec 3>&1; show() { printf '%s\\0' \"$@\" >&3; printf '\\n\\0' >&3; }\n"
    run = subprocess.run([bash, "-c", define + script], capture_output=True, timeout=600, check=False)
    expected = [line.split("\0")[:-1] for line in run.stdout.decode().split("\n\0") if line]
    found = [
        [word.text for word in command[at + 1 :]]
        for command in commands_of(script)
        for at, word in enumerate(command)
        if word.text == "show" and not (" || show z" in script and command[at + 1].text == "z")
    ]
    assert found == expected
    assert all(word.known for command in commands_of(script) for word in command)


def test_what_only_a_shell_could_know_stays_as_it_is_written() -> None:
    def words(script: str) -> list[tuple[str, bool]]:
        return [(word.text, word.known) for word in commands_of(script)[-1]]

    unknown = ["$RANK", "$(nproc)", "`date`", "<MODEL>", "c_{a,b}.yaml", "$@", "x$Y"]
    assert words('run $RANK $(nproc) `date` <MODEL> c_{a,b}.yaml "$@" x$Y') == [
        ("run", True), *((word, False) for word in unknown)
    ]  # fmt: skip
    # The known part of a variable is split; one that branches set differently is not known.
    assert words('ARGS="--n $(nproc) --m 2"\nrun $ARGS') == [
        ("run", True), ("--n", True), ("$(nproc)", False), ("--m", True), ("2", True)
    ]  # fmt: skip
    assert words("if x; then N=1; else N=2; fi\nrun $N") == [("run", True), ("$N", False)]
    assert words("if x; then N=1; else N=1; fi\nrun $N") == [("run", True), ("1", True)]


HOSTILE = {
    "doubled text": "A=xx\n" + 'A="$A$A"\n' * 80 + "run $A",
    "sums in sums": "run " + "$((" * 17_000,
    "brackets": "run " + "(" * 7_000,
    "defaults in defaults": "run " + "${A:-" * 500 + "}" * 500, "long word": "run '" + "x" * 100_000,
    "half-open variables": "run " + "${a" * 20_000, "commas in braces": "run {" + "," * 100_000,
    "many words": "run" + " x" * 33_000, "many unknown options": "torchrun " + "$A " * 30_000 + "x.py",
    "many exports": "export A=1\n" * 3_000 + "torchrun x.py\n" * 3_000,
}  # fmt: skip


@each("script", HOSTILE.values())
def test_a_hostile_script_costs_little(script: str) -> None:
    start = time.process_time()
    with contextlib.suppress(NotImportable):
        read(script)
    # 0.2 s on a quiet machine for the longest.
    assert time.process_time() - start < 5
