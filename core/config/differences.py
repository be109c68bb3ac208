"""In what two resolved runs differ: key paths with both values, and who chose the second one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainwiz.core.config.keys import fields
from trainwiz.core.config.run import Origin, RunConfig

NOT_COMPARED = frozenset({"schema_version", "profile", "name", "origins", "forced", "model.architecture"})
"""What names one run, or follows from model.name."""


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """One value that differs. None: there is no such value."""

    key: str
    theirs: Any
    yours: Any
    chosen_by: Origin
    """Who chose `yours`: "you", or what followed from your choices."""


def config_differences(theirs: RunConfig, yours: RunConfig) -> tuple[ConfigDifference, ...]:
    """Every value of `yours` that is another one in `theirs`: the user's own first, then in the order of the config."""
    found = []
    for key in fields():
        if key not in NOT_COMPARED:
            for path, one, other in _leaves(key, _plain(theirs.value(key)), _plain(yours.value(key))):
                found.append(ConfigDifference(path, one, other, _origin(yours, path)))
    return tuple(sorted(found, key=lambda difference: difference.chosen_by.origin != "you"))


def _leaves(key: str, theirs: Any, yours: Any) -> Iterator[tuple[str, Any, Any]]:
    """The differing values below a key: entries of mappings, and of lists of mappings of the same length."""
    if theirs == yours:
        return
    if isinstance(theirs, Mapping) and isinstance(yours, Mapping):
        for name in dict.fromkeys([*theirs, *yours]):
            yield from _leaves(f"{key}.{name}", theirs.get(name), yours.get(name))
    elif _are_sections(theirs) and _are_sections(yours) and len(theirs) == len(yours):
        for index, (one, other) in enumerate(zip(theirs, yours, strict=True)):
            yield from _leaves(f"{key}.{index}", one, other)
    else:
        yield key, theirs, yours


def _are_sections(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [item.model_dump() if hasattr(item, "model_dump") else item for item in value]
    return value


def _origin(config: RunConfig, key: str) -> Origin:
    """Of the key, else of the mapping or list that holds it."""
    while key not in config.origins and "." in key:
        key = key.rpartition(".")[0]
    return config.origin(key)
