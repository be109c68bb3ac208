"""Values of foreign files, read as their programs read them."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from trainwiz.core.config.values import Attention
from trainwiz.core.language import mark
from trainwiz.core.text import plain_text

Value = TypeVar("Value")
Convert = Callable[[Any], Any]
"""What makes a value of a run from one of a text. Raises WrongValue or LeftOut."""
OFF = mark("It is off, as in a trainwiz run.")

LARGEST_COUNT = 2.0**64
LONGEST_SHOWN = 60
LONGEST_TIMEOUT_S = 1_000_000
"""The most that engine.process_timeout_s takes; LLaMA-Factory's examples have 180000000, which is 5.7 years."""
YES, NO = frozenset({"true", "yes", "y", "t", "1", "on"}), frozenset({"false", "no", "n", "f", "0", "off"})
"""Of `transformers.hf_argparser.string_to_bool`, and YAML's own two."""
NOTHING = frozenset({"", "none", "null", "~"})
LANGUAGE_TOKEN = re.compile(r"[a-z]{2,3}_[A-Z][A-Za-z]{1,3}")
ENUMERATIONS = ("Strategy", "SchedulerType", "OptimizerNames", "DebugOption", "TaskType", "FSDPOption")
"""Ends of the names of the enumerations whose members are written for their values."""


class WrongValue(ValueError):
    """A value that its setting cannot have; the report tells which one and where."""


class LeftOut(Exception):
    """A value that is fine and has no place; the argument is the reason, a marked sentence."""


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A value that cannot be known without running something: `text` is how it is written ("$LR", "args.lr")."""

    text: str


def is_nothing(value: Any) -> bool:
    """None, or text that says none."""
    return value is None or (isinstance(value, str) and value.strip().lower() in NOTHING)


def is_auto(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() == "auto"


def shown(value: Any) -> str:
    """A foreign value inside a sentence: one line, as JSON writes it, not too long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return plain_text(text, LONGEST_SHOWN)


def attempt(convert: Callable[[Any], Value], value: Any) -> Value | None:
    """None for what is not set, not known, or wrong."""
    if isinstance(value, Unresolved) or is_nothing(value):
        return None
    try:
        return convert(value)
    except (WrongValue, LeftOut):
        return None


def decimal_number(value: Any) -> float:
    """2e-5, "2e-5" (YAML reads 2e-5 as text), 3; raises WrongValue."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise WrongValue
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise WrongValue from None
    if number - number != 0:
        raise WrongValue
    return number


def whole_number(value: Any) -> int:
    """8, "8", 8.0, "1_000"; raises WrongValue."""
    number = decimal_number(value)
    if abs(number) >= LARGEST_COUNT or number != int(number):
        raise WrongValue
    return int(number)


def count_of(value: Any) -> int | None:
    """A count of 1 or more, also as text ("8"); None for all else."""
    count = attempt(whole_number, value)
    return count if count is not None and count >= 1 else None


def yes_or_no(value: Any) -> bool:
    """True, "true", "yes", 1, ...; raises WrongValue."""
    text = str(value).strip().lower()
    if text not in YES | NO:
        raise WrongValue
    return text in YES


def text_value(value: Any) -> str:
    """Text as it is; a member of an enumeration as its value. Raises WrongValue for lists and mappings."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise WrongValue
    text = str(value).strip()
    kind, _, name = text.rpartition(".")
    return name.lower() if kind.endswith(ENUMERATIONS) else text


def template_file(value: Any) -> str:
    """A file of Jinja; raises WrongValue for the model whose template is meant."""
    path = text_value(value)
    if not path.endswith(".jinja"):
        raise WrongValue
    return path


def word(value: Any) -> str:
    return text_value(value).lower()


def text_list(value: Any) -> list[str]:
    """A list of texts; one text is split at commas and spaces. Raises WrongValue."""
    if isinstance(value, list | tuple):
        return [text_value(item) for item in value]
    return [part for part in re.split(r"[,\s]+", text_value(value)) if part]


def name_value(value: Any) -> str:
    """A text without spaces: the name of a model, of a column."""
    name = text_value(value)
    if not name or any(letter.isspace() for letter in name):
        raise WrongValue
    return name


def gpu_list(value: Any) -> list[str]:
    """The GPUs of `gpu_ids` or CUDA_VISIBLE_DEVICES ("0,2"); [] where all are meant."""
    if isinstance(value, list):
        return [str(item).strip() for item in value]
    if value is None or isinstance(value, bool) or str(value).strip().lower() in ("", "all"):
        return []
    return [part.strip() for part in str(value).split(",") if part.strip()]


def dtype_name(value: Any) -> str:
    """ "bfloat16" for "torch.bfloat16", "bf16" and "bfloat16"."""
    name = text_value(value).rpartition(".")[2].lower()
    return {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32"}.get(
        name, name
    )


def source_names(value: Any) -> list[str]:
    """The data sets of one setting: a name, a list, "a,b", or a mapping of names to shares (dataset_mixer)."""
    if isinstance(value, Mapping):
        if not all(isinstance(share, int | float) for share in value.values()):
            raise WrongValue
        return [text_value(name) for name in value]
    if isinstance(value, list | tuple):
        names = [item.get("path", item.get("id")) if isinstance(item, Mapping) else item for item in value]
        return [text_value(name) for name in names]
    names = [name for name in re.split(r"\s*,\s*", text_value(value)) if name]
    if not names:
        raise WrongValue
    return names


def only(convert: Convert, holds: Callable[[Any], Any], reason: str, set_to: Any = ...) -> Convert:
    """What `convert` makes, or `set_to`, where it holds; else left out."""

    def converted(value: Any) -> Any:
        made = convert(value)
        if not holds(made):
            raise LeftOut(reason)
        return made if set_to is ... else set_to

    return converted


def positive(reason: str) -> Convert:
    return only(whole_number, lambda number: number >= 1, reason)


def if_on(set_to: Any, reason: str = OFF) -> Convert:
    return only(yes_or_no, bool, reason, set_to)


def choice(choices: Mapping[str, Any], reason: str = "") -> Convert:
    """One of some words; of all others it is said why they are left out, where there is a reason."""

    def convert(value: Any) -> Any:
        if word(value) in choices:
            return choices[word(value)]
        raise LeftOut(reason) if reason else WrongValue

    return convert


def either(on: Any, off: Any) -> Convert:
    return lambda value: on if yes_or_no(value) else off


language = only(
    text_value,
    LANGUAGE_TOKEN.fullmatch,
    mark("Only multilingual tokenizers use a language, written like zho_Hans or en_XX."),
)
attention = choice(
    {name: name for name in get_args(Attention)} | {"fa2": "flash_attention_2"},
    mark("The plan chooses the attention kernel."),
)
timeout = only(
    whole_number,
    lambda seconds: seconds <= LONGEST_TIMEOUT_S,
    mark("It means to wait forever; a run gives up on processes that do not respond."),
)


def flash_attention(value: Any) -> Any:
    """A switch, or the name of a kernel."""
    return (if_on("flash_attention_2") if str(value).strip().lower() in YES | NO else attention)(value)


def reporters(value: Any) -> list[str]:
    names = ["all"] if value is None else text_list(value)
    if names == ["all"]:
        raise LeftOut(mark("`all` means everything that is installed; list the reporters with --report-to."))
    return names or ["none"]


MOST_STEPS = 5_000
"""Expressions read for one value: no script that people write has as many."""
MODULES_OF_CONSTANTS = ("torch.", "np.", "numpy.")
"""Their attributes (torch.bfloat16) are written for what they are."""


class Unknowable(Exception):
    """Running the source is the only way to know the value."""


class Script:
    """A parsed script: the constants that its names stand for, what is set one by one, its calls in their order."""

    def __init__(self, tree: ast.Module) -> None:
        nodes = list(ast.walk(tree))
        # A name that is bound twice, or by something else than a plain assignment, is none.
        often = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        often.update(node.arg for node in nodes if isinstance(node, ast.arg))
        self.bound: dict[str, ast.expr] = {}
        self.changed: dict[str, ast.expr] = {}
        """What is put into something: args.key = value, SETTINGS["key"] = value."""
        for node in nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name) and often[target.id] == 1:
                        self.bound[target.id] = node.value
                    key = target.attr if isinstance(target, ast.Attribute) else None
                    key = getattr(target.slice, "value", None) if isinstance(target, ast.Subscript) else key
                    if isinstance(key, str):
                        self.changed[key] = node.value
        calls = (node for node in nodes if isinstance(node, ast.Call))
        self.calls = sorted(calls, key=lambda call: (call.lineno, call.col_offset))
        self.steps = 0

    def value(self, node: ast.expr) -> Any:
        """The value, as far as it can be read without running anything, or Unresolved with the source text."""
        self.steps = 0
        return self._known(node)

    def _known(self, node: ast.expr) -> Any:
        try:
            return self._value(node)
        except (Unknowable, TypeError, RecursionError):
            return Unresolved(source(node))

    def _value(self, node: ast.expr) -> Any:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Unknowable
        match node:
            case ast.Constant(value=value) if isinstance(value, str | int | float | bool | None):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._value(operand)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._value(item) for item in items]
            case ast.Dict(keys=keys, values=values):
                return self._mapping(zip(keys, values, strict=True))
            case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
                return self._mapping((one.arg and ast.Constant(one.arg), one.value) for one in keywords)
            case ast.Name() | ast.Attribute():
                path = dotted(node)
                if path in self.bound:
                    return self._value(self.bound[path])
                if path.startswith(MODULES_OF_CONSTANTS) or path.rpartition(".")[0].endswith(ENUMERATIONS):
                    return path
        raise Unknowable

    def _mapping(self, items: Iterable[tuple[Any, ast.expr]]) -> dict[str, Any]:
        """Values that cannot be known stay in their places: one of them does not hide the others."""
        found: dict[str, Any] = {}
        for key, value in items:
            found |= self._value(value) if key is None else {str(self._value(key)): self._known(value)}
        return found


def dotted(node: ast.expr) -> str:
    """ "a.b.c" for a chain of attributes on a name; "" for all else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def source(node: ast.expr) -> str:
    """The source of an expression on one line."""
    try:
        return plain_text(" ".join(ast.unparse(node).split()), 80)
    except (ValueError, RecursionError):
        return "..."
