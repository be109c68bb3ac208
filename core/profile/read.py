"""Reads a profile file, and says everything that is wrong with it or with all profiles, each mistake with its line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from trainwiz.core.catalog.gpus import load_gpus, near_gpus
from trainwiz.core.catalog.model_config import known_targets, unknown_targets
from trainwiz.core.catalog.models import known_model, resolve_model
from trainwiz.core.config.build import build_config, check_values
from trainwiz.core.config.keys import NOT_IN_PROFILES, NOT_SETTABLE, did_you_mean, flatten, is_settable
from trainwiz.core.config.run import RunConfig
from trainwiz.core.config.settings import SECTIONS
from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.config.yaml_text import YamlDocument, read_yaml, unknown_key_message
from trainwiz.core.errors import Finding, TrainwizError, UsageError
from trainwiz.core.language import mark, tr
from trainwiz.core.profile.profile import Profile, parse_size
from trainwiz.core.profile.store import builtin_folder, find_profile_file, load_as_written, profile_files, user_folder

KEYS: tuple[str, ...] = ("name", "description", "extends", "hardware", "values", "reasons", "claims", "variants")
HARDWARE_KEYS: tuple[str, ...] = ("gpu", "num_gpus", "ram", "cpu_cores")

TEXT, MAPPING = mark("`{key}` must be text."), mark("`{key}` must be a mapping.")


@dataclass(slots=True)
class ProfileFile:
    """Not yet merged with what it extends."""

    path: Path
    origin: Literal["builtin", "user"]
    name: str
    description: str = ""
    extends: str | None = None
    hardware: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    variants: tuple[str, ...] = ()
    lines: dict[str, int] = field(default_factory=dict)

    def where(self, key: str) -> str:
        """FILE:LINE of the key, of the nearest one above it that the file has, or of what it extends."""
        while key and key not in self.lines:
            key = key.rpartition(".")[0]
        line = self.lines.get(key or "extends")
        return f"{self.path}:{line}" if line else str(self.path)


def profile_schema() -> dict[str, Any]:
    """The JSON schema of a profile file, for editors: its `values` are the settings that can stand in one."""
    schema = RunConfig.model_json_schema()
    settings = {name: entry for name, entry in schema["properties"].items() if name not in ("origins", "forced")}
    for key in (*NOT_SETTABLE, *NOT_IN_PROFILES):
        section, _, name = key.rpartition(".")
        place = schema["$defs"][SECTIONS[section].__name__]["properties"] if section else settings
        del place[name]
    text, number = {"type": "string"}, {"type": "integer", "minimum": 1}
    hardware = {"gpu": text, "num_gpus": number, "ram": {"type": ["string", "integer"]}, "cpu_cores": number}
    described: dict[str, Any] = {key: {"type": "object"} for key in KEYS}
    described |= dict.fromkeys(("name", "description", "extends"), text)
    described["variants"] = {"type": "array", "items": text}
    described["hardware"] = {"type": "object", "properties": hardware, "additionalProperties": False}
    described["values"] = {"type": "object", "properties": settings, "additionalProperties": False}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "trainwiz profile",
        "type": "object",
        "properties": described,
        "additionalProperties": False,
        "$defs": {name: part for name, part in schema["$defs"].items() if name != "Origin"},
    }


class _Reader:
    """Takes one document apart and collects what is wrong with it."""

    def __init__(self, document: YamlDocument, origin: Literal["builtin", "user"]) -> None:
        self.document = document
        self.findings: list[Finding] = []
        self.file = ProfileFile(document.path, origin, document.path.stem, lines=document.lines)

    def read(self) -> ProfileFile:
        for key in self.document.values:
            if key not in KEYS:
                self.unknown(str(key), KEYS)
        self.file.description = str(self.mapped("description", str, TEXT, ""))
        self.file.extends = self.mapped("extends", str, mark("`{key}` must be the name of a profile."), None)
        self.name()
        self.hardware()
        self.settings()
        claims = self.mapped("claims", dict, MAPPING, {})
        # Of guides, which ship with trainwiz and are checked by its tests.
        self.file.claims = claims if self.file.origin == "builtin" else {}
        variants = self.mapped("variants", list, mark("`{key}` must be a list of profile names."), [])
        self.file.variants = tuple(str(name) for name in variants)
        if self.findings:
            raise UsageError(self.findings)
        return self.file

    def wrong(self, key: str, message: str, code: str = "bad_value") -> None:
        where = self.document.where(key)
        self.findings.append(Finding(code, "error", where, f"{where}: {message}"))

    def unknown(self, key: str, known: tuple[str, ...]) -> None:
        parent, _, last = key.rpartition(".")
        near = difflib.get_close_matches(last, known, n=1, cutoff=0.5)
        if parent:
            message = tr("`{key}` is not a key of a profile in `{group}`.", key=last, group=parent)
        else:
            message = tr("`{key}` is not a key of a profile.", key=last)
        self.wrong(key, message + did_you_mean(near), "unknown_key")

    def mapped(self, key: str, kind: type, otherwise: str, default: Any) -> Any:
        """The value at `key`; where it is no `kind`, the sentence `otherwise` is said and it is the default."""
        value = self.document.values.get(key)
        if value is None:
            return default
        if isinstance(value, int | float) and kind is str and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, kind):
            self.wrong(key, tr(otherwise, key=key))
            return default
        return value

    def name(self) -> None:
        name = self.mapped("name", str, TEXT, self.file.name)
        if name != self.file.name:
            message = tr("`name: {name}` must match the file name {file}.", name=name, file=self.file.path.name)
            self.wrong("name", message)
        try:
            RunConfig(name=self.file.name)
        except ValueError:
            message = tr(
                "{name} is not a valid profile name: use letters, digits, '-', '_' and '.'.", name=repr(self.file.name)
            )
            self.wrong("name", message)

    def hardware(self) -> None:
        given = self.mapped("hardware", dict, MAPPING, {})
        for key, value in given.items():
            place = f"hardware.{key}"
            known = value
            if key not in HARDWARE_KEYS:
                self.unknown(place, HARDWARE_KEYS)
                continue
            if value is None:
                pass
            elif key == "gpu" and not isinstance(value, str):
                self.wrong(place, tr("`gpu` must be a name from the GPU catalog."))
            elif key == "ram":
                known = parse_size(value)
                if known is None:
                    self.wrong(place, tr("`ram: {value}` is not a size. Example: 64G.", value=value))
            elif key != "gpu" and (type(value) is not int or value < 1):
                self.wrong(place, tr("`{key}` must be a whole number, 1 or more.", key=key))
            self.file.hardware["ram_bytes" if key == "ram" else key] = known

    def settings(self) -> None:
        values = flatten(self.mapped("values", dict, mark("`{key}` must be a mapping of settings."), {}))
        known: dict[str, Any] = {}
        for key, value in values.items():
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
        typed, problems = check_values(RunConfig(), known, lambda key: self.document.where(f"values.{key}"), "profile")
        self.findings += problems
        self.file.values = typed
        sentences = self.mapped("reasons", dict, mark("`{key}` must be a mapping of settings to sentences."), {})
        for key, reason in flatten(sentences).items():
            if not is_settable(key):
                self.wrong(f"reasons.{key}", unknown_key_message(key), "unknown_key")
            elif not isinstance(reason, str):
                self.wrong(f"reasons.{key}", tr("the reason for `{key}` must be a sentence.", key=key))
            else:
                self.file.reasons[key] = reason


def read_profile_file(path: Path, origin: Literal["builtin", "user"]) -> ProfileFile:
    """Read one file. Raises UsageError with every unknown key and bad value, each with its line."""
    return _Reader(read_yaml(path), origin).read()


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
    findings = [*_hardware(file, profile)]
    try:
        config = build_config(profile, {})
    except TrainwizError as error:
        return findings + [_placed(file, finding) for finding in error.findings]
    return [*findings, *_model(file, config)]


def _placed(file: ProfileFile, finding: Finding) -> Finding:
    """A finding about a setting, with the line of that setting."""
    where = file.where(f"values.{finding.where}")
    return replace(finding, where=where, message=f"{where}: {finding.message}")


def _hardware(file: ProfileFile, profile: Profile) -> Iterator[Finding]:
    gpu = profile.hardware.gpu
    if gpu is not None and gpu not in load_gpus():
        near = did_you_mean(near_gpus(gpu))
        message = tr("the GPU {gpu} is not in the catalog.", gpu=repr(gpu))
        yield _error(file, "hardware.gpu", message + near, "unknown_gpu")


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
