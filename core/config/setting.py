"""Setting: one value that a run can be given, with all that is said about it, declared once.

From these entries are read: the fields of RunConfig and their checks, the options of the command and their help, the rows
of the wizard with their help, the JSON schema, the arguments of the Trainer that are the same value by another name, and
what a resume compares. This file imports nothing heavy: the help and the first frame read it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from trainwiz.core.language import mark

STEPS = (mark("Hardware"), mark("Model"), mark("Data"), mark("Training"), mark("Review"))
HARDWARE, MODEL, DATA, TRAINING, REVIEW = range(5)

RARE_GROUPS = (
    mark("Optimizer and loss"),
    mark("Devices and processes"),
    mark("Data loading"),
    mark("Failure handling"),
    mark("Checkpoints and logging"),
    mark("Plan only"),
)
"""All their rows are rare."""
GROUPS = (
    "",
    mark("What do you want to do?"),
    mark("Starting point"),
    mark("Goals"),
    mark("Computation"),
    mark("Evaluation"),
    *RARE_GROUPS,
)
"""The headings of the wizard's rows, in the order of the screen."""

When = Literal[
    "adapters", "another_machine", "causal", "classifies", "cuda", "dev_run", "generates", "hub_data",
    "masked", "masked_words", "may_adapt", "several_gpus", "several_machines", "several_processes", "targets", "text",
]  # fmt: skip
"""Of which plans a row speaks; what each word means is said by the wizard."""
OptionGroup = Literal["what", "how", "where", "run"]
ValueKind = Literal["text", "integer", "number", "size", "switch", "one-of", "list", "mapping"]
PLAIN_KINDS: dict[Any, ValueKind] = {str: "text", bool: "switch", int: "integer", float: "number", list[str]: "list"}

REQUIRED: Any = ...

if TYPE_CHECKING:
    # What mypy reads of a section is the model that core/config/run.py makes of it.
    from pydantic import BaseModel

    class Section(BaseModel):
        """As core/config/run.py makes it."""
else:

    class Section:
        """A group of settings as it is declared: annotated names with their entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One entry. Texts are English here and translated where they are drawn."""

    default: Any = None
    what: str = ""
    """What it is, in one sentence: the description in the schema, and the first line of the wizard's help."""
    why: str = ""
    safe: str = ""
    """A choice that is safe for a newcomer."""
    cost: str = ""
    """What a choice costs; empty where it is nothing."""
    bounds: Mapping[str, float] = field(default_factory=dict)
    """As pydantic names them; lengths are those of texts and lists."""
    # The row of the wizard. A setting without a label has none.
    label: str = ""
    step: int = TRAINING
    """Without a group, that of its section: core/config/settings.py."""
    group: str = ""
    id: str = ""
    """Of the row; the last part of the key where it is left out."""
    after: str = ""
    """The key behind whose row this one stands, with those of its section that follow; else in the order of the table."""
    beside: str = ""
    """The key in whose row this one is shown too: two ways to say the same."""
    rare: bool = False
    """Shown only after "more, rarely changed" was opened."""
    when: When | None = None
    unit: str = ""
    empty: str = mark("not set")
    """How the row reads without a value."""
    offers: tuple[str, ...] | None = None
    """Values of the list where the type does not say them; () where the list is made of what is here."""
    free_text: bool = False
    """A list that also takes text which is not in it."""
    words: dict[Any, str] = field(default_factory=dict)
    """How values are written on the screen."""
    # The option of the command, with the name of its value: "--epochs N".
    option: str = ""
    says: str = ""
    """The option's line in the help."""
    option_group: OptionGroup = "what"
    trainer: str = ""
    """The argument of transformers' TrainingArguments that takes the same value; exports and imports go by it."""
    learnt: bool = False
    """Of the training and the engine: a run is only resumed with the value that it began with."""
    # Known from where the entry stands.
    key: str = ""
    type: Any = str
    keys: tuple[str, ...] = ()
    """Of the row: its own, then those beside it. The one that is set is shown."""
    units: tuple[str, ...] = ()
    """Of each of `keys`."""

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types that a value may have, `Optional` and unions opened: (int, NoneType)."""
        return get_args(self.type) if get_origin(self.type) in (Union, UnionType) else (self.type,)

    @property
    def values(self) -> tuple[str, ...]:
        """What the setting takes when it is a choice; () for a free value."""
        return tuple(str(value) for kind in self.kinds if get_origin(kind) is Literal for value in get_args(kind))

    @property
    def may_be_none(self) -> bool:
        return type(None) in self.kinds

    @property
    def kind(self) -> ValueKind:
        """How its values are written."""
        for kind in self.kinds:
            origin = get_origin(kind)
            if origin is Literal:
                return "one-of"
            if origin is dict:
                return "mapping"
            if origin is Annotated and int in get_args(kind):
                return "size"
            if kind in PLAIN_KINDS:
                return PLAIN_KINDS[kind]
        return "text"

    @property
    def opens_a_list(self) -> bool:
        return self.offers is not None or bool(self.choices)

    @property
    def choices(self) -> tuple[str, ...]:
        """What its list offers; a list that is made of what is here is empty at first."""
        return self.offers or self.values or (("off", "on") if bool in self.kinds else ())

    @property
    def flag(self) -> str:
        """The option: "--epochs"."""
        return self.option.partition(" ")[0]


def setting(default: Any, what: str = "", why: str = "", safe: str = "", cost: str = "", **more: Any) -> Any:
    """An entry as the default of a field, with its BOUNDS by their names. Any: the annotation beside it is what mypy reads."""
    bounds = {name: more.pop(name) for name in BOUNDS if name in more}
    return Setting(default=default, what=what, why=why, safe=safe, cost=cost, bounds=bounds, **more)


BOUNDS = ("ge", "gt", "le", "lt", "min_length", "max_length")
