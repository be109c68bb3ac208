"""RunConfig -> the launch command, and a launch.sh that does the same by hand, wherever its folder was copied to."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from trainwiz.core.config.run import RunConfig
from trainwiz.core.export.environment import cpu_threads, launch_environment, run_variables
from trainwiz.core.plain import plain_text
from trainwiz.core.run.folder import ACCELERATE_YAML

__all__ = ["launch_command", "launch_environment", "launch_script"]

TRAINING_MODULE = "trainwiz.core.training"

NOT_HERE = """\
[ -f run.yaml ] || { echo "launch.sh: run.yaml is not beside it; start it in its run folder" >&2; exit 2; }"""

NO_ACCELERATE = """\
if ! command -v accelerate >/dev/null 2>&1; then
    echo "launch.sh: accelerate is not on PATH; activate the environment that has trainwiz" >&2
    exit 127
fi"""


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


def launch_script(config: RunConfig, needs: Iterable[tuple[str, str]] = ()) -> str:
    """launch.sh: the same command by hand, from its own folder, wherever that was copied to. Plain POSIX sh.

    `needs` are the paths outside the folder that the run reads, as (setting, path from the folder): the script
    says which one is missing before anything starts. A CUDA_VISIBLE_DEVICES of the caller wins, because GPU names
    of one machine mean nothing on another.
    """
    lines = [
        "#!/bin/sh",
        f"# trainwiz run {_comment(config.name)}: starts it by hand, without supervisor or monitor.",
        "# Arguments are passed on, for example: ./launch.sh --resume checkpoint-500",
        "set -eu",
        "# An exported CDPATH would lead a relative path elsewhere.",
        'CDPATH=\'\' cd -- "$(dirname -- "$0")"',
        NOT_HERE,
        "",
        *_needs(list(needs)),
        *_exports(config),
        NO_ACCELERATE,
        f'exec {shlex.join(launch_command(config))} "$@"',
    ]
    return "\n".join(lines) + "\n"


def _needs(needs: list[tuple[str, str]]) -> list[str]:
    if not needs:
        return []
    lines = [
        "# What the run reads outside this folder; copied to another machine, the folder needs them there.",
        "missing() {",
        '    echo "launch.sh: $2 is not here ($1 in run.yaml); copy it there, or change $1" >&2',
        "    exit 2",
        "}",
    ]
    for key, path in needs:
        lines.append(f"[ -e {shlex.quote(path)} ] || missing {shlex.quote(key)} {shlex.quote(path)}")
    return [*lines, ""]


def _exports(config: RunConfig) -> list[str]:
    lines: list[str] = []
    for variable in run_variables(config):
        reason = _comment(variable.reason)
        lines.append(f"# {reason[:1].upper()}{reason[1:]}.")
        if variable.name == "CUDA_VISIBLE_DEVICES" and variable.value:
            gpus = variable.value if _plain(variable.value) else "0"
            lines.append(f': "${{CUDA_VISIBLE_DEVICES:={gpus}}}"; export CUDA_VISIBLE_DEVICES')
        else:
            lines.append(f"export {variable.name}={shlex.quote(variable.value)}")
    return [*lines, ""]


def _comment(text: str) -> str:
    return plain_text(text)


def _plain(gpus: str) -> bool:
    """Indices and UUIDs hold nothing that a shell would read as its own."""
    return all(ch.isalnum() or ch in ",-/" for ch in gpus)
