"""Values of foreign files, read as their programs read them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from trainwiz.core.config.values import Attention
from trainwiz.core.importing.engine_names import PRECISIONS
from trainwiz.core.importing.names import LOADED, OFF
from trainwiz.core.language import mark
from trainwiz.core.text import plain_text

Value = TypeVar("Value")

LARGEST_COUNT = 2.0**64
LONGEST_SHOWN = 60
LONGEST_TIMEOUT_S = 1_000_000
"""The most that engine.process_timeout_s takes."""
YES, NO = frozenset({"true", "yes", "y", "t", "1", "on"}), frozenset({"false", "no", "n", "f", "0", "off"})
"""Of `transformers.hf_argparser.string_to_bool`, and YAML's own two."""
NOTHING = frozenset({"", "none", "null", "~"})
CHOSEN = mark("The plan chooses the attention kernel.")
LANGUAGE_TOKEN = re.compile(r"[a-z]{2,3}_[A-Z][A-Za-z]{1,3}")
MEMBER = re.compile(r"<?(?P<member>(?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*)(?:: '(?P<value>[^']*)'>)?")
"""A member of an enumeration as printed: IntervalStrategy.STEPS, or <IntervalStrategy.STEPS: 'steps'>."""
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
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None


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
    member = MEMBER.fullmatch(text)
    if member is None:
        return text
    kind, _, name = member["member"].rpartition(".")
    if member["value"] is not None:
        return member["value"]
    return name.lower() if kind.endswith(ENUMERATIONS) else text


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


def _positive(reason: str) -> Callable[[Any], int]:
    """A count; less than 1 sets nothing."""

    def convert(value: Any) -> int:
        number = whole_number(value)
        if number < 1:
            raise LeftOut(reason)
        return number

    return convert


def _if_on(set_to: str, reason: str = OFF) -> Callable[[Any], str]:
    """A switch that decides something where it is on."""

    def convert(value: Any) -> str:
        if not yes_or_no(value):
            raise LeftOut(reason)
        return set_to

    return convert


def _choice(choices: Mapping[str, Any], reason: str = "") -> Callable[[Any], Any]:
    """One of some words; of all others it is said why they are left out, where there is a reason."""

    def convert(value: Any) -> Any:
        if word(value) in choices:
            return choices[word(value)]
        raise LeftOut(reason) if reason else WrongValue

    return convert


_attention = _choice({name: name for name in get_args(Attention)} | {"fa2": "flash_attention_2"}, CHOSEN)


def _flash_attention(value: Any) -> str:
    """A switch, or the name of a kernel."""
    is_switch = str(value).strip().lower() in YES | NO
    return _if_on("flash_attention_2")(value) if is_switch else str(_attention(value))


def _timeout(value: Any) -> int:
    """Seconds; LLaMA-Factory's examples have 180000000, which is 5.7 years."""
    seconds = whole_number(value)
    if seconds > LONGEST_TIMEOUT_S:
        raise LeftOut(mark("It means to wait forever; a run gives up on processes that do not respond."))
    return seconds


def _reporters(value: Any) -> list[str]:
    names = ["all"] if value is None else text_list(value)
    if names == ["all"]:
        raise LeftOut(mark("`all` means everything that is installed; list the reporters with --report-to."))
    return names or ["none"]


def _language(value: Any) -> str:
    name = text_value(value)
    if not LANGUAGE_TOKEN.fullmatch(name):
        raise LeftOut(mark("Only multilingual tokenizers use a language, written like zho_Hans or en_XX."))
    return name


CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "count": whole_number,
    "number": decimal_number,
    "yes": yes_or_no,
    "no": lambda value: not yes_or_no(value),
    "limit": _positive(mark("It sets no limit.")),
    "if positive": _positive(OFF),
    "threads": _positive(mark("0 leaves it to the plan.")),
    "timeout": _timeout,
    "by length": _choice({"random": False, "group_by_length": True}, LOADED),
    "metric": lambda value: f"eval_{text_value(value).removeprefix('eval_')}",
    "reporters": _reporters,
    "precision": _choice(PRECISIONS),
    "weights in bf16": _if_on("bf16-true"),
    "8-bit adam": _if_on("adamw_bnb_8bit"),
    "cpu": _if_on("cpu", mark("If it is off, the available device is used.")),
    "offload": _if_on("all", mark("The parameters stay on the GPU, which is the default.")),
    "best": lambda value: "best" if yes_or_no(value) else "last",
    "answers": lambda value: "answers" if yes_or_no(value) else "everything",
    "everything": lambda value: "everything" if yes_or_no(value) else "answers",
    "last answer": _if_on("last_answer"),
    "adapters": lambda value: "lora" if yes_or_no(value) else "none",
    "attention": _attention,
    "flash attention": _flash_attention,
    "language": _language,
    "sources": lambda value: [{"name": name} for name in source_names(value)],
}
"""What names.Rule calls a conversion. Each raises WrongValue or LeftOut."""
