"""Reads a profile file, and says everything that is wrong with it or with all profiles, each mistake with its line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from trainwiz.core.catalog.gpus import load_gpus, near_gpus
from trainwiz.core.catalog.model_config import known_targets, unknown_targets
from trainwiz.core.catalog.models import known_model, resolve_model
from trainwiz.core.config.build import build_config, check_values
from trainwiz.core.config.keys import NOT_IN_PROFILES, NOT_SETTABLE, did_you_mean, flatten, is_settable
from trainwiz.core.config.run import RunConfig
from trainwiz.core.config.settings import SECTIONS
from trainwiz.core.config.values import CLASSIFIES, Check
from trainwiz.core.config.yaml_text import YamlDocument, expectation, read_yaml, unknown_key_message
from trainwiz.core.errors import Finding, TrainwizError, UsageError
from trainwiz.core.language import mark, tr
from trainwiz.core.profile.profile import parse_size
from trainwiz.core.profile.store import builtin_folder, find_profile_file, load_as_written, profile_files, user_folder


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
    hardware: HardwareKeys = Field(default_factory=HardwareKeys)
    values: dict[str, Any] = Field(default_factory=dict)
    reasons: dict[str, Any] = Field(default_factory=dict)
    claims: dict[str, Any] = Field(default_factory=dict)
    variants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """One file, read and checked."""

    document: YamlDocument
    origin: Literal["builtin", "user"]
    keys: ProfileKeys
    """`values` and `reasons` by their key paths; `claims` of guides, which ship with trainwiz and are checked by its tests."""

    @property
    def path(self) -> Path:
        return self.document.path

    def where(self, key: str) -> str:
        """FILE:LINE of the key, of the nearest one above it that the file has, or of what it extends."""
        place = self.document.where(key)
        return place if place != str(self.path) else self.document.where("extends")


def profile_schema() -> dict[str, Any]:
    """The JSON schema of a profile file, for editors: its `values` are the settings that can stand in one."""
    schema, profile = RunConfig.model_json_schema(), ProfileKeys.model_json_schema()
    settings = {name: entry for name, entry in schema["properties"].items() if name not in ("origins", "forced")}
    for key in (*NOT_SETTABLE, *NOT_IN_PROFILES):
        section, _, name = key.rpartition(".")
        place = schema["$defs"][SECTIONS[section].__name__]["properties"] if section else settings
        del place[name]
    profile["properties"]["values"] = {"type": "object", "properties": settings, "additionalProperties": False}
    profile["$defs"] |= {name: part for name, part in schema["$defs"].items() if name != "Origin"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **profile}


def name_problem(name: str) -> str:
    """Why no profile can be called so; empty where one can."""
    try:
        RunConfig(name=name)
    except ValueError:
        return tr("{name} is not a valid profile name: use letters, digits, '-', '_' and '.'.", name=repr(name))
    return ""


class _Reader:
    """Takes one document apart and collects what is wrong with it."""

    def __init__(self, document: YamlDocument) -> None:
        self.document = document
        self.findings: list[Finding] = []

    def read(self, origin: Literal["builtin", "user"]) -> ProfileFile:
        given = self.keys()
        self.name(given.name)
        flat = {"values": self.values(given.values), "reasons": self.reasons(given.reasons)}
        if self.findings:
            raise UsageError(self.findings)
        claims = given.claims if origin == "builtin" else {}
        return ProfileFile(self.document, origin, given.model_copy(update={**flat, "claims": claims}))

    def wrong(self, key: str, message: str, code: str = "bad_value") -> None:
        where = self.document.where(key)
        self.findings.append(Finding(code, "error", where, f"{where}: {message}"))

    def keys(self) -> ProfileKeys:
        """Those that are right, where some are wrong."""
        given = {key: value for key, value in self.document.values.items() if value is not None}
        try:
            return ProfileKeys.model_validate(given)
        except ValidationError as error:
            details = error.errors(include_url=False)
        for detail in details:
            key = ".".join(map(str, detail["loc"]))
            if detail["type"] == "extra_forbidden":
                part = HardwareKeys if "." in key else ProfileKeys
                known = part.model_json_schema()["properties"]
                near = difflib.get_close_matches(key.rpartition(".")[2], known, n=1, cutoff=0.5)
                self.wrong(key, tr("`{key}` is not a key of a profile.", key=key) + did_you_mean(near), "unknown_key")
            else:
                problem = expectation(key, detail["input"], detail)
                self.wrong(key, tr("`{key}`: {problem}", key=key, problem=problem))
        broken = {detail["loc"][0] for detail in details}
        return ProfileKeys.model_validate({key: value for key, value in given.items() if key not in broken})

    def name(self, given: str) -> None:
        stem = self.document.path.stem
        if given not in ("", stem):
            message = tr("`name: {name}` must match the file name {file}.", name=given, file=self.document.path.name)
            self.wrong("name", message)
        if problem := name_problem(stem):
            self.wrong("name", problem)

    def values(self, given: dict[str, Any]) -> dict[str, Any]:
        known: dict[str, Any] = {}
        for key, value in flatten(given).items():
            if key in NOT_IN_PROFILES:
                self.wrong(
                    f"values.{key}",
                    tr("`{key}` belongs to one run; it is not allowed in a profile.", key=key),
                    "unknown_key",
                )
            elif is_settable(key):
                known[key] = value
            else:
                self.wrong(f"values.{key}", unknown_key_message(key), "unknown_key")
        typed, problems = check_values(RunConfig(), known, lambda key: self.document.where(f"values.{key}"))
        self.findings += problems
        return typed

    def reasons(self, given: dict[str, Any]) -> dict[str, str]:
        sentences = flatten(given)
        for key, reason in sentences.items():
            if not is_settable(key):
                self.wrong(f"reasons.{key}", unknown_key_message(key), "unknown_key")
            elif not isinstance(reason, str):
                self.wrong(f"reasons.{key}", tr("the reason for `{key}` must be a sentence.", key=key))
        return sentences


def read_profile_file(path: Path, origin: Literal["builtin", "user"]) -> ProfileFile:
    """Read one file. Raises UsageError with every unknown key and bad value, each with its line."""
    return _Reader(read_yaml(path)).read(origin)


# Everything that is wrong with profiles, at once.


def validate_profiles(paths: Iterable[str | Path] = ()) -> list[Finding]:
    """Everything that is wrong with these files, or with all profiles when none is given."""
    targets = [str(path) for path in paths]
    findings = [finding for name in targets or list(profile_files()) for finding in _validate(name)]
    if not targets:
        findings += _taken_names()
    return findings


def _validate(name: str) -> list[Finding]:
    try:
        file = find_profile_file(name)
        profile = load_as_written(name)
    except TrainwizError as error:
        return list(error.findings)
    findings: list[Finding] = []
    gpu = profile.hardware.gpu
    if gpu is not None and gpu not in load_gpus():
        message = tr("the GPU {gpu} is not in the catalog.", gpu=repr(gpu)) + did_you_mean(near_gpus(gpu))
        findings.append(_error(file, "hardware.gpu", message, "unknown_gpu"))
    try:
        return [*findings, *_model(file, build_config(profile, {}))]
    except TrainwizError as error:
        return findings + [_placed(file, finding) for finding in error.findings]


def _placed(file: ProfileFile, finding: Finding) -> Finding:
    """A finding about a setting, with the line of that setting."""
    where = file.where(f"values.{finding.where}")
    return replace(finding, where=where, message=f"{where}: {finding.message}")


def _model(file: ProfileFile, config: RunConfig) -> Iterator[Finding]:
    name = config.model.name
    if not known_model(name):
        message = tr(
            "{name} is not in the model catalog, not a Hub ID (owner/name), and not a folder on this machine.",
            name=repr(name),
        )
        yield _error(file, "values.model.name", message, "missing_model")
        return
    # Weights that are not here are no mistake of the profile: a download brings them.
    model, findings = resolve_model(config.model)
    if model is None:
        return
    for found in findings:
        if found.where.startswith("model.architecture_overrides"):
            yield _placed(file, found)
    if config.task != model.task and config.task not in CLASSIFIES:
        message = tr(
            "`task: {task}` does not match {name}, which is for {model_task}.",
            task=config.task,
            name=name,
            model_task=model.task,
        )
        yield _error(file, "values.task", message, "task_mismatch")
    strange = unknown_targets(model.architecture, config.peft.targets)
    if config.peft.method == "lora" and strange:
        known = ", ".join(known_targets(model.architecture))
        missing = tr(" or ").join(strange)
        message = tr(
            "`peft.targets`: {name} has no module {missing}; available: {known}.",
            name=name,
            missing=missing,
            known=known,
        )
        yield _error(file, "values.peft.targets", message, "unknown_lora_target")


def _taken_names() -> list[Finding]:
    own = sorted(user_folder().glob("*.y*ml"))
    taken = {path: repr(path.stem) for path in own if (builtin_folder() / f"{path.stem}.yaml").is_file()}
    words = mark("{path}: {stem} is the name of a built-in profile, which is used instead; rename this file.")
    return [Finding("name_taken", "error", str(path), tr(words, path=path, stem=stem)) for path, stem in taken.items()]


def _error(file: ProfileFile, key: str, message: str, code: str = "bad_value") -> Finding:
    where = file.where(key)
    return Finding(code, "error", where, f"{where}: {message}")
