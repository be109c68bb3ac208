"""The command that shows a plan again with some values changed: what a remedy offers to paste."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from trainwiz.core.catalog.gpus import load_gpus
from trainwiz.core.config import RunConfig
from trainwiz.core.hardware.hypothetical import DEFAULT_RAM_BYTES
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.profile.profile import Profile, ProfileHardware

MODE_WORDS: Mapping[str, str] = {"smoke": "--smoke", "dev-run": "--dev-run", "overfit": "--overfit"}
OWN_OPTIONS: Mapping[str, str] = {"model.name": "--model", "data.sources.0.name": "--dataset", "task": "--task"}
_OF_THE_COMMAND = ("profile", "name", "mode.")
"""Keys that the command says with options of their own."""


def plan_command(config: RunConfig, machine: Machine, profile: Profile | None, changes: Mapping[str, Any]) -> str:
    """`trainwiz plan` of the same run with `changes`: profile, machine, mode, the user's own values, the changes."""
    words = ["trainwiz", "plan"]
    if config.profile is not None:
        words += ["--profile", config.profile]
    words += [*_machine_words(machine, profile), *mode_words(config.mode.kind, config.mode.overfit_batches)]
    yours = {key: config.value(key) for key, origin in config.origins.items() if origin.origin == "you"}
    return shlex.join([*words, *set_words(_not_said_twice({**yours, **changes}, changes))])


def set_words(values: Mapping[str, Any]) -> list[str]:
    """key path -> value as arguments: `--set`, but --model, --dataset and --task, without which the demo would be meant."""
    words: list[str] = []
    for key, value in values.items():
        if key in OWN_OPTIONS and value:
            words += [OWN_OPTIONS[key], str(value)]
        elif not key.startswith(_OF_THE_COMMAND):
            words += ["--set", f"{key}={_yaml(value)}"]
    return words


def _not_said_twice(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Without the keys of which a whole section is in `values` too: data.sources.0.name beside data.sources."""
    return {
        key: value
        for key, value in values.items()
        if key in changes or not any(key.startswith(f"{other}.") for other in values)
    }


def mode_words(mode: str, overfit_batches: int | None) -> list[str]:
    """The option of a mode."""
    word = MODE_WORDS.get(mode)
    if word is None:
        return []
    return [word, str(overfit_batches or 1)] if mode == "overfit" else [word]


def _machine_words(machine: Machine, profile: Profile | None) -> list[str]:
    """A planned machine, where it is another one than the profile's own."""
    if not machine.hypothetical:
        return []
    own = profile.hardware if profile is not None else ProfileHardware()
    words: list[str] = []
    if machine.gpus:
        card, count = machine.gpus[0], len(machine.gpus)
        spec = load_gpus().get(card.name or "")
        memory, capability = card.memory_total_bytes, card.compute_capability
        if spec is None or spec.name != own.gpu:
            words += ["--gpu", card.name] if spec is not None and card.name else []
        if memory is not None and capability is not None and (spec is None or memory != spec.memory_bytes):
            words += ["--gpu-memory", _size(memory)]
        if card.given_tflops is not None:
            words += ["--tflops", f"{card.given_tflops:.12g}"]
        if capability is not None and (spec is None or capability != spec.compute_capability):
            words += ["--capability", capability]
        # Figures given by hand beside no name would be a card without one: the profile's own is named again.
        if words and spec is not None and "--gpu" not in words:
            words = ["--gpu", spec.name, *words]
        if words or count != own.num_gpus:
            words += ["--num-gpus", str(count)]
    if machine.ram_total_bytes != (own.ram_bytes or DEFAULT_RAM_BYTES):
        words += ["--ram", _size(machine.ram_total_bytes)]
    return words


def _size(count: int) -> str:
    """Bytes as `--ram` reads them back."""
    for power, letter in ((30, "G"), (20, "M"), (10, "K")):
        if count % 2**power == 0:
            return f"{count >> power}{letter}"
    return f"{count}B"


def _yaml(value: Any) -> str:
    """A value as `--set` reads it back: JSON is YAML, and a plain word stays plain."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return ",".join(value)
    if isinstance(value, list):
        value = [item.model_dump(exclude_defaults=True) if hasattr(item, "model_dump") else item for item in value]
    return json.dumps(value)
