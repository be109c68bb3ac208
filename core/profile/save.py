"""A setup of the user's own, kept as a profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config.build import build_config, yielding_values
from trainwiz.core.config.keys import NOT_IN_PROFILES, NOT_SETTABLE, did_you_mean
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.config.run import RunConfig
from trainwiz.core.config.settings import SETTINGS, SOURCE_LISTS
from trainwiz.core.data.formats import SAMPLES
from trainwiz.core.defaults import NO_PROFILE
from trainwiz.core.errors import Finding, UsageError, usage_error
from trainwiz.core.files import at_home
from trainwiz.core.language import mark, tr
from trainwiz.core.profile.profile import Profile
from trainwiz.core.profile.read import name_problem, profile_schema
from trainwiz.core.profile.store import cannot_write, load_profile, profile_files, user_folder
from trainwiz.core.run.folder import write_atomic, write_json_atomic

# Whether a name can be that of a profile of the user's own.


def name_findings(name: str, replace: bool) -> list[Finding]:
    """Why `name` cannot be that of a new profile; with `replace` one of the user's own may be there."""
    problem = name_problem(name)
    if not problem and name.endswith((".yaml", ".yml")):
        problem = tr("Specify a name for the profile, not a file: {stem}.", stem=Path(name).stem)
    if name.lower() == NO_PROFILE:
        problem = tr("{name} means no profile (--profile none); choose another name.", name=repr(name))
    if problem:
        return [bad_choice("name", problem)]
    taken = {known.lower(): place for known, place in profile_files().items()}.get(name.lower())
    if taken is None:
        return []
    file, _ = taken
    if replace and file == user_folder() / f"{name}.yaml":
        return []
    message = tr(
        "There already is a profile {name} ({file}); choose another name, for example my-{base}.",
        name=repr(name),
        file=file,
        base=name,
    )
    return [Finding("name_taken", "error", str(file), message)]


def bad_choice(where: str, message: str) -> Finding:
    """A choice that cannot stand in a profile."""
    return Finding("bad_value", "error", where, message)


# A setup of the user's own, kept as a profile in the configuration folder.

OF_ONE_RUN = mark("{option} belongs to one run; it is not allowed in a profile.")
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def save_profile(
    name: str,
    request: PlanRequest,
    extends: str | None = None,
    *,
    description: str | None = None,
    replace: bool = False,
) -> SavedProfile:
    """Write the choices of `request` as profile `name` of the user's folder; nothing is overwritten without `replace`,
    and a built-in profile never.

    The file `extends` the named profile (else the one of the request) and holds what differs from it. What the
    profile must give up for a choice (its accumulation, for another micro-batch) is written too, so that the saved
    profile means what the choices meant. Files named by a relative path are kept by their whole path.

    Raises UsageError with every finding: a name that cannot be one or is taken, an unknown parent, bad values, and
    choices that belong to one run.
    """
    findings = [*name_findings(name, replace), *_of_one_run(request)]
    parent, config = None, None
    try:
        base = extends or request.profile
        parent = load_profile(base) if base is not None else None
        shown = parent if request.profile in (None, base) else load_profile(str(request.profile))
        config = build_config(shown, request.overrides)
    except UsageError as error:
        findings += error.findings
    hardware = _hardware(request, findings)
    if findings or config is None:
        raise UsageError(findings)
    values = _values(config, request, parent)
    document = _document(name, parent, hardware, values, _reasons(parent, values, request))
    if description is not None:
        document = {"name": name, "description": description, **document}
    path = _write(name, document, replace)
    return SavedProfile(name, str(path), document.get("extends"), hardware, values, document.get("reasons", {}))


def _of_one_run(request: PlanRequest) -> list[Finding]:
    asked = {
        f"--{request.mode}": request.mode != "train",
        "--overfit": request.overfit_batches is not None and request.mode != "overfit",
        "--benchmark": request.benchmark_steps is not None and request.mode != "benchmark",
        "--trace-steps": request.trace_steps is not None,
        "--output-dir": request.output_dir is not None,
        "--name": request.name is not None,
        "--force": request.force,
        **dict.fromkeys(request.overrides.keys() & NOT_IN_PROFILES, True),
    }
    return [bad_choice(option, tr(OF_ONE_RUN, option=option)) for option, is_asked in asked.items() if is_asked]


def _hardware(request: PlanRequest, findings: list[Finding]) -> dict[str, Any]:
    """The `hardware` of the file: what was said of another machine."""
    from trainwiz.core.catalog.gpus import GIB, find_gpu, near_gpus

    figures = (request.gpu_memory_bytes, request.tflops, request.fp32_tflops, request.bandwidth, request.capability)
    if any(value is not None for value in figures):
        message = tr(
            "A profile uses a GPU name from the catalog (--gpu NAME); GPU specifications entered manually are not "
            "allowed in it."
        )
        findings.append(bad_choice("hardware.gpu", message))
    hardware: dict[str, Any] = {}
    if request.gpu is not None:
        spec = find_gpu(request.gpu, request.gpu_memory_bytes)
        if spec is None:
            message = tr("The GPU catalog has no single GPU named {gpu}.", gpu=repr(request.gpu))
            message += did_you_mean(near_gpus(request.gpu))
            findings.append(Finding("unknown_gpu", "error", "hardware.gpu", message))
        else:
            hardware["gpu"] = spec.name
    if request.num_gpus is not None:
        if request.num_gpus < 1:
            findings.append(
                bad_choice(
                    "hardware.num_gpus", tr("--num-gpus is {num_gpus}; set 1 or more.", num_gpus=request.num_gpus)
                )
            )
        hardware["num_gpus"] = request.num_gpus
    if request.ram_bytes is not None:
        whole, rest = divmod(request.ram_bytes, GIB)
        hardware["ram"] = request.ram_bytes if rest else f"{whole}G"
    return hardware


def _values(config: RunConfig, request: PlanRequest, parent: Profile | None) -> dict[str, Any]:
    """Key path -> value of all that differs from the parent, in the order of the sections."""
    mine = {_leaf(key) for key in request.overrides}
    theirs = parent.values if parent is not None else {}
    chosen: dict[str, Any] = {}
    for key in SETTINGS:
        if key in NOT_SETTABLE or key in NOT_IN_PROFILES:
            continue
        value = _plain(key, config.value(key))
        if key in theirs:
            differs = value != _plain(key, theirs[key])
        else:
            differs = key in mine or config.origin(key).origin in ("you", "profile")
        if differs:
            chosen[key] = value
    return chosen


def _leaf(key: str) -> str:
    """The key as a file has it: lists of sources, overrides and environments are written whole."""
    while key not in SETTINGS and "." in key:
        key = key.rpartition(".")[0]
    return key


def _plain(key: str, value: Any) -> Any:
    """The value as YAML has it; files by their whole path, since the profile is used from other folders."""
    if key in SOURCE_LISTS:
        return [_source(item) for item in value or []]
    if key in PATH_KEYS and isinstance(value, str):
        return _whole_path(value)
    return list(value) if isinstance(value, tuple) else value


def _source(item: Any) -> dict[str, Any]:
    from trainwiz.core.config.run import DataSource

    source = item if isinstance(item, BaseModel) else DataSource.model_validate(item)
    document = source.model_dump(exclude_defaults=True)
    document["name"] = _whole_path(document["name"])
    return document


def _whole_path(name: str) -> str:
    path = at_home(Path(name))
    return name if name in load_models() or name in SAMPLES or not path.exists() else str(path.resolve())


def _reasons(parent: Profile | None, values: Mapping[str, Any], request: PlanRequest) -> dict[str, str]:
    """Why a value that was not asked for changed; what was asked for needs no reason."""
    yielded = yielding_values(parent.values if parent is not None else {}, request.overrides)
    mine = {_leaf(key) for key in request.overrides}
    return {key: reason for key, (_, reason) in yielded.items() if key in values and key not in mine}


def _document(
    name: str, parent: Profile | None, hardware: dict[str, Any], values: dict[str, Any], reasons: dict[str, str]
) -> dict[str, Any]:
    document: dict[str, Any] = {"name": name}
    if parent is not None:
        inside = parent.origin == "builtin" or Path(parent.file).parent == user_folder()
        document["description"] = tr("{name}, modified", name=parent.name)
        document["extends"] = parent.name if inside else str(Path(parent.file).resolve())
    parts = {"hardware": hardware, "values": _nested(values), "reasons": reasons}
    return {**document, **{key: part for key, part in parts.items() if part}}


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, value in values.items():
        *parents, last = key.split(".")
        node = document
        for part in parents:
            node = node.setdefault(part, {})
        node[last] = value
    return document


def _write(name: str, document: Mapping[str, Any], replace: bool) -> Path:
    folder = user_folder()
    path = folder / f"{name}.yaml"
    text = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, default_flow_style=False, width=100)
    text = f"# yaml-language-server: $schema=../{SCHEMA}\n{text}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json_atomic(folder.parent / SCHEMA, profile_schema())
        if replace:
            write_atomic(path, text)
        else:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except FileExistsError:
        raise usage_error(
            "name_taken", str(path), tr("{path} already exists and is not overwritten.", path=path)
        ) from None
    except OSError as error:
        raise cannot_write(path, error) from None
    return path
