"""A setup of the user's own, kept as a profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from trainwiz.core.catalog.gpus import GIB, find_gpu, near_gpus
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config.build import build_config
from trainwiz.core.config.keys import NOT_IN_PROFILES, NOT_SETTABLE, did_you_mean
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.config.settings import SETTINGS, SOURCE_LISTS
from trainwiz.core.data.formats import SAMPLES
from trainwiz.core.errors import Finding, UsageError
from trainwiz.core.files import at_home
from trainwiz.core.language import tr
from trainwiz.core.profile.profile import Profile
from trainwiz.core.profile.read import name_problem, of_one_run, profile_schema
from trainwiz.core.profile.store import cannot_write, load_profile, profile_files, user_folder
from trainwiz.core.run.folder import write_atomic, write_json_atomic

SCHEMA = "profile.schema.json"
"""Next to the folder of profiles, written with each of them: editors complete and validate a profile by it."""
PATH_KEYS: tuple[str, ...] = ("model.name", "model.tokenizer", "engine.deepspeed_file")


@dataclass(frozen=True, slots=True)
class SavedProfile:
    """What was written; its JSON keys are stable."""

    name: str
    file: str
    extends: str | None
    hardware: Mapping[str, Any]
    values: Mapping[str, Any]
    reasons: Mapping[str, str]


def save_profile(
    name: str, request: PlanRequest, *, description: str | None = None, replace: bool = False
) -> SavedProfile:
    """Write the choices of `request` as profile `name` of the user's folder; nothing is overwritten without `replace`,
    and a built-in profile never.

    The file `extends` the profile of the request and holds the choices, and what differs from it because of them: its
    accumulation, for another micro-batch. Files named by a relative path are kept by their whole path.

    Raises UsageError with every finding: a name that cannot be one or is taken, an unknown parent, bad values, and
    choices that belong to one run.
    """
    findings = [*_name_findings(name, replace), *_of_one_run(request), *_machine_findings(request)]
    try:
        parent = load_profile(request.profile) if request.profile is not None else None
        before, config = build_config(parent, {}), build_config(parent, request.overrides)
    except UsageError as error:
        raise UsageError([*findings, *error.findings]) from None
    if findings:
        raise UsageError(findings)
    chosen = {_leaf(key) for key in request.overrides}
    values = {
        key: _written(key, config.value(key))
        for key in SETTINGS
        if key in chosen or (key not in NOT_SETTABLE and config.value(key) != before.value(key))
    }
    solved = {key: origin.reason for key, origin in config.origins.items() if origin.origin == "solved"}
    hardware, reasons = _hardware(request), {key: solved[key] for key in values if key in solved}
    document: dict[str, Any] = {
        "name": name,
        "description": description or (tr("{name}, modified", name=parent.name) if parent is not None else ""),
        "extends": _named(parent) if parent is not None else None,
        "hardware": hardware,
        "values": _nested(values),
        "reasons": reasons,
    }
    path = _write(name, {key: part for key, part in document.items() if part})
    return SavedProfile(name, str(path), document["extends"], hardware, values, reasons)


def _name_findings(name: str, replace: bool) -> Iterator[Finding]:
    """Why `name` cannot be that of a new profile; with `replace` one of the user's own may be there."""
    if problem := name_problem(name):
        yield Finding("bad_value", "error", "name", problem)
    taken = next((file for known, file in profile_files().items() if known.lower() == name.lower()), None)
    if taken is not None and not (replace and taken == user_folder() / f"{name}.yaml"):
        message = tr(
            "There already is a profile {name} ({file}); choose another name, for example my-{base}.",
            name=repr(name),
            file=taken,
            base=name,
        )
        yield Finding("name_taken", "error", str(taken), message)


OF_ONE_RUN = ("trace_steps", "output_dir", "name", "force")


def _of_one_run(request: PlanRequest) -> Iterator[Finding]:
    given = asdict(request)
    options = [name.replace("_", "-") for name in OF_ONE_RUN if given[name]]
    options += [request.mode] if request.mode != "train" else []
    for option in (*(f"--{name}" for name in options), *(request.overrides.keys() & NOT_IN_PROFILES)):
        yield of_one_run(option, option)


def _machine_findings(request: PlanRequest) -> Iterator[Finding]:
    if request.gpu_memory_bytes or request.tflops or request.fp32_tflops or request.bandwidth or request.capability:
        message = tr(
            "A profile uses a GPU name from the catalog (--gpu NAME); GPU specifications entered manually are not "
            "allowed in it."
        )
        yield Finding("bad_value", "error", "hardware.gpu", message)
    if request.gpu is not None and find_gpu(request.gpu) is None:
        message = tr("The GPU catalog has no single GPU named {gpu}.", gpu=repr(request.gpu))
        yield Finding("unknown_gpu", "error", "hardware.gpu", message + did_you_mean(near_gpus(request.gpu)))
    if request.num_gpus == 0:
        message = tr("--num-gpus is {num_gpus}; set 1 or more.", num_gpus=0)
        yield Finding("bad_value", "error", "hardware.num_gpus", message)


def _hardware(request: PlanRequest) -> dict[str, Any]:
    """The `hardware` of the file: what was said of another machine."""
    spec = find_gpu(request.gpu) if request.gpu is not None else None
    ram = request.ram_bytes
    hardware = {
        "gpu": spec.name if spec is not None else None,
        "num_gpus": request.num_gpus,
        "ram": f"{ram // GIB}G" if ram is not None and ram % GIB == 0 else ram,
    }
    return {key: value for key, value in hardware.items() if value is not None}


def _leaf(key: str) -> str:
    """The key as a file has it: lists of sources, overrides and environments are written whole."""
    while key not in SETTINGS:
        key = key.rpartition(".")[0]
    return key


def _written(key: str, value: Any) -> Any:
    """The value as YAML has it; files by their whole path, since the profile is used from other folders."""
    if key in SOURCE_LISTS:
        return [{**source.model_dump(exclude_defaults=True), "name": _whole_path(source.name)} for source in value]
    return _whole_path(value) if key in PATH_KEYS and value is not None else value


def _whole_path(name: str) -> str:
    path = at_home(Path(name))
    return name if name in load_models() or name in SAMPLES or not path.exists() else str(path.resolve())


def _named(parent: Profile) -> str:
    """As another profile extends it; one that lies elsewhere by its whole path."""
    inside = parent.origin == "builtin" or Path(parent.file).parent == user_folder()
    return parent.name if inside else str(Path(parent.file).resolve())


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        (document.setdefault(section, {}) if section else document)[name] = value
    return document


def _write(name: str, document: Mapping[str, Any]) -> Path:
    folder = user_folder()
    path = folder / f"{name}.yaml"
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=False, width=100)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json_atomic(folder.parent / SCHEMA, profile_schema())
        write_atomic(path, f"# yaml-language-server: $schema=../{SCHEMA}\n{text}")
    except OSError as error:
        raise cannot_write(path, error) from None
    return path
