"""The command that does without a screen what the wizard is about to do."""

from __future__ import annotations

import json
import shlex
from typing import Any

from trainwiz.core.defaults import profile_words
from trainwiz.core.plan.command import mode_words, number_of_mode
from trainwiz.core.plan.request import PlanRequest
from trainwiz.tui.options import OPTIONS
from trainwiz.tui.screens.plan_machine import names_another

_FLAGS = {option.key: option for option in OPTIONS if option.key}


def command_line(request: PlanRequest) -> str:
    """One line for a shell; every value of the request is in it."""
    words = ["trainwiz", *profile_words(request.profile)]
    for key, value in request.overrides.items():
        words += _choice(key, value)
    words += _mode(request)
    for flag, setting in (
        ("--gpu", request.gpu),
        ("--num-gpus", request.num_gpus),
        ("--ram", request.ram_bytes),
        ("--gpu-memory", request.gpu_memory_bytes),
        ("--tflops", request.tflops),
        ("--capability", request.capability),
        ("--output-dir", request.output_dir),
        ("--name", request.name),
    ):
        if setting is not None:
            words += [flag, str(setting)]
    if request.force:
        words.append("--force")
    # A run for another machine is written here and started there.
    return shlex.join([*words, "--dry-run" if names_another(request) else "--yes"])


def _choice(key: str, value: Any) -> list[str]:
    option = _FLAGS.get(key)
    if option is not None and option.kind == "list" and isinstance(value, list) and _is_plain(value):
        return [option.flag, ",".join(value)]
    if option is None or value is None or isinstance(value, list | dict):
        return ["--set", f"{key}={_scalar(value)}"]
    if option.kind == "switch":
        return [option.flag if value else f"--no-{option.flag.removeprefix('--')}"]
    return [option.flag, _scalar(value)]


def _is_plain(names: list[Any]) -> bool:
    """Names that commas can separate."""
    return bool(names) and all(isinstance(name, str) and name.strip() and "," not in name for name in names)


def _scalar(value: Any) -> str:
    """A text stands as it is: the command and the wizard read it in the same way."""
    return value if isinstance(value, str) else json.dumps(value)


def _mode(request: PlanRequest) -> list[str]:
    words = mode_words(request.mode, number_of_mode(request))
    if request.trace_steps is not None:
        words += ["--trace-steps", str(request.trace_steps)]
    return words
