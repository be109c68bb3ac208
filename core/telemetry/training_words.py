"""What a command line says: whether it launches a training, trains, or only wraps another command."""

from __future__ import annotations

import re
from collections.abc import Sequence

KEEPER_MODULE = "trainwiz.core.supervise"
TRAINING_MODULE = "trainwiz.core.training"

LAUNCHER_PROGRAMS = frozenset(
    {"accelerate", "torchrun", "torchrun_main", "deepspeed", "horovodrun", "mpirun", "mpiexec", "orterun", "composer"}
)
LAUNCHER_MODULES = (
    "accelerate.commands.launch",
    "accelerate.commands.accelerate_cli",
    "torch.distributed.run",
    "torch/distributed/run.py",
    "torch.distributed.launch",
    "torch/distributed/launch.py",
    "deepspeed.launcher.",
    "deepspeed/launcher/",
    "composer.cli.launcher",
)
WRAPPERS = frozenset(
    [
        "sh",
        "bash",
        "dash",
        "zsh",
        "fish",
        "ksh",
        "csh",
        "tcsh",
        "sudo",
        "doas",
        "su",
        "env",
        "nohup",
        "time",
        "timeout",
        "nice",
        "ionice",
        "chrt",
        "stdbuf",
        "unbuffer",
        "script",
        "setsid",
        "taskset",
        "numactl",
        "srun",
        "slurmstepd",
        "uv",
        "uvx",
        "poetry",
        "pdm",
        "pipx",
        "pixi",
        "conda",
        "mamba",
        "micromamba",
        "hatch",
        "rye",
        "tini",
        "dumb-init",
        "docker-init",
        "catatonit",
        "xargs",
        "watch",
        "make",
        "parallel",
        "tmux",
        "screen",
        "dtach",
        "abduco",
        "systemd-run",
        "runuser",
        "flock",
        "strace",
        "ltrace",
    ]
)
"""Programs that are not the training but stand above it in the tree."""

NEVER = frozenset(
    [
        "tensorboard",
        "jupyter",
        "jupyter-lab",
        "jupyter-notebook",
        "ipykernel_launcher",
        "pytest",
        "pip",
        "pip3",
        "mypy",
        "ruff",
        "pylsp",
        "jedi",
        "wandb",
        "trainwiz",
        "nvitop",
        "gpustat",
        "py-spy",
    ]
)
"""Python programs that are no training, whatever else their command line says."""

_TRAINS = re.compile(
    r"(?<![a-z])(pre)?train(er|ing|s)?(?![a-z])|fine_?-?tun(e|er|ing)"
    r"|(?<![a-z])(sft|dpo|grpo|ppo|orpo|kto|rlhf|distill|pretraining)(?![a-z])"
    r"|run_(clm|mlm|plm|fim|glue|ner|qa|squad|swag|summarization|translation|speech|seq2seq|xnli|image|audio|wav2vec2|t5)",
    re.IGNORECASE,
)
TRAINING_MODULES = ("trl", "axolotl", "llamafactory", "llmtuner", "torchtune", "litgpt", "lightning", "fairseq", "nemo")
TRAINING_FLAG = re.compile(
    r"--?(per[_-]device[_-]train[_-]batch[_-]size|num[_-]train[_-]epochs|gradient[_-]accumulation[_-]steps|max[_-]train[_-]steps"
    r"|num[_-]epochs|learning[_-]rate|local[_-]rank)\b"
)
_PYTHON = re.compile(r"(python|pypy)[\d.]*(t|d)?(\.exe)?")

Words = Sequence[str]


def base_name(word: str) -> str:
    """The last part of a path of this or another system, without a login shell's dash."""
    return re.split(r"[/\\]", word)[-1].lstrip("-")


def is_python(command: Words) -> bool:
    return bool(command) and _PYTHON.fullmatch(base_name(command[0]).lower()) is not None


def program_of(command: Words) -> str:
    """What runs: the program, of a Python its script or module ("train.py", "accelerate.commands.launch"); "" if unknown."""
    if not command:
        return ""
    if not is_python(command):
        return base_name(command[0])
    skip = False
    for position, word in enumerate(command[1:], start=1):
        if skip:
            skip = False
        elif word == "-m":
            return command[position + 1] if position + 1 < len(command) else ""
        elif word == "-c":
            return ""
        elif word in ("-W", "-X", "--check-hash-based-pycs"):
            skip = True
        elif not word.startswith("-"):
            return base_name(word)
    return ""


def is_keeper(command: Words) -> bool:
    """Whether it is the keeper of a run of ours (or its guard)."""
    return is_python(command) and KEEPER_MODULE in command


def is_launcher(command: Words) -> bool:
    """accelerate launch, torchrun, deepspeed and the like, as scripts or as modules."""
    programs = {base_name(word) for word in command[:2]}
    if programs & LAUNCHER_PROGRAMS:
        return not (command[1:3] and "accelerate" in programs and "launch" not in command[:4])
    return is_python(command) and any(name in word for word in command[1:6] for name in LAUNCHER_MODULES)


def is_wrapper(command: Words) -> bool:
    return bool(command) and base_name(command[0]).split(":")[0] in WRAPPERS


def trains_by_its_words(command: Words) -> bool:
    """Whether a Python command line reads like a training: by its script's or module's name, or by its options."""
    program = program_of(command)
    if not is_python(command) or program.split(".")[0] in NEVER or is_keeper(command):
        return False
    name = program.removesuffix(".py")
    if _TRAINS.search(name) or name.split(".")[0] in TRAINING_MODULES:
        return True
    # Console scripts take what to do as their first word: `yolo train`, `axolotl train`.
    rest = list(command[1:6])
    after = rest[rest.index(program) + 1 :] if program in rest else rest[1:]
    if after and _TRAINS.fullmatch(after[0]):
        return True
    return any(TRAINING_FLAG.match(word) for word in command)
