"""The fields of the wizard: one row of this table for each, with its help and how its text is read."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from trainwiz.core.language import mark, tr
from trainwiz.tui.screens.plan_machine import is_of_the_machine, parse_machine
from trainwiz.tui.text import number, parse_number, parse_whole_number

if TYPE_CHECKING:
    from trainwiz.core.config import RunConfig
    from trainwiz.core.plan.result import Plan

STEPS = (mark("Hardware"), mark("Model"), mark("Data"), mark("Training"), mark("Review"))
HARDWARE, MODEL, DATA, TRAINING, REVIEW = range(5)

PROFILE = "profile"
"""Fields of the request itself, not of RunConfig."""
GOAL = "goal"
"""What one wants; it follows from the profile, or says which weights a run without one starts from."""
OUTPUT_DIR = "output_dir"
NAME = "name"

Kind = Literal["choice", "text", "number"]
Parse = Callable[[str, "RunConfig | None"], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Help:
    """What a newcomer needs to decide: what it is, why it matters, a safe choice, what it costs."""

    what: str
    why: str
    safe: str
    cost: str


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field. `keys` are the RunConfig key paths that it shows; the first one that is set is shown."""

    id: str
    label: str
    step: int
    keys: tuple[str, ...]
    kind: Kind
    help: Help
    group: str = ""
    """Heading above the first field of a group."""
    choices: tuple[str, ...] = ()
    free_text: bool = True
    """A choice that also takes text which is not in the list."""
    units: tuple[str, ...] = ()
    """For each key, the word after its number."""
    rare: bool = False
    """Shown only after "more, rarely changed" was opened."""
    empty: str = mark("not set")
    """How the field reads without a value."""
    when: Callable[[Plan], bool] | None = None
    """Whether the field means something in a plan; None: always."""

    @property
    def opens_a_list(self) -> bool:
        return self.kind == "choice"

    def applies(self, plan: Plan | None) -> bool:
        """Whether the row is shown; a field of some plans only waits for the plan."""
        return self.when is None or (plan is not None and self.when(plan))


def has_text(plan: Plan) -> bool:
    """The model reads text, not the letters of a protein."""
    return plan.task != "masked-lm"


def has_targets(plan: Plan) -> bool:
    """Every row has a text to answer with."""
    return plan.task == "seq2seq"


_WORDS: Mapping[str, Mapping[Any, str]] = {
    "engine.checkpointing": {True: mark("on"), False: mark("off")},
    "engine.strategy": {
        "single": mark("one process"),
        "ddp": mark("DDP"),
        "fsdp": mark("FSDP"),
        "zero1": mark("ZeRO-1"),
        "zero2": mark("ZeRO-2"),
        "zero3": mark("ZeRO-3"),
    },
    "engine.optimizer": {
        "adamw_torch": mark("AdamW"),
        "adamw_torch_fused": mark("AdamW, fused"),
        "adafactor": mark("Adafactor"),
        "sgd": mark("SGD"),
        "adamw_bnb_8bit": mark("AdamW, 8 bit"),
        "paged_adamw_8bit": mark("AdamW, 8 bit, paged"),
    },
    "engine.offload": {
        "none": mark("nothing"),
        "optimizer": mark("the optimizer"),
        "all": mark("optimizer and weights"),
    },
    "peft.method": {"none": mark("all weights"), "lora": mark("LoRA adapters")},
    "model.tokenizer": {"train": mark("trained on the data")},
    "evaluation.generate_at": {
        "evaluation": mark("every evaluation"),
        "epoch": mark("the end of each epoch"),
        "end": mark("the end of the run"),
    },
    "model.init": {"scratch": mark("random weights"), "pretrained": mark("pretrained weights")},
}


def word_for(key: str, value: Any) -> str:
    """How a value is written on the screen."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(str(getattr(one, "name", one)) for one in value)
    if isinstance(value, Mapping):
        return shlex.join(f"{name}={inner}" for name, inner in value.items())
    known = _WORDS.get(key, {})
    if value in known:
        return tr(known[value])
    if isinstance(value, bool):
        return tr("on") if value else tr("off")
    if key.endswith("_bytes"):
        return f"{value >> 20}M" if value % (1 << 20) == 0 else str(value)
    if isinstance(value, int | float):
        return number(value)
    return str(value)


def value_for(key: str, text: str) -> Any:
    """The value that a word of the screen stands for; the text itself when it is none of them."""
    for value, word in _WORDS.get(key, {}).items():
        if text in {word, tr(word)}:
            return value
    if key in LISTS:
        return [part.strip() for part in text.split(",") if part.strip()]
    if key in MAPPINGS:
        return _mapping(key, text)
    if key in ROWS:
        return [{"name": text}]
    if text in {"on", "off", tr("on"), tr("off")}:
        return text in {"on", tr("on")}
    return text


ROWS = frozenset({"data.validation_sources"})
"""Sources of rows: a text is the name of one."""
LISTS = frozenset({"engine.gpus", "peft.targets", "logging.report_to"})
MAPPINGS = frozenset({"engine.environment", "model.architecture_overrides"})


def _mapping(key: str, text: str) -> dict[str, Any]:
    """NAME=VALUE pairs with spaces between them, quoted as in a shell. Raises ValueError with a sentence.

    A variable of the environment is a text; a key of an architecture is what YAML reads: a number, true, a list.
    """
    try:
        pairs = [word.partition("=") for word in shlex.split(text)]
    except ValueError:
        raise ValueError(tr("A quotation mark is open; close it.")) from None
    if not all(name and sign for name, sign, _ in pairs):
        raise ValueError(tr("Type NAME=VALUE, with a space before the next one."))
    if key == "engine.environment":
        return {name: value for name, _, value in pairs}
    import yaml
    from trainwiz.core.config.yaml_text import load_yaml

    try:
        return {name: load_yaml(value) for name, _, value in pairs}
    except yaml.YAMLError:
        raise ValueError(tr("A value cannot be read: write a number, true or false, or a text.")) from None


def shown_key(spec: FieldSpec, config: RunConfig) -> str:
    """Which of the keys of a field is the one that counts in this config: what was asked for before what follows.

    Two epochs that somebody asked for are two epochs, and not the 62 steps that they come to.
    """
    there = [key for key in spec.keys if _value(config, key) is not None]
    asked = [key for key in there if config.origin(key).origin != "solved"]
    # Where neither was asked for, the steps follow from the epochs.
    return next(iter((*asked, *reversed(there), spec.keys[0])))


def shown_value(spec: FieldSpec, config: RunConfig) -> str:
    """The value with its unit, as the form shows it; empty when nothing is set."""
    key = shown_key(spec, config)
    return written_value(spec, key, _value(config, key))


def written_value(spec: FieldSpec, key: str, value: Any) -> str:
    """A value of one of the keys of a field, with its unit; empty for none."""
    text, unit = word_for(key, value), spec.units[spec.keys.index(key)] if spec.units else ""
    shown = tr(unit)
    return f"{text} {_single(unit) if value == 1 and shown == unit else shown}".strip() if text else ""


def parse_field(spec: FieldSpec, text: str, config: RunConfig | None) -> dict[str, Any]:
    """The key paths and values that a text stands for. Raises ValueError with a sentence.

    An empty text gives an empty dict: it takes back the user's own choice.
    """
    text = text.strip()
    if len(text) > 4096:
        raise ValueError(tr("This is too long for a value."))
    if not text:
        return {}
    if is_of_the_machine(spec):
        return parse_machine(spec, text)
    if spec.kind != "choice" and text.lower() in {"none", spec.empty, tr(spec.empty)} and _may_be_none(spec.keys[0]):
        return {shown_key(spec, config) if config is not None else spec.keys[0]: None}
    if spec.keys == (GOAL,):
        return {GOAL: text}
    if spec.kind == "number":
        return _parse_with_unit(spec, text, config)
    return {spec.keys[0]: value_for(spec.keys[0], text)}


def _parse_with_unit(spec: FieldSpec, text: str, config: RunConfig | None) -> dict[str, Any]:
    key = shown_key(spec, config) if config is not None else spec.keys[0]
    # The longest first: "real tokens" ends like "tokens".
    for candidate, unit in sorted(_unit_words(spec), key=lambda pair: -len(pair[1])):
        if text.lower().endswith(unit):
            text, key = text[: -len(unit)], candidate
            break
    try:
        return {key: parse_whole_number(text) if _is_whole(key) else parse_number(text)}
    except ValueError as error:
        if len(spec.units) < 2:
            raise
        units = ", ".join(tr(unit) for unit in spec.units)
        raise ValueError(tr("{reason} After it may stand: {units}.", reason=error, units=units)) from None


MEASURE_WORDS = "条个"
"""Chinese counts with them; who types a number may leave them out."""


def _single(unit: str) -> str:
    """Of one: "epoch", "batch"; the unit "s" stays."""
    return unit.removesuffix("es" if unit.endswith("ches") else "s") or unit


def _unit_words(spec: FieldSpec) -> Iterator[tuple[str, str]]:
    """(key, word): each unit, and its singular, as it is written and as it is shown."""
    for key, unit in zip(spec.keys, spec.units, strict=False):
        shown = tr(unit)
        for word in {unit, _single(unit), shown, shown.lstrip(MEASURE_WORDS)}:
            yield key, word


def _is_whole(key: str) -> bool:
    """The key takes whole numbers only."""
    from trainwiz.core.config.keys import alternatives

    kinds = alternatives(key)
    return int in kinds and float not in kinds


def _may_be_none(key: str) -> bool:
    from trainwiz.core.config.keys import alternatives

    return type(None) in alternatives(key)


def _value(config: RunConfig, key: str) -> Any:
    try:
        return config.value(key)
    except KeyError:
        return None
