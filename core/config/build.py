"""Profile + the user's values -> RunConfig. Values of the user win; each key keeps who chose it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError
from trainwiz.core.config.conflicts import yielding_values
from trainwiz.core.config.keys import is_settable, is_text_list, is_variable
from trainwiz.core.config.refused import expectation, field_path, unknown_key_message
from trainwiz.core.config.run import Origin, OriginKind, RunConfig, set_path
from trainwiz.core.config.yaml_text import load_yaml
from trainwiz.core.errors import UsageError
from trainwiz.core.findings import Finding
from trainwiz.core.language import tr

if TYPE_CHECKING:
    from trainwiz.core.profile.profile import Profile

Where = Callable[[str], str]


def build_config(profile: Profile | None, overrides: Mapping[str, Any], name: str | None = None) -> RunConfig:
    """The request that a plan resolves.

    `overrides` maps key paths to typed values or to strings, which are read as YAML scalars ("4e-4", "null",
    "[a, b]") and taken as text where the field wants text. Raises UsageError with every bad key and value.
    """
    findings: list[Finding] = []
    yours = {**overrides, **({"name": name} if name is not None else {})}
    known = {key: value for key, value in yours.items() if _known(key, findings)}
    start = RunConfig(profile=profile.name, name=profile.name) if profile else RunConfig()
    base = start
    if profile:
        # Of the profiles that ship with trainwiz the reasons are in the catalogue.
        reasons = {key: tr(reason) for key, reason in profile.reasons.items()}
        base = start.with_values(dict(profile.values), "profile", reasons)
    typed, problems = check_values(base, known, lambda key: key)
    findings += problems
    if findings:
        raise UsageError(findings)
    config = _layered(base, profile, typed)
    if config.training.final_learning_rate > config.training.learning_rate:
        message = tr(
            "training.final_learning_rate {final} is above the peak training.learning_rate {peak}; make it smaller.",
            final=f"{config.training.final_learning_rate:g}",
            peak=f"{config.training.learning_rate:g}",
        )
        raise UsageError(Finding("bad_value", "error", "training.final_learning_rate", message))
    return config


def _layered(base: RunConfig, profile: Profile | None, yours: dict[str, Any]) -> RunConfig:
    """The profile's values, what yields to the user's, then the user's; with the origin of each."""
    yielded = yielding_values({key: base.value(key) for key in (profile.values if profile else ())}, yours)
    config = base
    if yielded:
        values = {key: value for key, (value, _) in yielded.items()}
        config = base.with_values(values, "solved", {key: reason for key, (_, reason) in yielded.items()})
        # Left to the plan: what it solves carries its own reason.
        kept = {
            key: origin
            for key, origin in config.origins.items()
            if values.get(key, ...) is not None and yielded.get(key, (0, "-"))[1]
        }
        if "data.sources" in values:
            # Of the new source only the keys that the user named are the user's.
            del kept["data.sources"]
        config = config.model_copy(update={"origins": kept})
    return config.with_values(yours, "you")


def check_values(
    base: RunConfig, values: Mapping[str, Any], where: Where, origin: OriginKind = "you"
) -> tuple[dict[str, Any], list[Finding]]:
    """(typed values, findings): `values` checked together on top of `base`, every problem named with its place."""
    attempt = {key: _first_reading(key, value) for key, value in values.items()}
    errors = _errors(base, attempt, origin)
    for key, value in values.items():
        if isinstance(value, str) and key in errors and attempt[key] != value:
            attempt[key] = value
    errors = _errors(base, attempt, origin)
    good = {key: value for key, value in attempt.items() if key not in errors}
    findings = [_bad_value(key, values[key], error, where(key)) for key, found in errors.items() for error in found]
    if not findings:
        checked = base.with_values(good, origin)
        good = {key: checked.value(key) for key in good}
    return _plain(good), findings


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Sections inside lists as mappings, so that the values are data again."""
    return {
        key: [item.model_dump() if hasattr(item, "model_dump") else item for item in value]
        if isinstance(value, list)
        else value
        for key, value in values.items()
    }


def _errors(base: RunConfig, values: Mapping[str, Any], origin: OriginKind) -> dict[str, list[dict[str, Any]]]:
    """Key of `values` -> what pydantic says about it."""
    document = base.model_dump(mode="python")
    found: dict[str, list[dict[str, Any]]] = {}
    for key, value in values.items():
        try:
            set_path(document, key, value)
        except KeyError:
            found[key] = [{"type": "no_place", "msg": "", "path": key}]
        if not _is_text(value):
            found[key] = [{"type": "string_unicode", "msg": "", "path": key}]
        document["origins"][key] = Origin(origin=origin)
    try:
        RunConfig.model_validate(document)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            path = field_path(detail)
            owners = [key for key in values if path == key or path.startswith(f"{key}.")]
            said = found.setdefault(max(owners, key=len), []) if owners else []
            if path not in [other["path"] for other in said]:
                said.append({**detail, "path": path})
    return found


def _is_text(value: Any) -> bool:
    """No text in it holds bytes that are none, as the name of a file or a column may: no file of a run could say it."""
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _first_reading(key: str, value: Any) -> Any:
    """What a value from the command line means before its field is asked."""
    if is_text_list(key):
        return _text_list(value)
    if not isinstance(value, str) or is_variable(key):
        return value
    if key in ("data.sources", "data.validation_sources") and not value.lstrip().startswith("["):
        return [{"name": value}]
    try:
        parsed = load_yaml(value)
    except yaml.YAMLError:
        return value
    if isinstance(parsed, bool) and value.strip().lower() not in ("true", "false"):
        # A column may be called "no"; fields that want a yes or no accept the word itself.
        return value
    return value if parsed is None and value.strip().lower() not in ("null", "~") else parsed


def _text_list(value: Any) -> Any:
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in ("null", "~"):
            return None
        return [part.strip().strip("'\"") for part in text.strip("[]").split(",") if part.strip()]
    if isinstance(value, list | tuple):
        return [str(item) if isinstance(item, int) else item for item in value]
    return value


def _known(key: str, findings: list[Finding]) -> bool:
    if is_settable(key):
        return True
    findings.append(Finding("unknown_key", "error", key, unknown_key_message(key)))
    return False


def _bad_value(key: str, value: Any, error: Mapping[str, Any], where: str) -> Finding:
    path = str(error.get("path", key))
    place = f"{where}: " if where != key else ""
    if error["type"] == "missing":
        return Finding("bad_value", "error", where, place + tr("{path} is missing.", path=path))
    if error["type"] == "extra_forbidden":
        return Finding("unknown_key", "error", where, f"{place}{unknown_key_message(path)}")
    if is_variable(path) and error["type"] == "value_error":
        # Its value may be a secret.
        return Finding(
            "bad_value",
            "error",
            where,
            place + tr("{path}: {problem}", path=path, problem=expectation(path, value, error)),
        )
    shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
    message = tr(
        "{path} cannot be {value}: {expectation}", path=path, value=shown, expectation=expectation(path, value, error)
    )
    return Finding("bad_value", "error", where, f"{place}{message}")
