"""The key paths of a RunConfig ("batch.micro_batch_size"): which exist, what type they hold, which is nearest."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from trainwiz.core.config.run import RunConfig
from trainwiz.core.findings import after
from trainwiz.core.language import tr

NOT_SETTABLE: frozenset[str] = frozenset(
    {"schema_version", "profile", "origins", "forced", "model.architecture", "mode.kind"}
)
"""Keys that trainwiz itself fills in; a profile or `--set` cannot."""

NOT_IN_PROFILES: frozenset[str] = frozenset(
    {"name", "mode.overfit_batches", "mode.trace_steps", "mode.dev_steps", "mode.benchmark_steps"}
)
"""Keys that belong to one run, not to a setup."""

ENVIRONMENT = "engine.environment"
"""A mapping whose entries are keys of their own: `engine.environment.NCCL_DEBUG`."""

LIST_KEYS: Mapping[str, str] = {
    "data.sources": "data.sources",
    "data.validation_sources": "data.validation_sources",
}


@cache
def fields() -> Mapping[str, FieldInfo]:
    """Every leaf key path with its field. A list of sections is one leaf ("data.sources")."""
    return dict(_walk(RunConfig, ""))


@cache
def groups() -> frozenset[str]:
    """The key paths of the sections themselves: "batch", "engine", ..."""
    return frozenset(key.rsplit(".", 1)[0] for key in fields() if "." in key)


def _walk(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _walk(annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def alternatives(key: str) -> tuple[Any, ...]:
    """The types that the value at a leaf key may have, `Optional` and unions opened: (int, NoneType)."""
    field = field_at(key)
    if field is None:
        return ()
    annotation = field.annotation
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def literals(key: str) -> tuple[str, ...]:
    """The values that the key takes when it is a choice; () for a free value."""
    return tuple(str(value) for kind in alternatives(key) if get_origin(kind) is Literal for value in get_args(kind))


def is_text_list(key: str) -> bool:
    return any(kind == list[str] for kind in alternatives(key))


def field_at(key: str) -> FieldInfo | None:
    """The field of a leaf key, also of one inside a list of sections ("data.sources.0.name") or of the environment."""
    found = fields().get(key)
    if found is not None:
        return found
    if is_variable(key):
        return FieldInfo(annotation=str, description="An environment variable of the run.")
    for listed in LIST_KEYS:
        index, _, rest = key.removeprefix(f"{listed}.").partition(".")
        if key.startswith(f"{listed}.") and index.isdecimal() and rest:
            return _source_fields().get(rest)
    return None


def is_variable(key: str) -> bool:
    """The key is one environment variable of the run; whether a run may set it is said when its value is checked."""
    return key.removeprefix(f"{ENVIRONMENT}.") not in (key, "") and "." not in key.removeprefix(f"{ENVIRONMENT}.")


@cache
def _source_fields() -> Mapping[str, FieldInfo]:
    from trainwiz.core.config.sections import DataSource

    return dict(DataSource.model_fields)


def is_settable(key: str) -> bool:
    """A user may give this key a value."""
    if key in NOT_SETTABLE:
        return False
    return field_at(key) is not None or key.removeprefix("model.architecture_overrides.") not in (key, "")


def settable_keys() -> list[str]:
    """All plain leaf keys that a user may set, in the order of the sections."""
    return [key for key in fields() if key not in NOT_SETTABLE]


def nearest_keys(key: str, count: int = 3) -> list[str]:
    """The keys that the user may have meant: the same last part first, then similar spelling."""
    known = settable_keys()
    if ".0." in key or key.startswith(tuple(LIST_KEYS)):
        known = known + [f"data.sources.0.{name}" for name in _source_fields()]
    last = key.rsplit(".", 1)[-1].replace("-", "_")
    same = [name for name in known if name.rsplit(".", 1)[-1] == last]
    if same:
        return same[:count]
    for cutoff in (0.8, 0.6):
        spelled = difflib.get_close_matches(key.replace("-", "_"), known, n=count, cutoff=cutoff)
        by_last = {name.rsplit(".", 1)[-1]: name for name in reversed(known)}
        parts = [by_last[part] for part in difflib.get_close_matches(last, by_last, n=count, cutoff=cutoff)]
        if spelled or parts:
            return list(dict.fromkeys([*parts, *spelled]))[:count]
    return []


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections (as a YAML file has them) as key path -> value; unknown keys stay as they are.

    The environment is taken apart too, so that a profile can add a variable to those of the one that it extends.
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        key = f"{prefix}{name}"
        if (key in groups() or key == ENVIRONMENT) and isinstance(value, Mapping):
            flat.update(flatten(value, f"{key}."))
        else:
            flat[key] = value
    return flat


def did_you_mean(names: list[str]) -> str:
    """ " Did you mean a or b?", with its leading space; "" when nothing is near."""
    if not names:
        return ""
    head, last = names[:-1], names[-1]
    if not head:
        return after(tr("Did you mean {name}?", name=last))
    return after(tr("Did you mean {names} or {last}?", names=", ".join(head), last=last))
