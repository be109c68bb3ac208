"""The folders and files that a training's command line names for its output."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainwiz.core.json_text import parse_json
from trainwiz.core.small_file import read_small
from trainwiz.core.telemetry.paths import at_home

_OUTPUT = re.compile(
    r"(.*[._-])?(output[_-]?(dir|path|folder)|out[_-]?dir|logging[_-]?dir|log[_-]?dir|logdir|tensorboard[_-]?(log[_-]?)?dir"
    r"|default[_-]root[_-]dir|project[_-]dir|save[_-]?dir|exp(eriment)?[_-]?dir|run[_-]?dir|model[_-]dir|work[_-]?dir)",
    re.IGNORECASE,
)
_CONFIG = (".json", ".yaml", ".yml")
LARGEST_CONFIG_BYTES = 256 * 1024
DEEPEST_KEY = 3


def output_paths(command: Sequence[str], cwd: Path) -> list[Path]:
    """Named by options (`--output_dir X`, `train.output_dir=X`) or in a config file among the words; none twice.

    Whether they exist is not asked.
    """
    named = [*_from_options(command), *_from_configs(command, cwd)]
    return list(dict.fromkeys(cwd / at_home(Path(text)) for text in named if text and "\0" not in text))


def _from_options(command: Sequence[str]) -> Iterator[str]:
    for word, after in itertools.zip_longest(command, command[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if not _OUTPUT.fullmatch(name.lstrip("-+")):
            continue
        if equals:
            yield value
        elif word.startswith("--") and not after.startswith("--"):
            yield after


def _from_configs(command: Sequence[str], cwd: Path) -> Iterator[str]:
    for word in command[1:]:
        text = word.partition("=")[2] or word
        if text.lower().endswith(_CONFIG):
            yield from _named_in(_load(cwd / text), DEEPEST_KEY)


def _load(path: Path) -> Any:
    """The document of a config file; None for anything that is none."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_CONFIG_BYTES:
            return None
        text = read_small(path).decode()
        if path.suffix.lower() == ".json":
            return parse_json(text)
        import yaml
        from trainwiz.core.config.yaml_text import load_yaml
    except (OSError, ValueError):
        return None
    try:
        return load_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _named_in(document: Any, depth: int) -> Iterator[str]:
    if not isinstance(document, Mapping) or depth == 0:
        return
    for key, value in document.items():
        if isinstance(value, str) and _OUTPUT.fullmatch(str(key)):
            yield value
        else:
            yield from _named_in(value, depth - 1)
