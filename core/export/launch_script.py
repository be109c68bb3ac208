"""RunConfig -> the launch command, its environment, and a launch.sh that does the same by hand."""

from __future__ import annotations

import os
import shlex

from trainwiz.core.config.run import RunConfig
from trainwiz.core.export.solved import processes, runs_on_cpu, uses_deepspeed
from trainwiz.core.run.folder import ACCELERATE_YAML, TENSORBOARD_LOGS

TRAINING_MODULE = "trainwiz.core.training"

MOST_THREADS = 16
"""More threads in one process do not speed up what runs on the CPU."""

SHUTDOWN_TIMEOUT_S = 24 * 3600
"""torchrun kills workers 30 s after SIGTERM; a step with hundreds of accumulations takes longer to end in a checkpoint."""


def launch_command(config: RunConfig) -> list[str]:
    """The command, to run in the run folder. Its first two words ("accelerate", "launch") may be replaced by
    a Python interpreter with "-m accelerate.commands.launch"."""
    return [
        "accelerate",
        "launch",
        "--config_file",
        ACCELERATE_YAML,
        # Any free port: two jobs on the default one collide.
        "--main_process_port",
        "0",
        "--num_cpu_threads_per_process",
        str(cpu_threads(config)),
        "-m",
        TRAINING_MODULE,
        ".",
    ]


def cpu_threads(config: RunConfig) -> int:
    """Threads of each training process; where the plan named none, this machine's cores shared among the processes."""
    if config.engine.cpu_threads is not None:
        return config.engine.cpu_threads
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(MOST_THREADS, cores // (config.engine.processes or 1)))


def launch_environment(config: RunConfig) -> dict[str, str]:
    """Environment variables that belong to the run; the same as launch.sh sets."""
    environment = {
        # CUDA's own order differs from the driver's, by which the GPUs are named everywhere else.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        # Threads that spin while they wait for each other slow a step fortyfold once anything else wants the cores.
        "OMP_WAIT_POLICY": "PASSIVE",
        "TENSORBOARD_LOGGING_DIR": TENSORBOARD_LOGS,
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(SHUTDOWN_TIMEOUT_S),
    }
    gpus = visible_gpus(config)
    if gpus is not None:
        environment["CUDA_VISIBLE_DEVICES"] = gpus
    if uses_deepspeed(config):
        # accelerate's DeepSpeed launcher forgets --num_cpu_threads_per_process.
        environment["OMP_NUM_THREADS"] = str(cpu_threads(config))
        if runs_on_cpu(config):
            environment["DS_ACCELERATOR"] = "cpu"
    return environment


def visible_gpus(config: RunConfig) -> str | None:
    """The value of CUDA_VISIBLE_DEVICES; None leaves all. With the CPU chosen, none is seen."""
    if runs_on_cpu(config):
        return ""
    if config.engine.gpus:
        return ",".join(config.engine.gpus)
    # One process that saw several GPUs would be wrapped in nn.DataParallel, which multiplies the batch.
    return "0" if config.engine.device == "cuda" and processes(config) == 1 else None


def launch_script(config: RunConfig) -> str:
    """launch.sh: the same command by hand, from its own folder, wherever that was copied to.

    A CUDA_VISIBLE_DEVICES of the caller wins, because GPU names of one machine mean nothing on another.
    """
    environment = launch_environment(config)
    gpus = environment.pop("CUDA_VISIBLE_DEVICES", None)
    lines = [
        "#!/bin/sh",
        f"# trainwiz run {_comment(config.name)}: starts it by hand, without supervisor or monitor.",
        "# Arguments are passed on, for example: ./launch.sh --resume checkpoint-500",
        "set -eu",
        'cd -- "$(dirname -- "$0")"',
        *[f"export {name}={shlex.quote(value)}" for name, value in sorted(environment.items())],
    ]
    if gpus == "":
        lines.append("export CUDA_VISIBLE_DEVICES=''")
    elif gpus is not None:
        lines.append(f': "${{CUDA_VISIBLE_DEVICES:={gpus if _plain(gpus) else "0"}}}"; export CUDA_VISIBLE_DEVICES')
    lines += [
        "if ! command -v accelerate >/dev/null; then",
        '    echo "launch.sh: accelerate is not on PATH; activate the environment that has trainwiz" >&2',
        "    exit 127",
        "fi",
        f'exec {shlex.join(launch_command(config))} "$@"',
    ]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    return "".join(ch if ch.isprintable() else "?" for ch in text)


def _plain(gpus: str) -> bool:
    """Indices and UUIDs hold nothing that a shell would read as its own."""
    return all(ch.isalnum() or ch in ",-/" for ch in gpus)
