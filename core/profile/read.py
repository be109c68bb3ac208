"""Reads a profile file, and says everything that is wrong with it or with all profiles, each mistake with its line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from trainwiz.core.catalog.gpus import load_gpus, near_gpus
from trainwiz.core.catalog.models import known_model, resolve_model
from trainwiz.core.config.build import build_config, check_values
from trainwiz.core.config.keys import NOT_IN_PROFILES, NOT_SETTABLE, did_you_mean, flatten, is_settable
from trainwiz.core.config.run import RunConfig
from trainwiz.core.config.settings import SECTIONS
from trainwiz.core.config.values import Check
from trainwiz.core.config.yaml_text import YamlDocument, read_yaml, refused, unknown_key
from trainwiz.core.defaults import NO_PROFILE
from trainwiz.core.errors import Finding, TrainwizError, UsageError
from trainwiz.core.language import mark, tr
from trainwiz.core.profile.profile import Profile, parse_size
from trainwiz.core.profile.store import builtin_folder, find_profile_file, load_profile, profile_files, user_folder


def _as_size(value: Any) -> int:
    size = parse_size(value)
    if size is None:
        raise ValueError(tr("must be a size. Example: 64G"))
    return size


Count = Annotated[int, Field(ge=1, strict=True)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)


class HardwareKeys(_Part):
    """What the file says of the machine; the rest is as in what it extends."""

    gpu: str | None = None
    num_gpus: Count | None = None
    ram_bytes: Annotated[int, Check(_as_size, is_first=True)] | None = Field(None, alias="ram")
    cpu_cores: Count | None = None


class ProfileKeys(_Part):
    """What a file says, not yet merged with what it extends. Settings are checked as those of a run are."""

    model_config = ConfigDict(title="trainwiz profile")

    name: str = ""
    description: str = ""
    extends: str | None = None
    hardware: HardwareKeys = HardwareKeys()
    values: dict[str, Any] = {}
    reasons: dict[str, Any] = {}
    claims: dict[str, Any] = {}


def profile_schema() -> dict[str, Any]:
    """The JSON schema of a profile file, for editors: its `values` are the settings that can stand in one."""
    schema, profile = RunConfig.model_json_schema(), ProfileKeys.model_json_schema()
    settings = schema["properties"]
    for key in (*NOT_SETTABLE, *NOT_IN_PROFILES, "origins", "forced"):
        section, _, name = key.rpartition(".")
        properties = schema["$defs"][SECTIONS[section].__name__]["properties"] if section else settings
        del properties[name]
    profile["properties"]["values"] = {"type": "object", "properties": settings, "additionalProperties": False}
    profile["$defs"] |= schema["$defs"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **profile}


def name_problem(name: str) -> str:
    """Why no profile can be called so; empty where one can."""
    with suppress(ValueError):
        if RunConfig(name=name).name.lower() != NO_PROFILE and not name.endswith((".yaml", ".yml")):
            return ""
    return tr(
        "{name} is not a valid profile name: use letters, digits, '-', '_' and '.', without .yaml; `none` means no profile.",
        name=repr(name),
    )


def read_profile_file(path: Path) -> tuple[YamlDocument, ProfileKeys]:
    """Read one file; `values` and `reasons` by their key paths. Raises UsageError with every unknown key and bad value,
    each with its line."""
    document = read_yaml(path)
    given = {key: value for key, value in document.values.items() if value is not None}
    if "origins" in given:
        message = tr(
            "{file} is of a run, not a profile. Save its settings as one: trainwiz profiles save NAME OPTIONS",
            file=path,
        )
        raise UsageError([Finding("bad_value", "error", "origins", message)])
    strays = [key for key in given if (key in SECTIONS or is_settable(key)) and key not in ProfileKeys.model_fields]
    findings = [*_wrong_names(given.get("name"), path), *_misplaced(strays)]
    try:
        keys = ProfileKeys.model_validate({key: value for key, value in given.items() if key not in strays})
    except ValidationError as error:
        keys = ProfileKeys()
        findings += [_wrong_key(detail) for detail in error.errors(include_url=False)]
    values, reasons = _flat(given.get("values")), _flat(given.get("reasons"))
    findings += _wrong_settings(values, reasons)
    typed, problems = check_values(RunConfig(), {key: values[key] for key in values if key not in NOT_IN_PROFILES})
    findings += [replace(one, where=f"values.{one.where}") for one in problems]
    if findings:
        raise UsageError(_placed(document.where(one.where), one) for one in findings)
    return document, keys.model_copy(update={"values": typed, "reasons": reasons})


def _flat(section: Any) -> dict[str, Any]:
    return flatten(section) if isinstance(section, dict) else {}


def _placed(place: str, finding: Finding) -> Finding:
    return replace(finding, where=place, message=f"{place}: {finding.message}")


def _wrong_key(detail: Mapping[str, Any]) -> Finding:
    """Of one of the keys above the settings."""
    key = ".".join(map(str, detail["loc"]))
    if detail["type"] != "extra_forbidden":
        return refused(key, detail)
    known = (HardwareKeys if "." in key else ProfileKeys).model_json_schema()["properties"]
    near = difflib.get_close_matches(key.rpartition(".")[2], known, n=1, cutoff=0.5)
    return Finding("unknown_key", "error", key, tr("`{key}` is not a key of a profile.", key=key) + did_you_mean(near))


def _misplaced(strays: list[str]) -> Iterator[Finding]:
    if strays:
        message = tr("settings belong under `values:`. Move there: {keys}.", keys=", ".join(strays))
        yield Finding("unknown_key", "error", strays[0], message)


def _wrong_names(given: Any, path: Path) -> Iterator[Finding]:
    if given not in (None, path.stem):
        message = tr("`name: {name}` must match the file name {file}.", name=given, file=path.name)
        yield Finding("bad_value", "error", "name", message)
    if problem := name_problem(path.stem):
        yield Finding("bad_value", "error", "name", problem)


def _wrong_settings(values: Mapping[str, Any], reasons: Mapping[str, Any]) -> Iterator[Finding]:
    """What `check_values` does not know of: settings of one run, and the reasons."""
    for key in values:
        if key in NOT_IN_PROFILES:
            yield of_one_run(key, f"values.{key}")
    for key, reason in reasons.items():
        if not is_settable(key):
            yield replace(unknown_key(key), where=f"reasons.{key}")
        elif not isinstance(reason, str):
            message = tr("the reason for `{key}` must be a sentence.", key=key)
            yield Finding("bad_value", "error", f"reasons.{key}", message)


def of_one_run(name: str, where: str) -> Finding:
    """For a key or an option that a profile cannot hold."""
    return Finding(
        "bad_value", "error", where, tr("{option} belongs to one run; it is not allowed in a profile.", option=name)
    )


# Everything that is wrong with profiles, at once.


def validate_profiles(paths: Iterable[str | Path] = ()) -> list[Finding]:
    """Everything that is wrong with these files, or with all profiles when none is given."""
    targets = [str(path) for path in paths]
    findings = [finding for name in targets or profile_files() for finding in _validate(name)]
    for path in () if targets else sorted(user_folder().glob("*.y*ml")):
        if profile_files()[path.stem].parent == builtin_folder():
            words = mark("{path}: {stem} is the name of a built-in profile, which is used instead; rename this file.")
            findings.append(Finding("name_taken", "error", str(path), tr(words, path=path, stem=repr(path.stem))))
    return findings


def _validate(name: str) -> list[Finding]:
    """With the line of each key, of the nearest one above it that the file has, or of what the file extends."""
    try:
        document, _ = find_profile_file(name)
        profile = load_profile(name)
    except TrainwizError as error:
        return list(error.findings)
    places = ((document.where(one.where), one) for one in _of_whole(profile))
    extends = document.where("extends")
    return [_placed(extends if place == str(document.path) else place, one) for place, one in places]


def _of_whole(profile: Profile) -> Iterator[Finding]:
    """What is wrong with a profile whose values, each for itself, are right."""
    gpu = profile.hardware.gpu
    if gpu is not None and gpu not in load_gpus():
        message = tr("the GPU {gpu} is not in the catalog.", gpu=repr(gpu)) + did_you_mean(near_gpus(gpu))
        yield Finding("unknown_gpu", "error", "hardware.gpu", message)
    try:
        section = build_config(profile, {}).model
    except TrainwizError as error:
        yield from (replace(one, where=f"values.{one.where}") for one in error.findings)
        return
    if not known_model(section.name):
        message = tr(
            "{name} is not in the model catalog, not a Hub ID (owner/name), and not a folder on this machine.",
            name=repr(section.name),
        )
        yield Finding("missing_model", "error", "values.model.name", message)
    # Weights that are not here are no mistake of the profile: a download brings them.
    for one in resolve_model(section)[1]:
        if one.where.startswith("model.architecture_overrides"):
            yield replace(one, where=f"values.{one.where}")
