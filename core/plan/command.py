"""The command that shows a plan again with some values changed: what a remedy offers to paste."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from trainwiz.core.catalog.gpus import load_gpus
from trainwiz.core.config import RunConfig
from trainwiz.core.config.modes import BENCHMARK_STEPS
from trainwiz.core.config.sections import ModeSection
from trainwiz.core.defaults import profile_words
from trainwiz.core.hardware.hypothetical import DEFAULT_RAM_BYTES
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan.request import PlanRequest
from trainwiz.core.plan.set_words import not_said_twice, set_words
from trainwiz.core.profile.profile import Profile, ProfileHardware

MODE_WORDS: Mapping[str, str] = {
    "smoke": "--smoke",
    "dev-run": "--dev-run",
    "overfit": "--overfit",
    "benchmark": "--benchmark",
}


def plan_command(config: RunConfig, machine: Machine, profile: Profile | None, changes: Mapping[str, Any]) -> str:
    """`trainwiz plan` of the same run with `changes`: profile, machine, mode, the user's own values, the changes."""
    words = ["trainwiz", "plan", *profile_words(config.profile)]
    words += [*_machine_words(machine, profile), *mode_words(config.mode.kind, number_of_mode(config.mode))]
    yours = {key: config.value(key) for key, origin in config.origins.items() if origin.origin == "you"}
    return shlex.join([*words, *set_words(not_said_twice({**yours, **changes}, changes))])


def number_of_mode(mode: ModeSection | PlanRequest) -> int | None:
    """What its option takes: batches of an overfit run, steps of a benchmark."""
    kind = mode.mode if isinstance(mode, PlanRequest) else mode.kind
    return {"overfit": mode.overfit_batches, "benchmark": mode.benchmark_steps}.get(kind)


def mode_words(mode: str, number: int | None) -> list[str]:
    """The option of a mode; `number` as number_of_mode gives it."""
    word = MODE_WORDS.get(mode)
    if word is None:
        return []
    usual = {"overfit": 1, "benchmark": BENCHMARK_STEPS}.get(mode)
    return [word] if usual is None else [word, str(number or usual)]


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
