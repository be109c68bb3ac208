"""Sizes, shares, times and ranges in the words of a plan and of a guide, and the command that shows a plan again."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from trainwiz.core.defaults import profile_words
from trainwiz.core.errors import after
from trainwiz.core.language import mark, tr

if TYPE_CHECKING:
    from trainwiz.core.config import RunConfig
    from trainwiz.core.config.request import PlanRequest
    from trainwiz.core.config.run import ModeSection
    from trainwiz.core.hardware.machine import Machine

# Sizes, shares and times in the words of a plan.

GIB = 2**30


def gib(size: float) -> str:
    """ "5.4 GiB", and "74 MiB" for what would round to little or nothing."""
    return f"{size / GIB:.1f} GiB" if size >= GIB / 2 or size == 0 else f"{size / 2**20:.0f} MiB"


def counted(**numbers: float) -> dict[str, str]:
    """Whole numbers for a sentence: 12345 -> "12,345"."""
    return {name: f"{number:,.0f}" for name, number in numbers.items()}


def percent(share: float, digits: int = 0, signed: bool = False) -> str:
    """0.35 -> "35%"; with a sign -0.25 -> "-25%"."""
    return f"{share * 100:{'+' if signed else ''}.{digits}f}%"


SECONDS, MINUTES = mark("{number} s"), mark("{number} minutes")
LONG_UNITS = (
    (mark("{number} years"), 365.25 * 86400),
    (mark("{number} days"), 86400.0),
    (mark("{number} hours"), 3600.0),
)


def duration(seconds: float) -> str:
    """Two significant figures of the unit that a person would use: "35 years", "11 days", "460 s"."""
    number, unit = _in_unit(seconds)
    return tr(unit, number=number)


def duration_range(low: float, high: float) -> str:
    """ "7 to 18 years": the unit once where both share it."""
    (first, unit), (_, other) = _in_unit(low), _in_unit(high)
    begin, end = duration(low), duration(high)
    if begin == end:
        return begin
    return tr("{first} to {second}", first=first if unit == other else begin, second=end)


def _in_unit(seconds: float) -> tuple[str, str]:
    """(number, unit with a place for the number) of a time."""
    if seconds < 120:
        return f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.1f}", SECONDS
    unit, size = next((one for one in LONG_UNITS if seconds >= 2 * one[1]), (MINUTES, 60.0))
    value = seconds / size
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}", unit


def aside(text: str | None) -> str:
    """A reason in brackets behind a word; nothing for none."""
    return after(tr("({reason})", reason=text)) if text else ""


def listed(words: Iterable[str]) -> str:
    """ "one, two, three"."""
    return tr(", ").join(words)


PARTS = {
    "weights": mark("weights"),
    "gradients": mark("gradients"),
    "optimizer": mark("optimizer"),
    "activations": mark("activations"),
    "logits": mark("logits"),
    "temporary": mark("temporary"),
    "context": mark("context"),
    "processes": mark("processes"),
    "training": mark("training processes"),
    "loading": mark("loading the model"),
    "saving": mark("writing the weights"),
    "supervisor": mark("supervisor"),
    "workers": mark("loader workers"),
    "pinned": mark("pinned"),
    "data": mark("data"),
    "model": mark("model"),
    "offloaded": mark("offloaded"),
}
"""Parts of a peak and of host RAM, by their keys in plan.json."""


def part_word(key: str) -> str:
    """What a part of the memory is called."""
    return tr(PARTS.get(key, key))


# Ranges as guides write them: "3.5-4 h", "14 to 15 GB".

_NUMBER = r"(\d+(?:[.,]\d+)?)"
_RANGE = re.compile(rf"\s*(?:about|around|~)?\s*{_NUMBER}(?:\s*(?:-|–|to|bis)\s*{_NUMBER})?\s*([a-zA-Z]*)\s*")
_IN_UNITS = {
    "s": 1.0,
    "min": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hours": 3600.0,
    "days": 86400.0,
    # Memory is sold in powers of two.
    "MB": 2.0**20,
    "MiB": 2.0**20,
    "GB": 2.0**30,
    "GiB": 2.0**30,
}


def range_of(text: str) -> tuple[float, float] | None:
    """(low, high) in seconds or bytes of "3.5-4 h", "90 min" or "14-15 GB"; None for anything else."""
    match = _RANGE.fullmatch(text)
    if match is None or match.group(3) not in _IN_UNITS:
        return None
    low, high = (float((end or match.group(1)).replace(",", ".")) for end in match.groups()[:2])
    each = _IN_UNITS[match.group(3)]
    return (low * each, high * each) if 0 < low <= high else None


# Values of a RunConfig as arguments of the command. Imports nothing heavy: the keeper of a run uses it.

OWN_OPTIONS: Mapping[str, str] = {"model.name": "--model", "data.sources.0.name": "--dataset", "task": "--task"}
"""Keys with an option of their own, without which the demo would be meant."""
_OF_THE_COMMAND = ("profile", "name", "mode.")
"""Keys that the command says with options of their own."""


def set_words(values: Mapping[str, Any]) -> list[str]:
    """key path -> value as arguments: `--set`, but --model, --dataset and --task, without which the demo would be meant."""
    words: list[str] = []
    for key, value in values.items():
        if key in OWN_OPTIONS and value:
            words += [OWN_OPTIONS[key], str(value)]
        elif not key.startswith(_OF_THE_COMMAND):
            words += ["--set", f"{key}={_yaml(value)}"]
    return words


def not_said_twice(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Without the keys of which a whole section is in `values` too: data.sources.0.name beside data.sources."""
    return {
        key: value
        for key, value in values.items()
        if key in changes or not any(key.startswith(f"{other}.") for other in values)
    }


def _yaml(value: Any) -> str:
    """A value as `--set` reads it back: JSON is YAML, and a plain word stays plain."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return ",".join(value)
    if isinstance(value, list):
        value = [item.model_dump(exclude_defaults=True) if hasattr(item, "model_dump") else item for item in value]
    return json.dumps(value)


# The command that shows a plan again with some values changed: what a remedy offers to paste.

MODES = ("smoke", "dev-run", "overfit", "benchmark")
"""Those with an option of their own."""


def plan_command(config: RunConfig, machine: Machine, changes: Mapping[str, Any]) -> str:
    """`trainwiz plan` of the same run with `changes`: profile, machine, mode, the user's own values, the changes."""
    words = ["trainwiz", "plan", *profile_words(config.profile)]
    words += [*_machine_words(machine), *mode_words(config.mode)]
    yours = {key: config.value(key) for key, origin in config.origins.items() if origin.origin == "you"}
    return shlex.join([*words, *set_words(not_said_twice({**yours, **changes}, changes))])


def fit_command(config: RunConfig, machine: Machine) -> str:
    """`trainwiz fit` with the same data and machine."""
    kept = {
        key: config.value(key)
        for key, origin in config.origins.items()
        if origin.origin == "you" and (key == "task" or key.startswith(("data.sources.", "planning.")))
    }
    words = [*_machine_words(machine), *set_words({"data.sources.0.name": config.data.sources[0].name, **kept})]
    return shlex.join(["trainwiz", "fit", *words])


def mode_words(mode: ModeSection | PlanRequest) -> list[str]:
    """The option of a mode, with the batches of an overfit run or the steps of a benchmark."""
    from trainwiz.core.config.modes import BENCHMARK_STEPS
    from trainwiz.core.config.request import PlanRequest

    kind = mode.mode if isinstance(mode, PlanRequest) else mode.kind
    numbers = {"overfit": mode.overfit_batches or 1, "benchmark": mode.benchmark_steps or BENCHMARK_STEPS}
    return [f"--{kind}"] * (kind in MODES) + ([str(numbers[kind])] if kind in numbers else [])


def _machine_words(machine: Machine) -> list[str]:
    """A planned machine in full, for a profile may name another one."""
    from trainwiz.core.catalog.gpus import load_gpus

    if not machine.hypothetical:
        return []
    words: list[str] = []
    for card in machine.gpus[:1]:
        spec = load_gpus().get(card.name or "")
        memory, capability = card.memory_total_bytes, card.compute_capability
        words += ["--gpu", spec.name] if spec is not None else []
        if memory is not None and capability is not None and (spec is None or memory != spec.memory_bytes):
            words += ["--gpu-memory", _size(memory)]
        if capability is not None and (spec is None or capability != spec.compute_capability):
            words += ["--capability", capability]
        given = {
            "--tflops": card.given_tflops,
            "--fp32-tflops": card.given_fp32_tflops,
            "--bandwidth": card.given_bandwidth,
        }
        for option, figure in given.items():
            words += [option, f"{figure:.12g}"] if figure is not None else []
    return [*words, "--num-gpus", str(len(machine.gpus)), "--ram", _size(machine.ram_total_bytes)]


def _size(count: int) -> str:
    """Bytes as `--ram` reads them back."""
    sizes = (
        f"{count >> power}{letter}" for power, letter in ((30, "G"), (20, "M"), (10, "K")) if count % 2**power == 0
    )
    return next(sizes, f"{count}B")
