"""Options of launchers, and variables in front of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainwiz.core.config.values import SECRET, check_variable_name, check_variable_value
from trainwiz.core.importing.report import Collector, gpu_list, whole
from trainwiz.core.importing.settings import HIDDEN
from trainwiz.core.importing.shell_words import Word
from trainwiz.core.importing.words import RENDEZVOUS
from trainwiz.core.language import mark

# The options of the launchers, as data.
#
# Sources: the argument parsers of accelerate 1.15 (launch_command_parser), torch 2.13 (torch.distributed.run and .launch)
# and DeepSpeed 0.19 (launcher/runner.py), with what older releases had; a test compares them with what is installed.

ACCELERATE_FLAGS = frozenset(
    [
        "help",
        "quiet",
        "cpu",
        "multi_gpu",
        "tpu",
        "enable_cpu_affinity",
        "dynamo_use_fullgraph",
        "dynamo_use_dynamic",
        "dynamo_use_regional_compilation",
        "use_deepspeed",
        "use_fsdp",
        "use_parallelism_config",
        "use_megatron_lm",
        "same_network",
        "module",
        "no_python",
        "tpu_cluster",
        "no_tpu_cluster",
        "tpu_use_sudo",
        "downcast_bf16",
        "fp8_use_autocast_during_eval",
        "debug",
        "fp16",
        "bf16",
        "use_xpu",
        "ipex",
        "use_mps_device",
    ]
)
"""Options without a value; the last row is of older releases."""
ACCELERATE_DEEPSPEED = frozenset(
    [
        "zero_stage",
        "offload_optimizer_device",
        "offload_param_device",
        "offload_optimizer_nvme_path",
        "offload_param_nvme_path",
        "gradient_accumulation_steps",
        "gradient_clipping",
        "zero3_init_flag",
        "zero3_save_16bit_model",
        "deepspeed_config_file",
        "deepspeed_hostfile",
        "deepspeed_exclusion_filter",
        "deepspeed_inclusion_filter",
        "deepspeed_multinode_launcher",
        "deepspeed_moe_layer_cls_names",
    ]
)
"""Options that fill the section deepspeed_config of accelerate's file."""
ACCELERATE_VALUES = (
    frozenset(
        [
            "config_file",
            "mixed_precision",
            "num_processes",
            "num_machines",
            "num_cpu_threads_per_process",
            "dynamo_backend",
            "dynamo_mode",
            "gpu_ids",
            "machine_rank",
            "main_process_ip",
            "main_process_port",
            "tee",
            "log_dir",
            "role",
            "rdzv_backend",
            "rdzv_conf",
            "max_restarts",
            "monitor_interval",
            "vm",
            "env",
            "main_training_function",
            "fsdp_version",
            "fsdp_offload_params",
            "fsdp_min_num_params",
            "fsdp_sharding_strategy",
            "fsdp_reshard_after_forward",
            "fsdp_auto_wrap_policy",
            "fsdp_transformer_layer_cls_to_wrap",
            "fsdp_backward_prefetch",
            "fsdp_state_dict_type",
            "fsdp_forward_prefetch",
            "fsdp_use_orig_params",
            "fsdp_cpu_ram_efficient_loading",
            "fsdp_sync_module_states",
            "fsdp_activation_checkpointing",
            "fsdp_activation_checkpointing_offload",
            "aws_access_key_id",
            "aws_secret_access_key",
            "mpirun_hostfile",
            "mpirun_ccl",
            "fsdp_backward_prefetch_policy",
            "fp8_backend",
            "fp8_margin",
            "fp8_interval",
            "fp8_format",
            "fp8_amax_history_len",
            "fp8_amax_compute_algo",
            "fp8_override_linear_precision",
            "fp8_opt_level",
            "fp8_enable_fsdp_float8_all_gather",
            "fp8_pad_inner_dim",
        ]
    )
    | ACCELERATE_DEEPSPEED
)
ACCELERATE_PREFIXES = ("megatron_lm_", "parallelism_config_")
"""Beginnings of options that all take a value."""

TORCHRUN_FLAGS = frozenset(["help", "standalone", "module", "no_python", "run_path", "virtual_local_rank", "use_env"])
TORCHRUN_VALUES = frozenset(
    [
        "nnodes",
        "nproc_per_node",
        "rdzv_backend",
        "rdzv_endpoint",
        "rdzv_id",
        "rdzv_conf",
        "max_restarts",
        "monitor_interval",
        "start_method",
        "event_log_handler",
        "role",
        "log_dir",
        "redirects",
        "tee",
        "local_ranks_filter",
        "duplicate_stdout_filters",
        "duplicate_stderr_filters",
        "node_rank",
        "master_addr",
        "master_port",
        "local_addr",
        "logs_specs",
        "numa_binding",
        "signals_to_handle",
        "shutdown_timeout",
        "node_rank",
        "logdir",
    ]
)
DEEPSPEED_FLAGS = frozenset(
    [
        "help",
        "module",
        "no_python",
        "no_local_rank",
        "no_ssh",
        "no_ssh_check",
        "force_multi",
        "save_pid",
        "bind_cores_to_rank",
        "quiet",
        "elastic_training",
        "disable_python",
        "enable_elastic_training",
    ]
)
DEEPSPEED_VALUES = frozenset(
    [
        "hostfile",
        "include",
        "exclude",
        "num_nodes",
        "num_gpus",
        "num_accelerators",
        "master_port",
        "master_addr",
        "node_rank",
        "launcher",
        "launcher_args",
        "enable_each_rank_log",
        "autotuning",
        "bind_core_list",
        "venv_script",
        "log_level",
        "min_elastic_nodes",
        "max_elastic_nodes",
        "ssh_port",
    ]
)
SHORT: Mapping[str, Mapping[str, str]] = {
    "accelerate": {"h": "help", "q": "quiet", "m": "module", "t": "tee"},
    "torchrun": {"h": "help", "m": "module", "t": "tee", "r": "redirects"},
    "deepspeed": {"h": "help", "H": "hostfile", "i": "include", "e": "exclude", "q": "quiet"},
}


# How a launch command is cut into the launcher's options, the script, and the script's own arguments.


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a launcher; `value` is None for a flag. `name` has underscores and no dashes."""

    name: str
    value: Word | None
    line: int
    is_known: bool = True


@dataclass(slots=True)
class Taken:
    """A launcher's command, cut up."""

    options: list[Option] = field(default_factory=list)
    loose: list[Word] = field(default_factory=list)
    """Words in the place of options that cannot be known: $DISTRIBUTED_ARGS."""
    script: Word | None = None
    is_module: bool = False
    arguments: list[Word] = field(default_factory=list)

    def option(self, name: str) -> Option | None:
        return next((option for option in reversed(self.options) if option.name == name), None)


def take(program: str, words: Sequence[Word]) -> Taken:
    """Cut the words behind a launcher's name: its options, the script, the rest. The script is the first word that is
    no option and no value of one."""
    flags, values = _tables(program)
    taken = Taken()
    at = 0
    while at < len(words):
        word = words[at]
        if not word.text.startswith("-") or word.text == "-":
            if not _stands_for_options(words, at):
                taken.script, taken.arguments = word, list(words[at + 1 :])
                break
            taken.loose.append(word)
            at += 1
            continue
        written, equals, inline = word.text.partition("=")
        name = _name(program, written, flags | values)
        known = name in flags or name in values or (name.startswith(ACCELERATE_PREFIXES) and program == "accelerate")
        value: Word | None = Word(inline, word.line, word.known) if equals else None
        at += 1
        takes_one = name not in flags if known else at < len(words) and _may_be_value(words[at])
        if value is None and takes_one and at < len(words):
            value = words[at]
            at += 1
        if name == "module":
            taken.is_module = True
        taken.options.append(Option(name, value, word.line, known))
    return taken


def _tables(program: str) -> tuple[frozenset[str], frozenset[str]]:
    if program == "accelerate":
        return ACCELERATE_FLAGS, ACCELERATE_VALUES
    if program == "deepspeed":
        return DEEPSPEED_FLAGS, DEEPSPEED_VALUES
    return TORCHRUN_FLAGS, TORCHRUN_VALUES


def _name(program: str, written: str, known: frozenset[str]) -> str:
    """The option's whole name: short ones written out, beginnings completed as argparse does."""
    if not written.startswith("--"):
        letter = written.lstrip("-")
        return SHORT[program].get(letter, letter)
    name = written.lstrip("-").replace("-", "_")
    if name in known:
        return name
    longer = [one for one in known if one.startswith(name)] if name else []
    return longer[0] if len(longer) == 1 else name


def _may_be_value(word: Word) -> bool:
    return not word.text.startswith("-") and not word.text.endswith(".py")


def _stands_for_options(words: Sequence[Word], at: int) -> bool:
    """A word that cannot be known is options ($DISTRIBUTED_ARGS) where a script follows; else it is the script."""
    word = words[at]
    if word.known or not word.text.startswith(("$", "<")):
        return False
    for following in words[at + 1 :]:
        if following.text.endswith(".py") or following.text in ("-m", "--module"):
            return True
        if following.text.startswith("-"):
            return "ARG" in word.text.upper() or "OPT" in word.text.upper()
    return False


# The variables in front of a command (CUDA_VISIBLE_DEVICES=0,1 NCCL_DEBUG=INFO ...) -> setup and environment.

RENDEZVOUS_NAMES = frozenset(
    {"MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NNODES"}
)
OF_PYTHON = frozenset({"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PATH", "LD_LIBRARY_PATH", "HOME"})
OF_ACCELERATE = mark("accelerate's launcher reads it; a run of trainwiz has its own settings.")
STAYS_IN_SHELL = mark("Export it in the shell, from which a run inherits.")


def read_environment(environment: Mapping[str, Word], collector: Collector, counts: bool = False) -> None:
    """Place the variables that a training reads; constants that a script only uses in its own lines are left aside.
    `counts`: the program takes its processes and machines from NPROC_PER_NODE and NNODES."""
    counted = _counted(environment, collector) if counts else {}
    for name, word in environment.items():
        if name in counted:
            collector.map(name, word.text, counted[name][0], counted[name][1], word.line)
        elif name == "CUDA_VISIBLE_DEVICES":
            _visible(word, collector)
        elif not _concerns_training(name):
            continue
        elif name in RENDEZVOUS_NAMES:
            collector.drop(name, word.text, RENDEZVOUS, word.line)
        elif not word.known:
            collector.unknown(name, word.text, word.line)
        elif name == "OMP_NUM_THREADS" and whole(word.text):
            collector.map(name, word.text, "engine.cpu_threads", whole(word.text), word.line)
        elif name == "ACCELERATE_MIXED_PRECISION":
            collector.setup["mixed_precision"] = word.text.lower()
            collector.drop(name, word.text, OF_ACCELERATE, word.line)
        else:
            _variable(name, word, collector)


def _counted(environment: Mapping[str, Word], collector: Collector) -> dict[str, tuple[str, int]]:
    """LLaMA-Factory and ms-swift give torchrun the numbers that stand in these variables (their cli.py)."""
    known = {name: whole(word.text) for name, word in environment.items() if word.known}
    nodes, per_node = known.get("NNODES"), known.get("NPROC_PER_NODE")
    found: dict[str, tuple[str, int]] = {}
    if nodes is not None and nodes > 1:
        collector.setup["num_machines"] = nodes
        found["NNODES"] = ("engine.nodes", nodes)
    if per_node is not None:
        processes = per_node * (nodes or 1)
        collector.setup |= {"num_processes": processes, "distributed_type": "MULTI_GPU" if processes > 1 else "NO"}
        found["NPROC_PER_NODE"] = ("engine.processes", per_node)
    return found


def _concerns_training(name: str) -> bool:
    from trainwiz.core.config.values import OWN, PREFIXES

    return (
        name in OWN
        or name in RENDEZVOUS_NAMES
        or name in OF_PYTHON
        or name.startswith((*PREFIXES, "ACCELERATE_", "FSDP_"))
        or bool(SECRET.search(name))
    )


def _visible(word: Word, collector: Collector) -> None:
    name = "CUDA_VISIBLE_DEVICES"
    if not word.known:
        collector.unknown(name, word.text, word.line)
        return
    gpus = [gpu for gpu in gpu_list(word.text) if gpu not in ("-1", "NoDevFiles")]
    if gpus:
        # accelerate's own --gpu_ids replaces the variable.
        collector.setup.setdefault("gpu_ids", ",".join(gpus))
        collector.map(name, word.text, "engine.gpus", gpus, word.line)
    else:
        collector.setup["use_cpu"] = True
        collector.map(name, word.text, "engine.device", "cpu", word.line)


def _variable(name: str, word: Word, collector: Collector) -> None:
    secret = SECRET.search(name) is not None and not name.startswith("TOKENIZERS_")
    if name in OF_PYTHON:
        collector.drop(name, word.text, STAYS_IN_SHELL, word.line)
    elif name.startswith(("ACCELERATE_", "FSDP_")):
        collector.drop(name, word.text, OF_ACCELERATE, word.line)
    else:
        try:
            check_variable_name(name)
            check_variable_value(word.text)
        except ValueError as error:
            collector.drop(name, HIDDEN if secret else word.text, f"{error}.", word.line)
        else:
            collector.map(name, word.text, f"engine.environment.{name}", word.text, word.line)
