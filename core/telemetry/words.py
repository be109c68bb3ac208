"""A training, its command and spans of time in words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from trainwiz.core.language import mark, tr
from trainwiz.core.text import FARTHEST_S, plain_text

# Spans of time in a word or two, as sentences use them.

UNITS = ((86_400.0, mark("{n} days")), (3_600.0, mark("{n} h")), (60.0, mark("{n} min")))


def span_words(seconds: float) -> str:
    """ "12 days", "5 h", "40 min", "7 s": the largest unit of which there are two, else the next smaller."""
    seconds = min(seconds, FARTHEST_S)
    for unit_s, words in UNITS:
        if seconds >= 2 * unit_s:
            return tr(words, n=f"{seconds / unit_s:,.0f}")
    return tr("{n} s", n=f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}")


def step_words(step: int, max_steps: int | None) -> str:
    """ "step 1,200 of 5,000", for a sentence."""
    if not max_steps:
        return tr("step {step}", step=f"{step:,}")
    return tr("step {step} of {max_steps}", step=f"{step:,}", max_steps=f"{max_steps:,}")


def first_of(names: Sequence[str], most: int) -> str:
    """ "a, b and 7 more": the first `most` of them."""
    said = ", ".join(names[:most])
    return said if len(names) <= most else tr("{names} and {n} more", names=said, n=f"{len(names) - most:,}")


# What a command line says: whether it launches a training, trains, or only wraps another command.

KEEPER_MODULE = "trainwiz.core.supervise"
TRAINING_MODULE = "trainwiz.core.training"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


LAUNCHER_PROGRAMS = _names("accelerate torchrun torchrun_main deepspeed horovodrun mpirun mpiexec orterun composer")
LAUNCHER_MODULES = (
    "accelerate.commands.launch", "accelerate.commands.accelerate_cli", "torch.distributed.run", "torch.distributed.launch",
    "deepspeed.launcher.", "composer.cli.launcher",
)  # fmt: skip
"""Also of a file in a folder of packages, whose slashes are dots."""
WRAPPERS = _names(
    "sh bash dash zsh fish ksh csh tcsh sudo doas su env nohup time timeout nice ionice chrt stdbuf unbuffer "
    "script setsid taskset numactl srun slurmstepd uv uvx poetry pdm pipx pixi conda mamba micromamba hatch rye "
    "tini dumb-init docker-init catatonit xargs watch make parallel tmux screen dtach abduco systemd-run runuser "
    "flock strace ltrace"
)
"""Programs that are not the training but stand above it in the tree."""

NEVER = _names(
    "tensorboard jupyter jupyter-lab jupyter-notebook ipykernel_launcher pytest pip pip3 mypy ruff pylsp jedi "
    "wandb trainwiz nvitop gpustat py-spy"
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
    return re.split(r"[/\\]", word)[-1].removeprefix("-")


def is_python(command: Words) -> bool:
    return bool(command) and _PYTHON.fullmatch(base_name(command[0]).lower()) is not None


def program_of(command: Words) -> str:
    """What runs: the program, of a Python its script or module ("train.py", "accelerate.commands.launch"); "" if unknown."""
    if not command:
        return ""
    if not is_python(command):
        return base_name(command[0])
    words = iter(command[1:])
    for word in words:
        if word == "-m":
            return next(words, "")
        if word == "-c":
            return ""
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(words, "")
        elif not word.startswith("-"):
            return base_name(word)
    return ""


def is_keeper(command: Words) -> bool:
    return is_python(command) and KEEPER_MODULE in command


def is_launcher(command: Words) -> bool:
    """accelerate launch, torchrun, deepspeed and the like, as scripts or as modules."""
    programs = {base_name(word) for word in command[:2]}
    if programs & LAUNCHER_PROGRAMS:
        return not (command[1:3] and "accelerate" in programs and "launch" not in command[:4])
    return is_python(command) and any(
        name in word.replace("/", ".") for word in command[1:6] for name in LAUNCHER_MODULES
    )


def is_wrapper(command: Words) -> bool:
    return bool(command) and base_name(command[0]).split(":")[0] in WRAPPERS


def trains_by_its_words(command: Words) -> bool:
    """Whether a Python command line reads like a training: by its script's or module's name, or by its options."""
    program = program_of(command)
    if not is_python(command) or program.split(".")[0] in NEVER or is_keeper(command):
        return False
    if _TRAINS.search(program.removesuffix(".py")) or program.split(".")[0] in TRAINING_MODULES:
        return True
    # Console scripts take what to do as one of their first words: `yolo train`, `axolotl train`.
    return any(_TRAINS.fullmatch(word) for word in command[2:6]) or any(TRAINING_FLAG.match(word) for word in command)


# A command line as it may be shown: without tokens, keys and passwords.

HIDDEN = "***"
LONGEST_COMMAND = 4_000

_SECRET_NAME = re.compile(
    r"(^|[_\-.\s])(token|secret|password|passwd|passphrase|pwd|apikey|credentials?|auth|authorization|bearer|key"
    r"|(api|access|auth|refresh)[_-]?tokens?|secrets|passwords"
    r"|(api|access|auth|private|secret|account|encryption|signing|ssh|hf|wandb|comet|neptune|openai|anthropic|azure|aws)[_-]?keys?)$",
    re.IGNORECASE,
)
"""Names of options and variables whose value nobody may see."""
_HARMLESS_NAME = re.compile(
    r"(pad|eos|bos|unk|mask|sep|cls|image|audio|special|start|end|trigger|placeholder|decoder|prefix)[_-](\w+[_-])?token$"
    r"|(?<!api)(?<!access)(?<!auth)(?<!private)(?<!secret)(?<!wandb)(?<!hf)[_-]key$",
    re.IGNORECASE,
)
"""The tokens of a tokenizer and the keys of a dictionary."""
_SECRET_VALUE = re.compile(
    r"(?<![A-Za-z0-9])(hf_[A-Za-z0-9]{8,}|api_org_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_\-]{12,}|gh[pousr]_[A-Za-z0-9]{12,}"
    r"|github_pat_[A-Za-z0-9_]{12,}|glpat-[A-Za-z0-9_\-]{12,}|xox[abprs]-[A-Za-z0-9\-]{8,}|AKIA[A-Z0-9]{12,}"
    r"|AIza[A-Za-z0-9_\-]{20,}|npm_[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{20,}|local-[0-9a-f]{32,}|eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-.]+)"
)
"""Values that are secret by their form: tokens of well-known services."""
_HEX_KEY = re.compile(r"[0-9a-fA-F]{32,}")
_URL_LOGIN = re.compile(r"[a-z][a-z0-9+.\-]*://[^/\s@]+@", re.IGNORECASE)
_TEXT = re.compile(r"[\s\"'{}:]")
"""In a word that is a text of its own: a command for a shell, JSON, a header."""
_APART = re.compile(r"[^\w.\-]+")


def shown_command(command: Sequence[str]) -> str:
    """The command line as one line of plain text that a shell would read back, secrets left out."""
    text = " ".join(word if word == HIDDEN else shlex.quote(word) for word in _shown(command))
    return plain_text(text, LONGEST_COMMAND)


def _shown(command: Sequence[str]) -> Iterator[str]:
    """The words of a command line, secrets replaced by ***: by the option's name, or by their own form."""
    follows_a_name = False
    for word in command:
        if follows_a_name and not word.startswith("--"):
            yield HIDDEN
            follows_a_name = False
            continue
        follows_a_name = "=" not in word and word.startswith("-") and _is_secret(word.lstrip("-"))
        yield _without_secrets(word)


def _is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None and _HARMLESS_NAME.search(name) is None


def _without_secrets(word: str) -> str:
    name, equals, value = word.partition("=")
    if equals and value and _is_secret(name.lstrip("-+")) and not _TEXT.search(name):
        return f"{name}={HIDDEN}"
    if _SECRET_VALUE.search(word) or _URL_LOGIN.search(word) or _HEX_KEY.fullmatch(word):
        return HIDDEN
    # What is secret in a text, such as `bash -c "HF_TOKEN=... python train.py"`, may end anywhere: all of it goes.
    parts = _APART.split(word) if _TEXT.search(word) else []
    return HIDDEN if any(_is_secret(part.strip("-")) or _HEX_KEY.fullmatch(part) for part in parts) else word


def short_command(command: Sequence[str]) -> str:
    """The command line without the folders of its programs, for lists: "python train.py --epochs 3"."""
    if is_python(command) and is_launcher(command[1:]):
        command = command[1:]
    programs = 2 if is_python(command) else 1
    return shown_command([*(base_name(word) for word in command[:programs]), *command[programs:]])
