"""The fields of the wizard: one row of this table for each, with its help and how its text is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from trainwiz.tui.figures import number, parse_number, parse_whole_number

if TYPE_CHECKING:
    from trainwiz.core.config import RunConfig
    from trainwiz.core.plan.result import Plan

STEPS = ("Hardware", "Model", "Data", "Training", "Review")
HARDWARE, MODEL, DATA, TRAINING, REVIEW = range(5)

PROFILE = "profile"
"""Fields of the request itself, not of RunConfig."""
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
    empty: str = "not set"
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
    "engine.checkpointing": {True: "on", False: "off"},
    "engine.strategy": {
        "single": "one process",
        "ddp": "DDP",
        "fsdp": "FSDP",
        "zero1": "ZeRO-1",
        "zero2": "ZeRO-2",
        "zero3": "ZeRO-3",
    },
    "engine.optimizer": {
        "adamw_torch": "AdamW",
        "adamw_torch_fused": "AdamW, fused",
        "adafactor": "Adafactor",
        "sgd": "SGD",
        "adamw_bnb_8bit": "AdamW, 8 bit",
        "paged_adamw_8bit": "AdamW, 8 bit, paged",
    },
    "engine.offload": {"none": "nothing", "optimizer": "the optimizer", "all": "optimizer and weights"},
    "peft.method": {"none": "all weights", "lora": "LoRA adapters"},
    "model.tokenizer": {"train": "trained on the data"},
    "evaluation.generate_at": {
        "evaluation": "every evaluation",
        "epoch": "the end of each epoch",
        "end": "the end of the run",
    },
    "model.init": {"scratch": "random weights", "pretrained": "pretrained weights"},
}


def word_for(key: str, value: Any) -> str:
    """How a value is written on the screen."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    known = _WORDS.get(key, {})
    if value in known:
        return known[value]
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return number(value)
    return str(value)


def value_for(key: str, text: str) -> Any:
    """The value that a word of the screen stands for; the text itself when it is none of them."""
    for value, word in _WORDS.get(key, {}).items():
        if word == text:
            return value
    if key in LISTS:
        return [part.strip() for part in text.split(",") if part.strip()]
    if text in {"on", "off"}:
        return text == "on"
    return text


LISTS = frozenset({"engine.gpus", "peft.targets", "logging.report_to"})


def shown_key(spec: FieldSpec, config: RunConfig) -> str:
    """Which of the keys of a field is the one that counts in this config."""
    for key in spec.keys:
        if _value(config, key) is not None:
            return key
    return spec.keys[0]


def shown_value(spec: FieldSpec, config: RunConfig) -> str:
    """The value with its unit, as the form shows it; empty when nothing is set."""
    key = shown_key(spec, config)
    text = word_for(key, _value(config, key))
    unit = spec.units[spec.keys.index(key)] if spec.units and text else ""
    return f"{text} {unit}".strip()


def parse_field(spec: FieldSpec, text: str, config: RunConfig | None) -> dict[str, Any]:
    """The key paths and values that a text stands for. Raises ValueError with a sentence.

    An empty text gives an empty dict: it takes back the user's own choice.
    """
    text = text.strip()
    if len(text) > 4096:
        raise ValueError("This is too long for a value.")
    if not text:
        return {}
    if spec.kind == "number":
        return _parse_with_unit(spec, text, config)
    return {spec.keys[0]: value_for(spec.keys[0], text)}


def _parse_with_unit(spec: FieldSpec, text: str, config: RunConfig | None) -> dict[str, Any]:
    key = shown_key(spec, config) if config is not None else spec.keys[0]
    # The longest first: "real tokens" ends like "tokens".
    for candidate, unit in sorted(zip(spec.keys, spec.units, strict=False), key=lambda pair: -len(pair[1])):
        stem = unit.rstrip("s")
        if text.lower().endswith((f" {unit}", f" {stem}", unit)) and unit:
            text, key = text[: text.lower().rindex(stem)], candidate
            break
    whole = key not in FRACTIONS
    value = parse_whole_number(text) if whole else parse_number(text)
    return {key: value}


FRACTIONS = frozenset(
    {
        "training.epochs",
        "training.learning_rate",
        "training.final_learning_rate",
        "training.warmup",
        "training.weight_decay",
        "training.mask_probability",
        "training.max_grad_norm",
        "training.label_smoothing",
        "peft.alpha",
        "peft.dropout",
    }
)


def _value(config: RunConfig, key: str) -> Any:
    try:
        return config.value(key)
    except KeyError:
        return None
