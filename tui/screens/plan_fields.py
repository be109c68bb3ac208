"""The rows of the wizard: the settings with a label, how their values are written and read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwiz.core.config.setting import DATA, HARDWARE, MODEL, REVIEW, STEPS, TRAINING, Setting, When
from trainwiz.core.config.settings import SETTINGS, SOURCE_LISTS, SOURCE_SETTINGS, all_settings, in_order_of_rows
from trainwiz.core.config.values import CLASSIFIES, WRITE_TEXT
from trainwiz.core.errors import Finding
from trainwiz.core.language import language, mark, tr
from trainwiz.tui.options import OPTIONS, named_by
from trainwiz.tui.screens.plan_machine import is_of_the_machine, parse_machine
from trainwiz.tui.text import number, parse_number, parse_whole_number

if TYPE_CHECKING:
    from trainwiz.core.config import RunConfig
    from trainwiz.core.plan.result import Plan

__all__ = ["DATA", "HARDWARE", "MODEL", "REVIEW", "STEPS", "TRAINING", "Setting"]

PROFILE = "profile"
"""Fields of the request itself, not of RunConfig."""
GOAL = "goal"
"""What one wants; it follows from the profile, or says which weights a run without one starts from."""
OUTPUT_DIR = "output_dir"
NAME = "name"

GOALS: Mapping[str, tuple[str, str]] = {
    "demo": (mark("Run the demo"), mark("a few minutes")),
    "fine-tune": (mark("Fine-tune a model"), mark("pretrained, on your data")),
    "pretrain": (mark("Pretrain a model"), mark("from scratch")),
    "fit": (mark("See what fits"), mark("models for your data")),
    "profile": (mark("Use a profile"), mark("a ready-made setup")),
}
"""Goal -> its label, and what it means in a few words."""

GOAL_FIELD = Setting(
    key=GOAL,
    keys=(GOAL,),
    id=GOAL,
    what=mark("The demo, fine-tuning, pretraining, what fits, or a profile. Choose with the arrow keys and enter."),
    why=mark("All other defaults fit the goal, the model, the data and the machine."),
    safe=mark("The demo first, then fine-tuning on your own data."),
    cost=mark("Nothing: the goal can be changed at any time. Going back to the demo discards your choices."),
    label=mark("Goal"),
    step=HARDWARE,
    group=mark("What do you want to do?"),
    offers=tuple(GOALS),
)
FIELDS: tuple[Setting, ...] = (GOAL_FIELD, *in_order_of_rows(list(all_settings())))
"""Every row of the wizard, in the order of the screen."""
FIELD_BY_ID = {spec.id: spec for spec in FIELDS}


def fields_of(step: int, rare: bool) -> tuple[Setting, ...]:
    """The fields of a step; the rarely changed ones only where `rare` is true."""
    return tuple(spec for spec in FIELDS if spec.step == step and (rare or not spec.rare))


def hidden_fields(step: int, plan: Plan | None) -> int:
    """How many rarely changed fields of a step have something to say to this plan."""
    return sum(spec.rare and spec.step == step and applies(spec, plan) for spec in FIELDS)


# Of which plans a row speaks.


def _is_of_the_hub(plan: Plan) -> bool:
    """The rows come from a data set of the hub, whose parts have names; `folder/name` in a folder that is here is a file."""
    from trainwiz.core.data.sources import looks_like_hub_id

    names = (source.name for source in plan.config.data.sources)
    return any(looks_like_hub_id(name) and not Path(name).parent.is_dir() for name in names)


CONDITIONS: Mapping[When, Callable[[Plan], bool]] = {
    "adapters": lambda plan: plan.config.peft.method == "lora",
    "another_machine": lambda plan: plan.machine.hypothetical,
    "causal": lambda plan: plan.task == "causal-lm",
    "classifies": lambda plan: plan.task in CLASSIFIES,
    "cuda": lambda plan: plan.config.engine.device == "cuda",
    "dev_run": lambda plan: plan.config.mode.kind == "dev-run",
    "generates": lambda plan: plan.task in WRITE_TEXT and plan.config.evaluation.generate,
    "hub_data": _is_of_the_hub,
    "masked": lambda plan: plan.task == "masked-lm",
    "masked_words": lambda plan: plan.config.row_kind == "masked-lm",
    "may_adapt": lambda plan: plan.config.row_kind != "proteins" or plan.config.peft.method == "lora",
    "several_gpus": lambda plan: not plan.machine.hypothetical and len(plan.machine.gpus) > 1,
    "several_machines": lambda plan: plan.config.engine.nodes > 1,
    "several_processes": lambda plan: plan.batch.world_size > 1,
    # Every row has a text to answer with.
    "targets": lambda plan: plan.task == "seq2seq",
    # The model reads text, not the letters of a protein.
    "text": lambda plan: plan.config.row_kind != "proteins",
}


def applies(spec: Setting, plan: Plan | None) -> bool:
    """Whether the row is shown; a field of some plans only waits for the plan."""
    return spec.when is None or (plan is not None and CONDITIONS[spec.when](plan))


# Values as the screen writes them, and back.


def word_for(key: str, value: Any) -> str:
    """How a value is written on the screen."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        named = (one.get("name", one) if isinstance(one, dict) else getattr(one, "name", one) for one in value)
        return ", ".join(map(str, named))
    if isinstance(value, Mapping):
        return shlex.join(f"{name}={inner}" for name, inner in value.items())
    words = _words(key)
    if value in words:
        return tr(words[value])
    if isinstance(value, bool):
        return tr("on") if value else tr("off")
    if key.endswith("_bytes"):
        return f"{value >> 20}M" if value % (1 << 20) == 0 else str(value)
    if isinstance(value, int | float):
        return number(value)
    return str(value)


def value_for(key: str, text: str) -> Any:
    """The value that a word of the screen stands for; the text itself when it is none of them."""
    entry = _setting(key)
    words = {True: mark("on"), False: mark("off"), **_words(key)}
    for value, word in words.items():
        if text in {word, tr(word)}:
            return value
    if entry is not None and entry.kind == "list":
        return [part.strip() for part in text.split(",") if part.strip()]
    if entry is not None and entry.kind == "mapping":
        return _mapping(key, text)
    return [{"name": text}] if key in SOURCE_LISTS else text


def _setting(key: str) -> Setting | None:
    return SETTINGS.get(key) or SOURCE_SETTINGS.get(key.removeprefix("data.sources.0."))


def _words(key: str) -> Mapping[Any, str]:
    entry = _setting(key)
    return entry.words if entry is not None else {}


def _mapping(key: str, text: str) -> dict[str, Any]:
    """NAME=VALUE pairs with spaces between them, quoted as in a shell. Raises ValueError with a sentence.

    A variable of the environment is a text; a key of an architecture is what YAML reads: a number, true, a list.
    """
    try:
        pairs = [word.partition("=") for word in shlex.split(text)]
    except ValueError:
        raise ValueError(tr("A quotation mark is not closed.")) from None
    if not all(name and sign for name, sign, _ in pairs):
        raise ValueError(tr("Type NAME=VALUE, separated by spaces."))
    if key == "engine.environment":
        return {name: value for name, _, value in pairs}
    import yaml
    from trainwiz.core.config.yaml_text import load_yaml

    try:
        return {name: load_yaml(value) for name, _, value in pairs}
    except yaml.YAMLError:
        raise ValueError(tr("A value can't be parsed. Use a number, true or false, or text.")) from None


def shown_key(spec: Setting, config: RunConfig) -> str:
    """Which of the keys of a field is the one that counts in this config: what was asked for before what follows.

    Two epochs that somebody asked for are two epochs, and not the 62 steps that they come to.
    """
    there = [key for key in spec.keys if value_of(config, key) is not None]
    # Where neither was asked for, the steps follow from the epochs.
    asked = (key for key in there if config.origin(key).origin != "solved")
    return next(asked, there[-1] if there else spec.keys[0])


def shown_value(spec: Setting, config: RunConfig) -> str:
    """The value with its unit, as the form shows it; empty when nothing is set."""
    key = shown_key(spec, config)
    return written_value(spec, key, value_of(config, key))


def written_value(spec: Setting, key: str, value: Any) -> str:
    """A value of one of the keys of a field, with its unit; empty for none."""
    text, unit = word_for(key, value), spec.units[spec.keys.index(key)] if spec.units else ""
    shown = _single(unit) if value == 1 and tr(unit) == unit else tr(unit)
    return f"{text} {shown}".strip() if text else ""


def parse_field(spec: Setting, text: str, config: RunConfig | None) -> dict[str, Any]:
    """The key paths and values that a text stands for. Raises ValueError with a sentence.

    An empty text gives an empty dict: it takes back the user's own choice.
    """
    text = text.strip()
    if len(text) > 4096:
        raise ValueError(tr("This value is too long."))
    if not text:
        return {}
    if is_of_the_machine(spec):
        return parse_machine(spec, text)
    if not spec.opens_a_list and text.lower() in {"none", spec.empty, tr(spec.empty)} and spec.may_be_none:
        return {shown_key(spec, config) if config is not None else spec.keys[0]: None}
    if spec.kind in ("integer", "number") and not spec.opens_a_list:
        return _parse_with_unit(spec, text, config)
    return {spec.keys[0]: value_for(spec.keys[0], text)}


_AMOUNT = re.compile(r"([-+\d.,_\s]*(?:e[-+]?\d+)?(?:[kmbgt](?![^\W\d_]))?)\s*(.*)", re.IGNORECASE)
"""A number, and what stands behind it."""


def _parse_with_unit(spec: Setting, text: str, config: RunConfig | None) -> dict[str, Any]:
    """A number of the key that counts, or of the one whose unit is typed behind it; a part of a unit will do."""
    key = shown_key(spec, config) if config is not None else spec.keys[0]
    found = _AMOUNT.fullmatch(text)
    amount, typed = (found[1], found[2].lower()) if found is not None else (text, "")
    written = ((word, key) for key, unit in zip(spec.keys, spec.units, strict=False) for word in (unit, tr(unit)))
    named = [key for word, key in sorted(written, key=lambda pair: len(pair[0])) if typed in word] if typed else []
    if named:
        key = named[0]
    elif typed:
        amount = text
    try:
        return {key: parse_whole_number(amount) if SETTINGS[key].kind == "integer" else parse_number(amount)}
    except ValueError as error:
        if len(spec.units) < 2:
            raise
        units = ", ".join(map(tr, spec.units))
        raise ValueError(tr("{reason} Allowed units: {units}.", reason=error, units=units)) from None


def _single(unit: str) -> str:
    """Of one: "epoch", "batch"; the unit "s" stays."""
    return unit.removesuffix("es" if unit.endswith("ches") else "s") or unit


def value_of(config: RunConfig, key: str) -> Any:
    try:
        return config.value(key)
    except KeyError:
        return None


# Findings as the wizard says them.


@lru_cache(maxsize=2)
def _screen_names(language: str) -> dict[str, str]:
    """Key path or option -> the field that shows it, in quotes."""
    names = {key: f"“{tr(spec.label)}”" for spec in FIELDS for key in spec.keys}
    names["data.sources"] = names["data.sources.0.name"]
    keys = {option.flag: option.key or option.name for option in OPTIONS}
    return {**names, **{flag: names[key] for flag, key in keys.items() if key in names}}


def on_screen(finding: Finding) -> Finding:
    """The finding as the wizard says it: it names fields, not keys or options."""
    names = _screen_names(language())
    remedies = tuple(replace(remedy, text=named_by(remedy.text, names)) for remedy in finding.remedies)
    return replace(finding, message=named_by(finding.message, names), remedies=remedies)
