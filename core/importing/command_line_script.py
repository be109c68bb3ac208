"""The arguments behind a script's name -> settings, without the script."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from trainwiz.core.importing.report import Collector
from trainwiz.core.importing.shell_words import Word
from trainwiz.core.importing.training_arguments_engine import NAMES_A_FILE
from trainwiz.core.importing.training_arguments_names import is_argument
from trainwiz.core.importing.training_arguments_setting import Setting, Unresolved

NUMBER = re.compile(r"-(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
SETTINGS_FILE = re.compile(r".*\.(?:ya?ml|json)", re.IGNORECASE)
FILE_OPTIONS = frozenset({"config", "config_file", "config_path", "cfg", "c", "args_file", "recipe", "training_config"})
"""Options that name a file of arguments."""
ASSIGNED = re.compile(r"(?P<name>\+{0,2}[A-Za-z_][\w.]*)=(?P<value>.*)", re.DOTALL)
"""Hydra's way: learning_rate=1e-4."""


def read_arguments(words: Sequence[Word], collector: Collector) -> list[Setting]:
    """The settings of a script's arguments. Files of arguments are noted as references, and what is neither option nor
    value as unknown."""
    settings: list[Setting] = []
    for option, values in _options(words):
        if option is None:
            _positional(values[0], settings, collector)
            continue
        written, equals, inline = option.text.partition("=")
        name = written.lstrip("-").replace("-", "_")
        if equals:
            values = [Word(inline, option.line, option.known), *values]
        if not option.known and not equals:
            collector.unknown(option.text, option.text, option.line)
            continue
        setting = Setting(name, _value(values), option.line, written.lstrip("-"))
        if name in FILE_OPTIONS and len(values) == 1 and SETTINGS_FILE.fullmatch(values[0].text):
            _refer(setting.written, values[0], collector)
        else:
            settings.append(_switched_off(setting))
    return settings


def _options(words: Sequence[Word]) -> list[tuple[Word | None, list[Word]]]:
    """(option, its values), and (None, [word]) for what stands before all options. An option whose value is behind
    "=" has no others: what follows it stands for itself."""
    found: list[tuple[Word | None, list[Word]]] = []
    for word in words:
        if word.text == "--":
            continue
        if _is_option(word):
            found.append((word, []))
        elif found and _takes(found[-1], word):
            found[-1][1].append(word)
        else:
            found.append((None, [word]))
    return found


def _is_option(word: Word) -> bool:
    return len(word.text) > 1 and word.text.startswith("-") and not NUMBER.fullmatch(word.text)


def _is_loose(word: Word) -> bool:
    """All further arguments in a variable: "$@", $EXTRA_ARGS."""
    return not word.known and bool(re.fullmatch(r"\$[@*]|\$\{?\w*(?:ARGS|OPTS|OPTIONS)\w*(?:\[@\])?\}?", word.text))


def _takes(option: tuple[Word | None, list[Word]], word: Word) -> bool:
    """The word is a value of the option before it; behind the first one NAME=VALUE stands for itself."""
    name, values = option
    if name is None or "=" in name.text or _is_loose(word):
        return False
    return not values or ASSIGNED.fullmatch(word.text) is None


def _value(values: Sequence[Word]) -> Any:
    if not values:
        return True
    if any(not value.known for value in values):
        return Unresolved(" ".join(value.text for value in values))
    return values[0].text if len(values) == 1 else [value.text for value in values]


def _switched_off(setting: Setting) -> Setting:
    """HfArgumentParser has --no_NAME for what is on by default."""
    name = setting.name.removeprefix("no_")
    if name != setting.name and setting.value is True and not is_argument(setting.name) and is_argument(name):
        return Setting(name, False, setting.line, setting.written)
    return setting


def _positional(word: Word, settings: list[Setting], collector: Collector) -> None:
    assigned = ASSIGNED.fullmatch(word.text)
    if SETTINGS_FILE.fullmatch(word.text) and assigned is None:
        _refer(word.text, word, collector)
    elif assigned is not None:
        name = assigned["name"].lstrip("+")
        value: Any = assigned["value"] if word.known else Unresolved(assigned["value"])
        settings.append(Setting(name, value, word.line, name))
    else:
        collector.unknown(word.text, None if word.known else word.text, word.line)


def _refer(name: str, word: Word, collector: Collector) -> None:
    if word.known:
        collector.refer("arguments", word.text, word.line)
        collector.drop(name, word.text, NAMES_A_FILE, word.line)
    else:
        collector.unknown(name, word.text, word.line)
