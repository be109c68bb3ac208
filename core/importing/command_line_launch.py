"""Which command of a script starts the training, and its launcher."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal

from trainwiz.core.importing.command_line_options import Option, Taken
from trainwiz.core.importing.report import Collector, engine_values, whole
from trainwiz.core.importing.shell_words import Command, Word, read_script
from trainwiz.core.importing.slurm_job import STARTS_SEVERAL, say_nodes_unknown
from trainwiz.core.importing.words import RENDEZVOUS
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text

# Which words of a command start a training: the launcher behind env, nohup, srun and the like.

Program = Literal["accelerate", "torchrun", "deepspeed", "python", "trl", "framework"]

PYTHON = re.compile(r"python(?:\d+(?:\.\d+)*)?w?")
PYTHON_VALUES = ("-W", "-X", "--check-hash-based-pycs")
TORCH_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch"})
ACCELERATE_MODULES = frozenset({"accelerate.commands.launch", "accelerate.commands.accelerate_cli", "accelerate"})
DEEPSPEED_MODULES = frozenset({"deepspeed", "deepspeed.launcher.runner"})
FRAMEWORKS: Mapping[str, frozenset[str]] = {
    "llamafactory-cli": frozenset({"train"}),
    "lmf": frozenset({"train"}),
    "swift": frozenset({"sft", "pt"}),
    "axolotl": frozenset({"train"}),
    "fairseq-train": frozenset(),
    "fairseq-hydra-train": frozenset(),
}
"""Programs that start their processes by themselves -> their commands that train; none where they have no others."""
NOT_TRAINING = frozenset(
    {"mypy", "ruff", "black", "isort", "flake8", "pylint", "coverage", "sphinx", "twine", "pre_commit", "timeit",
     "cProfile", "zipfile", "gdown", "wandb", "sglang", "vllm", "axolotl.cli.preprocess", "pip", "venv", "http.server", "json.tool", "ipykernel", "setup.py", "manage.py", "virtualenv", "build", "pytest",
     "unittest", "site", "compileall", "tensorboard", "jupyter", "conda", "huggingface_hub", "nltk.downloader", "spacy"}
)  # fmt: skip
"""Scripts and modules that prepare things."""

WRAPPERS = frozenset(
    {"env", "nohup", "exec", "setsid", "time", "command", "sudo", "nice", "ionice", "timeout", "stdbuf", "taskset",
     "numactl", "unbuffer", "xvfb-run", "chrt", "srun", "sbatch", "salloc", "bsub", "qsub", "mpirun", "mpiexec",
     "horovodrun", "docker", "podman", "nvidia-docker", "singularity", "apptainer", "conda", "mamba", "micromamba",
     "uv", "poetry", "pipenv", "hatch", "pdm", "rye", "pixi", "nsys", "ncu", "py-spy", "strace", "ssh", "pdsh", "tmux",
     "screen", "catchsegv", "eatmydata", "bash", "sh", "zsh", "run", "RUN", "CMD", "-", "rlaunch", "caffeinate",
     "proxychains", "proxychains4", "wandb"}
)  # fmt: skip
"""Programs that start the one that comes further on in the same command."""
INSTALLS = frozenset({"pip", "pip3", "install", "apt", "apt-get", "yum", "dnf", "brew", "npm", "git", "wget", "curl"})
"""Words behind which a launcher's name is that of a package."""
SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
DEEPEST = 4
"""Commands within quotes within commands."""


@dataclass(slots=True)
class Launch:
    """One command that starts a training."""

    program: Program
    words: list[Word]
    """What follows the launcher's name (and its `launch`)."""
    line: int
    environment: dict[str, Word] = field(default_factory=dict)
    before: list[Word] = field(default_factory=list)
    """The program in front of it that starts processes of its own (srun, mpirun), with its options."""
    old_name: str | None = None
    """How the launcher is written, where it has another name today."""
    name: str = ""
    """Of a framework."""


def find_launches(commands: Sequence[Command], depth: int = 0) -> list[Launch]:
    """The commands that start a training, in their order."""
    return [launch for command in commands for launch in _launches(command, depth)]


def _launches(command: Command, depth: int) -> list[Launch]:
    words = list(command.words)
    if words[0].text == "eval" and depth < DEEPEST:
        again = read_script(" ".join(word.text for word in words[1:]), command.line)
        return [
            _with_environment(one, dict(command.environment), []) for one in find_launches(again.commands, depth + 1)
        ]
    environment = dict(command.environment)
    before: list[Word] = []
    for at, word in enumerate(words):
        name = _basename(word)
        if name in INSTALLS:
            return []
        if name in STARTS_SEVERAL or before:
            before.append(word)
        if name in SHELLS and depth < DEEPEST:
            inner = _in_quotes(words[at + 1 :], depth)
            if inner is not None:
                return [_with_environment(launch, environment, before) for launch in inner]
        launch = _launch(words[at:], command.line)
        if launch is not None:
            return [_with_environment(launch, environment, before[:-1])]
        if _basename(words[0]) not in WRAPPERS:
            return []
        assigned = re.match(r"([A-Za-z_]\w*)=", word.text)
        if assigned is not None and not word.text.startswith("-"):
            environment[assigned[1]] = Word(word.text[assigned.end() :], word.line, word.known)
    return []


def _with_environment(launch: Launch, environment: dict[str, Word], before: list[Word]) -> Launch:
    launch.environment = {**environment, **launch.environment}
    launch.before = launch.before or before
    return launch


def _in_quotes(words: Sequence[Word], depth: int) -> list[Launch] | None:
    """The command in `bash -c "..."`."""
    for at, word in enumerate(words[:-1]):
        if word.text.startswith("-") and word.text.endswith("c"):
            return find_launches(read_script(words[at + 1].text, words[at + 1].line).commands, depth + 1)
    return None


def _basename(word: Word) -> str:
    # A notebook's "!", a recipe's "@".
    return PurePosixPath(word.text.lstrip("!@")).name


def _launch(words: Sequence[Word], line: int) -> Launch | None:
    """The launch that begins with the first of these words."""
    name, rest = _basename(words[0]), list(words[1:])
    if name == "accelerate" and rest and rest[0].text == "launch":
        return Launch("accelerate", rest[1:], line)
    if name in ("accelerate-launch", "torchrun", "deepspeed", "deepspeed.pt", "ds") and rest:
        program: Program = (
            "accelerate" if name == "accelerate-launch" else "torchrun" if name == "torchrun" else "deepspeed"
        )
        return Launch(program, rest, line)
    if name == "trl" and rest and re.fullmatch(r"[a-z_]+", rest[0].text):
        return Launch("trl", rest, line)
    commands = FRAMEWORKS.get(name)
    if commands is not None and rest and (not commands or rest[0].text in commands):
        return Launch("framework", rest[1:] if commands else rest, line, name=name)
    if PYTHON.fullmatch(name):
        return _python(rest, line)
    return None


def _python(words: list[Word], line: int) -> Launch | None:
    at = 0
    while at < len(words) and words[at].text.startswith("-") and words[at].text != "-":
        option = words[at].text
        if option == "-c" or option in ("-V", "--version", "-h", "--help"):
            return None
        if option == "-m" or (option.startswith("-m") and len(option) > 2):
            joined = [Word(option[2:], line)] if len(option) > 2 else []
            return _module([*joined, *words[at + 1 :]], line)
        at += 2 if option in PYTHON_VALUES else 1
    if at >= len(words) or PurePosixPath(words[at].text).name in NOT_TRAINING or words[at].text[:1] in ("-", *"=<>~!"):
        return None
    return Launch("python", words[at:], line)


def _module(words: list[Word], line: int) -> Launch | None:
    if not words or words[0].text.partition(".")[0] in NOT_TRAINING or words[0].text in NOT_TRAINING:
        return None
    name, rest = words[0].text, words[1:]
    if name in TORCH_MODULES:
        return Launch("torchrun", rest, line, old_name=name if name.endswith("launch") else None)
    if name in ACCELERATE_MODULES:
        return Launch("accelerate", rest[1:] if rest and rest[0].text == "launch" else rest, line)
    if name in DEEPSPEED_MODULES:
        return Launch("deepspeed", rest, line)
    return Launch("python", [Word("-m", line), *words], line)


# The options of torchrun and of the deepspeed launcher -> the setup, under accelerate's names.

ALL_GPUS = mark("All GPUs is what a run takes anyway.")
ONE_NODE = mark("One machine is what a run takes anyway.")
OWN_LOG = mark("trainwiz writes its own log.")
OF_THE_LAUNCHER = mark("It tells the launcher how to start processes, which trainwiz does by itself.")
AS_MODULE = mark("It says that the script is a module.")
RESTARTS = mark("trainwiz starts a failed run again by itself (recovery.max_restarts).")

TORCHRUN_WHY = {
    **dict.fromkeys(
        [
            "standalone",
            "rdzv_backend",
            "rdzv_endpoint",
            "rdzv_id",
            "rdzv_conf",
            "node_rank",
            "master_addr",
            "master_port",
            "local_addr",
        ],
        RENDEZVOUS,
    ),
    **dict.fromkeys(
        [
            "log_dir",
            "logdir",
            "redirects",
            "tee",
            "local_ranks_filter",
            "duplicate_stdout_filters",
            "duplicate_stderr_filters",
            "logs_specs",
            "event_log_handler",
            "role",
        ],
        OWN_LOG,
    ),
    **dict.fromkeys(
        [
            "monitor_interval",
            "start_method",
            "no_python",
            "run_path",
            "numa_binding",
            "signals_to_handle",
            "shutdown_timeout",
            "virtual_local_rank",
            "use_env",
            "help",
        ],
        OF_THE_LAUNCHER,
    ),
    "max_restarts": RESTARTS,
    "module": AS_MODULE,
    "nnodes": ONE_NODE,
    "nproc_per_node": ALL_GPUS,
}
DEEPSPEED_WHY = {
    **dict.fromkeys(
        ["master_port", "master_addr", "node_rank", "hostfile", "ssh_port", "no_ssh", "no_ssh_check"], RENDEZVOUS
    ),
    **dict.fromkeys(["enable_each_rank_log", "log_level", "quiet", "save_pid"], OWN_LOG),
    **dict.fromkeys(
        [
            "no_python",
            "no_local_rank",
            "force_multi",
            "bind_cores_to_rank",
            "bind_core_list",
            "launcher",
            "launcher_args",
            "venv_script",
            "autotuning",
            "elastic_training",
            "min_elastic_nodes",
            "max_elastic_nodes",
            "help",
        ],
        OF_THE_LAUNCHER,
    ),
    "module": AS_MODULE,
    "num_nodes": ONE_NODE,
    "num_gpus": ALL_GPUS,
    "exclude": mark("Which GPUs are left over depends on the machine; --gpus names those of a run."),
}


def read_torchrun(taken: Taken, collector: Collector) -> None:
    """torchrun, and torch.distributed.launch before it."""
    setup: dict[str, Any] = {}
    nodes = _count(taken.option("nnodes")) or 1
    per_node = _count(taken.option("nproc_per_node"))
    if taken.option("nnodes") is not None and _count(taken.option("nnodes")):
        setup["num_machines"] = nodes
    if per_node is None and taken.option("nproc_per_node") is None and not taken.loose:
        # torch.distributed.run: --nproc-per-node is 1 by default.
        per_node = 1
    if per_node is not None:
        setup["num_processes"] = per_node * nodes
        setup["distributed_type"] = "MULTI_GPU" if per_node * nodes > 1 else "NO"
    collector.setup.update(setup)
    decided = engine_values(collector.setup)
    keys = {"nproc_per_node": "engine.processes", "nnodes": "engine.nodes"}
    for option in taken.options:
        _option("torchrun", option, keys, decided, TORCHRUN_WHY, collector)
    elastic = taken.option("nnodes")
    if elastic is not None and elastic.value is not None and re.fullmatch(r"\d+:\d+", elastic.value.text):
        message = tr(
            "--nnodes {range} lets the number of machines change while a run goes on; trainwiz needs one number.",
            range=elastic.value.text,
        )
        collector.find("elastic_nodes", "warning", message, elastic.line)


def read_deepspeed_launcher(taken: Taken, collector: Collector) -> None:
    """DeepSpeed's own launcher: --num_gpus and --num_nodes, or --include "host:0,1@other:0,1"."""
    setup: dict[str, Any] = {}
    gpus, nodes = _count(_gpu_option(taken)), _count(taken.option("num_nodes")) or 1
    include = taken.option("include")
    if include is not None and include.value is not None and include.value.known:
        nodes, slots = _included(include.value.text)
        if slots and len({len(one) for one in slots}) == 1:
            gpus = len(slots[0])
            if len({",".join(one) for one in slots}) == 1:
                setup["gpu_ids"] = ",".join(slots[0])
    if nodes > 1:
        setup["num_machines"] = nodes
    if gpus is not None:
        setup["num_processes"] = gpus * nodes
        setup["distributed_type"] = "MULTI_GPU" if gpus * nodes > 1 else "NO"
    collector.setup.update(setup)
    decided = engine_values(collector.setup)
    keys = {
        "num_gpus": "engine.processes",
        "num_accelerators": "engine.processes",
        "num_nodes": "engine.nodes",
        "include": "engine.gpus" if "gpu_ids" in setup else "engine.processes",
    }
    for option in taken.options:
        _option("deepspeed", option, keys, decided, DEEPSPEED_WHY, collector)
    hosts = taken.option("hostfile")
    if hosts is not None and taken.option("num_nodes") is None and include is None:
        say_nodes_unknown(str(hosts.value or ""), hosts.line, collector)


def _gpu_option(taken: Taken) -> Option | None:
    return taken.option("num_gpus") or taken.option("num_accelerators")


def _count(option: Option | None) -> int | None:
    """The whole number of an option; None where it is absent, not known, or a word (auto, gpu)."""
    if option is None or option.value is None or not option.value.known:
        return None
    return whole(option.value.text)


def _included(text: str) -> tuple[int, list[list[str]]]:
    """(machines, GPUs of each) of "worker-0@worker-1:0,2"; a machine without a list uses all of its GPUs."""
    hosts = [part for part in text.split("@") if part.strip()]
    slots = [[slot.strip() for slot in host.partition(":")[2].split(",") if slot.strip()] for host in hosts]
    return max(len(hosts), 1), slots if all(slots) else []


def _option(
    program: str,
    option: Option,
    keys: dict[str, str],
    decided: dict[str, Any],
    why: dict[str, str],
    collector: Collector,
) -> None:
    name, line = option.name, option.line
    value: Any = True if option.value is None else option.value.text
    if option.value is not None and not option.value.known and why.get(name) != RENDEZVOUS:
        collector.unknown(name, value, line)
    elif not option.is_known:
        collector.unknown(name, value, line)
        message = tr("{program} has no option --{name}.", program=program, name=plain_text(name, 60))
        collector.find("unknown_option", "warning", message, line)
    elif keys.get(name) in decided:
        collector.map(name, value, keys[name], decided[keys[name]], line)
    elif name in ("nnodes", "num_nodes", "include", "num_gpus") and value not in ("1", "-1", "auto", "gpu"):
        collector.unknown(name, value, line)
    else:
        collector.drop(name, value, why.get(name, OF_THE_LAUNCHER), line)
