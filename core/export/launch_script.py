"""RunConfig -> all files as text, the launch commands, and a launch.sh that does the same by hand."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from pathlib import Path

from trainwiz.core.config.run import RunConfig
from trainwiz.core.export.accelerate import (
    accelerate_yaml,
    cpu_threads,
    launch_environment,
    run_variables,
)
from trainwiz.core.export.deepspeed import checked_deepspeed_text, deepspeed_config
from trainwiz.core.language import tr
from trainwiz.core.nodes.address import Address
from trainwiz.core.run.folder import ACCELERATE_YAML, DEEPSPEED_JSON, LAUNCH_SH
from trainwiz.core.text import plain_text

# RunConfig -> the launch command, and a launch.sh that does the same by hand, wherever its folder was copied to.

__all__ = ["launch_command", "launch_environment", "launch_script"]

TRAINING_MODULE = "trainwiz.core.training"
NODES_MODULE = "trainwiz.core.nodes"
EXAMPLE = "./launch.sh --resume checkpoint-500"
NODE_EXAMPLE = "./launch.sh --node 1 --main 10.0.0.1:29500"

STOP = """\
stop() {
    printf '%s\\n' "launch.sh: $2" >&2
    exit "$1"
}"""
"""The sentence is an argument in single quotes: no letter of it is code, in whatever language it is."""


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


def launch_script(config: RunConfig, needs: Iterable[tuple[str, str]] = ()) -> str:
    """launch.sh: the same command by hand, from its own folder, wherever that was copied to. Plain POSIX sh.

    `needs` are the paths outside the folder that the run reads, as (setting, path from the folder): the script
    says which one is missing before anything starts. A CUDA_VISIBLE_DEVICES of the caller wins, because GPU names
    of one machine mean nothing on another.
    """
    header, example = tr("starts it manually, without supervisor or monitor"), EXAMPLE
    if config.engine.nodes > 1:
        header, example = tr("this machine is one of {n} that train it", n=config.engine.nodes), NODE_EXAMPLE
    lines = [
        "#!/bin/sh",
        comment(tr("trainwiz run {name}: {what}.", name=config.name, what=header)),
        comment(tr("Arguments are passed on, for example: {command}", command=example)),
        "set -eu",
        comment(tr("An exported CDPATH would resolve a relative path elsewhere.")),
        'CDPATH=\'\' cd -- "$(dirname -- "$0")"',
        STOP,
        _stop_unless(
            "[ -f run.yaml ]", 2, tr("run.yaml is not in the same folder; start the script in its run folder")
        ),
        "",
        *_needs(list(needs)),
        *_exports(config),
        *_exec(config),
    ]
    return "\n".join(lines) + "\n"


def _exec(config: RunConfig) -> list[str]:
    """Several machines meet first: each runs this script with its own number, and one of them keeps the run."""
    several = config.engine.nodes > 1
    program = "trainwiz" if several else "accelerate"
    missing = tr("{program} is not on PATH; activate the environment that has trainwiz installed", program=program)
    command = ["trainwiz", "runs", "join", "."] if several else launch_command(config)
    return [
        _stop_unless(f"command -v {program} >/dev/null 2>&1", 127, missing),
        f'exec {shlex.join(command)} "$@"',
    ]


def _needs(needs: list[tuple[str, str]]) -> list[str]:
    if not needs:
        return []
    lines = [
        comment(
            tr(
                "Files the run reads outside this folder; if you copy the folder to another machine, they must "
                "exist there too."
            )
        )
    ]
    for key, path in needs:
        message = tr(
            "{path} is not on this machine ({key} in run.yaml); copy it there, or change {key}", path=path, key=key
        )
        lines.append(_stop_unless(f"[ -e {shlex.quote(path)} ]", 2, message))
    return [*lines, ""]


def _stop_unless(test: str, code: int, message: str) -> str:
    return f"{test} || stop {code} {shlex.quote(message)}"


def _exports(config: RunConfig) -> list[str]:
    lines: list[str] = []
    for variable in run_variables(config):
        reason = variable.reason
        lines.append(comment(tr("{sentence}.", sentence=f"{reason[:1].upper()}{reason[1:]}")))
        if variable.name == "CUDA_VISIBLE_DEVICES" and variable.value:
            # Indices and UUIDs hold nothing that a shell would read as its own.
            gpus = variable.value if all(ch.isalnum() or ch in ",-/" for ch in variable.value) else "0"
            lines.append(f': "${{CUDA_VISIBLE_DEVICES:={gpus}}}"; export CUDA_VISIBLE_DEVICES')
        else:
            lines.append(f"export {variable.name}={shlex.quote(variable.value)}")
    return [*lines, ""]


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


def export_files(config: RunConfig, needs: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """File name -> text: accelerate.yaml, launch.sh and, with DeepSpeed, deepspeed.json.

    `needs`: paths outside the folder that the run reads, as (setting, path), for launch.sh to look for.
    Raises UsageError for a DeepSpeed file of the user's that contradicts the run.
    """
    files = {ACCELERATE_YAML: accelerate_yaml(config), LAUNCH_SH: launch_script(config, needs)}
    text = checked_deepspeed_text(config)
    if text is None and (document := deepspeed_config(config)) is not None:
        text = json.dumps(document, indent=2) + "\n"
    return files if text is None else {**files, DEEPSPEED_JSON: text}
