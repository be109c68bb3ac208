"""RunConfig -> all files as text, the launch commands, launch.sh that does the same by hand, and a file for sbatch."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwiz.core.config.run import RunConfig
from trainwiz.core.errors import usage_error
from trainwiz.core.export.accelerate import (
    accelerate_yaml,
    cpu_threads,
    run_variables,
)
from trainwiz.core.export.deepspeed import checked_deepspeed_text, deepspeed_config
from trainwiz.core.export.training_arguments import runs_on_cpu
from trainwiz.core.language import tr
from trainwiz.core.nodes.address import Address
from trainwiz.core.run.folder import ACCELERATE_YAML, DEEPSPEED_JSON, LAUNCH_SH
from trainwiz.core.text import plain_text

# RunConfig -> the launch command, and a launch.sh that does the same by hand, wherever its folder was copied to.

TRAINING_MODULE = "trainwiz.core.training"
NODES_MODULE = "trainwiz.core.nodes"


def launch_command(config: RunConfig) -> list[str]:
    """The command, to run in the run folder. Its first two words ("accelerate", "launch") may be replaced by
    a Python interpreter with "-m accelerate.commands.launch".

    Of several nodes it is that of node 0: a Python module that waits for the others and then launches. Where node 0
    is stands in TRAINWIZ_MAIN_NODE (core.nodes.address).
    """
    if config.engine.nodes > 1:
        return ["python", "-m", NODES_MODULE, "."]
    # Any free port: two jobs on the default one collide.
    launch = ["accelerate", "launch", "--config_file", ACCELERATE_YAML, "--main_process_port", "0"]
    return [*launch, "--num_cpu_threads_per_process", str(cpu_threads(config)), "-m", TRAINING_MODULE, "."]


def launch_script(config: RunConfig) -> str:
    """launch.sh: the same command by hand, from its own folder, wherever that was copied to. Plain POSIX sh.

    What is missing there (the data, accelerate) is said by whoever needs it. A CUDA_VISIBLE_DEVICES of the caller wins,
    because GPU names of one machine mean nothing on another.
    """
    header, example = tr("starts it manually, without supervisor or monitor"), "--resume checkpoint-500"
    command = launch_command(config)
    if config.engine.nodes > 1:
        # They meet first: each runs this script with its own number, and one of them keeps the run.
        header, example = (
            tr("this machine is one of {n} that train it", n=config.engine.nodes),
            "--node 1 --main 10.0.0.1:29500",
        )
        command = ["trainwiz", "runs", "join", "."]
    lines = [
        "#!/bin/sh",
        comment(tr("trainwiz run {name}: {what}.", name=config.name, what=header)),
        comment(tr("Arguments are passed on, for example: {command}", command=f"./launch.sh {example}")),
        "set -eu",
        comment(tr("An exported CDPATH would resolve a relative path elsewhere.")),
        'CDPATH=\'\' cd -- "$(dirname -- "$0")"',
        "",
    ]
    for variable in run_variables(config):
        reason = variable.reason
        lines.append(comment(tr("{sentence}.", sentence=f"{reason[:1].upper()}{reason[1:]}")))
        if variable.name == "CUDA_VISIBLE_DEVICES" and variable.value:
            # Indices and UUIDs hold nothing that a shell would read as its own.
            gpus = variable.value if re.fullmatch(r"[\w,/-]+", variable.value) else "0"
            lines.append(f': "${{CUDA_VISIBLE_DEVICES:={gpus}}}"; export CUDA_VISIBLE_DEVICES')
        else:
            lines.append(f"export {variable.name}={shlex.quote(variable.value)}")
    return "\n".join([*lines, "", f'exec {shlex.join(command)} "$@"', ""])


def comment(text: str) -> str:
    return f"# {plain_text(text)}"


# The command for each machine of a run, to type or to paste there.

PLACEHOLDER = "NODE0"
"""Stands for the address of node 0 where nobody said it."""


def joining_command(folder: Path, node: int, main: Address) -> str:
    """One line for a POSIX shell, in a run of several nodes; `folder` is the run folder, the same path on all of them."""
    return f"{shlex.quote(str(folder / LAUNCH_SH))} --node {node} --main {shlex.quote(str(main))}"


def node_commands(config: RunConfig, folder: Path, main: Address) -> list[str]:
    """One for each node, from 0."""
    if config.engine.nodes == 1:
        return [shlex.quote(str(folder / LAUNCH_SH))]
    return [joining_command(folder, node, main) for node in range(config.engine.nodes)]


# All files that a RunConfig stands for, as text.


def export_files(config: RunConfig) -> dict[str, str]:
    """File name -> text: accelerate.yaml, launch.sh and, with DeepSpeed, deepspeed.json.

    Raises UsageError for a DeepSpeed file of the user's that contradicts the run.
    """
    files = {ACCELERATE_YAML: accelerate_yaml(config), LAUNCH_SH: launch_script(config)}
    text = checked_deepspeed_text(config)
    if text is None and (document := deepspeed_config(config)) is not None:
        text = json.dumps(document, indent=2) + "\n"
    return files if text is None else {**files, DEEPSPEED_JSON: text}


# RunConfig -> a complete sbatch file that resumes the run at every start and saves before the time limit.

TIME_MARGIN = 1.25
"""Over the slow end of the planned time."""
SHORTEST_S = 30 * 60
"""A queue's clock counts whole minutes, and a job that ends too early waits in the queue again."""
UNKNOWN_TIME_S = 24 * 3600
MEMORY_MARGIN = 1.25
SHORTEST_NOTICE_S = 120
"""Between the signal and the limit at least: a step, a checkpoint, and the way of the signal."""
NOTICE_MARGIN = 1.5
LOWEST_PORT, PORT_PAIRS = 20_000, 6000
"""Below 32,768, where Linux begins to take ports for connections that it makes itself."""
WORD = re.compile(r"\w[\w.,:@+-]*", re.ASCII)
"""Accounts, partitions and the like: nothing that ends the line or begins another option."""
FOLDER = re.compile(r"[\w@+=:,./ -]+")
"""What a line of sbatch takes as it is, between quotation marks."""
TIME = re.compile(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)")


@dataclass(frozen=True, slots=True)
class Planned:
    """What of a plan decides about the job; None where it is not known."""

    total_high_s: float | None
    host_ram_bytes: int | None
    """Of one machine."""
    stop_s: float
    """How long a graceful stop may take."""
    host_ram_high_bytes: int | None = None
    """The upper end of the prediction: Slurm kills what takes more than it was asked for."""


def slurm_script(config: RunConfig, folder: Path, planned: Planned, order: Mapping[str, str | None]) -> str:
    """The text of the sbatch file; `folder` is the run folder, at the same place for all nodes. `order`: what was said of
    account, partition, qos and time.

    Raises UsageError for words that sbatch cannot take.
    """
    if not FOLDER.fullmatch(str(folder)):
        message = tr(
            "The run folder's name {name} has a character that an sbatch line cannot contain; rename it.",
            name=plain_text(str(folder)),
        )
        raise usage_error("folder_not_for_slurm", plain_text(str(folder)), message)
    notice = notice_s(planned)
    # srun passes on to its tasks what it is sent; a node that fails may be waited for, so none is killed for another.
    # Since Slurm 22.05 srun no longer inherits --cpus-per-task.
    srun = 'srun --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --kill-on-bad-exit=0 --export=ALL'
    several = config.engine.nodes > 1
    lines = [
        "#!/bin/bash",
        *_directives(config, folder, planned, order, notice),
        "",
        comment(tr("Assumes that all nodes see this run folder, its data and this environment at the same paths.")),
        "set -u",
        f"run={shlex.quote(str(folder))}",
        *(MEETING if several else ()),
        "",
        comment(
            tr("Slurm sends USR1 before the time limit: the step is finished, a checkpoint saved, the job requeued.")
        ),
        "requeue=",
        "save() {",
        "    requeue=yes; caught=yes",
        "    "
        + comment(
            tr("A signal to srun would kill the step half a minute later; the supervisor of the run is on this node.")
        ),
        '    trainwiz runs stop "$run"',
        "    " + comment(tr("Ends what has not started yet or does not stop.")),
        '    sleep 5; kill -TERM "${!:-}" 2>/dev/null',
        "}",
        "trap save USR1",
        "",
        comment(
            tr("One task per node; launch.sh starts one process per GPU. A run that was started before is resumed.")
        ),
        f'{srun} "$run/{LAUNCH_SH}" --main "$main" &' if several else f'{srun} trainwiz runs join "$run" &',
        "steps=$!",
        comment(tr("A trapped signal ends `wait` while the training is still saving.")),
        "while :; do",
        '    caught=; wait "$steps"; code=$?',
        '    [ -n "$caught" ] || break',
        "done",
        "",
        'if [ -n "$requeue" ] && [ "$code" -ne 0 ]; then',
        '    scontrol requeue "$SLURM_JOB_ID" && exit 0',
        "fi",
        'exit "$code"',
        "",
    ]
    return "\n".join(lines)


MEETING = (
    'host=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
    # Of the job's number, so that two jobs do not meet at the same port.
    f'main="$host:$(( {LOWEST_PORT} + SLURM_JOB_ID % {PORT_PAIRS} * 2 ))"',
)
"""Node 0 is the first node of the job."""


def time_limit(planned: Planned, asked: str | None, notice: int) -> str:
    """D-HH:MM:SS. Raises UsageError for a time of the user's that sbatch does not take, or that leaves no time to save."""
    if asked is None:
        high_s = planned.total_high_s
        return _clock(UNKNOWN_TIME_S if high_s is None else max(SHORTEST_S, high_s * TIME_MARGIN + notice))
    seconds = seconds_of(asked)
    if seconds <= 2 * notice:
        message = tr(
            "--time {time} is too short: a checkpoint is saved {notice} s before the end; set at least {least}.",
            time=asked,
            notice=notice,
            least=_clock(4 * notice),
        )
        raise usage_error("bad_choice", "--time", message)
    return _clock(seconds)


def seconds_of(time: str) -> int:
    """Of hours:minutes:seconds, with days- in front. Raises UsageError for the shorter forms of sbatch(1) too."""
    found = TIME.fullmatch(time.strip())
    if found is None:
        message = tr("--time {time} is not a time; use HH:MM:SS or D-HH:MM:SS.", time=plain_text(time, 40))
        raise usage_error("bad_choice", "--time", message)
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


def notice_s(planned: Planned) -> int:
    """Seconds before the limit at which the checkpoint is asked for; whole minutes, as Slurm may be a minute late."""
    return -(-int(max(SHORTEST_NOTICE_S, planned.stop_s * NOTICE_MARGIN + 60)) // 60) * 60


def _directives(
    config: RunConfig, folder: Path, planned: Planned, order: Mapping[str, str | None], notice: int
) -> Iterator[str]:
    engine = config.engine
    processes = engine.processes or 1
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", config.name).strip("-")
    yield f"#SBATCH --job-name={name or 'trainwiz'}"
    for option in ("account", "partition", "qos"):
        value = order.get(option)
        if value is None:
            continue
        if WORD.fullmatch(value) is None:
            message = tr("--{option} {value} is not a valid Slurm name.", option=option, value=plain_text(value, 60))
            raise usage_error("bad_choice", f"--{option}", message)
        yield f"#SBATCH --{option}={value}"
    yield f"#SBATCH --nodes={engine.nodes}"
    yield "#SBATCH --ntasks-per-node=1"
    if not runs_on_cpu(config):
        yield f"#SBATCH --gpus-per-node={processes}"
    # Of one node: the threads and loader workers of each process.
    yield f"#SBATCH --cpus-per-task={processes * max(cpu_threads(config), (config.data.workers or 0) + 1)}"
    if planned.host_ram_bytes is not None:
        needed = max(int(planned.host_ram_bytes * MEMORY_MARGIN), planned.host_ram_high_bytes or 0)
        yield f"#SBATCH --mem={-(-needed // 2**30)}G"
    yield f"#SBATCH --time={time_limit(planned, order.get('time'), notice)}"
    yield f"#SBATCH --signal=B:USR1@{notice}"
    yield "#SBATCH --requeue"
    yield "#SBATCH --open-mode=append"
    yield f'#SBATCH --output="{folder}/slurm-%j.log"'


def _clock(seconds: float) -> str:
    minutes = -(-int(seconds) // 60)
    return f"{minutes // 1440}-{minutes // 60 % 24:02d}:{minutes % 60:02d}:00"
