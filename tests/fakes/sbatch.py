"""What Slurm's parser says about the options of an sbatch file, where Slurm is not installed: sbatch(1) of 22.05."""

import re

_COUNT = r"[1-9]\d*"
_NAME = r"[A-Za-z0-9_][\w.,:@+-]*"
_TIME = r"\d+(:\d\d){0,2}|\d+-\d+(:\d\d){0,2}"
OPTIONS: dict[str, str | None] = {
    "account": _NAME,
    "cpus-per-task": _COUNT,
    "gpus-per-node": rf"([A-Za-z][\w.]*:)?{_COUNT}",
    "job-name": r"[\w.-]+",
    "mem": rf"{_COUNT}[KMGT]?",
    "nodes": rf"{_COUNT}(-{_COUNT})?",
    "ntasks-per-node": _COUNT,
    "open-mode": "append|truncate",
    "output": r'[\w@%+=:,./-]+|"([^"\\]|\\.)*"',
    "partition": _NAME,
    "qos": _NAME,
    "requeue": None,
    "signal": rf"([RB]{{1,2}}:)?(USR1|USR2|TERM|INT|HUP|{_COUNT})(@{_COUNT})?",
    "time": _TIME,
}
"""Long options that trainwiz writes -> what sbatch takes as their value; None: no value."""


def complaints(text: str) -> list[str]:
    """A line for each option that sbatch would refuse, or would not see: it stops at the first command."""
    found, commands = [], False
    for line in text.splitlines():
        if line.startswith("#SBATCH"):
            if commands:
                found.append(f"ignored after the first command: {line}")
            option, equals, value = line.removeprefix("#SBATCH").strip().removeprefix("--").partition("=")
            if option not in OPTIONS:
                found.append(f"unrecognized option '--{option}'")
                continue
            form = OPTIONS[option]
            if bool(equals) != (form is not None) or (form is not None and not re.fullmatch(form, value)):
                found.append(f"Invalid --{option} specification: {value}")
        elif line.strip() and not line.startswith("#"):
            commands = True
    return found if text.startswith("#!") else ["This does not look like a batch script.", *found]
