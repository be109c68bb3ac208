"""Everything that is wrong with profiles, at once, each mistake with its file, line and key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from trainwiz.core.catalog.gpus import load_gpus, near_gpus
from trainwiz.core.catalog.model_config import known_targets, unknown_targets
from trainwiz.core.catalog.models import known_model, resolve_model
from trainwiz.core.config.build import build_config
from trainwiz.core.config.keys import did_you_mean
from trainwiz.core.config.run import RunConfig
from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.errors import Finding, TrainwizError
from trainwiz.core.language import mark, tr
from trainwiz.core.profile.profile import Profile
from trainwiz.core.profile.read import ProfileFile
from trainwiz.core.profile.store import builtin_folder, find_profile_file, load_as_written, profile_files, user_folder


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
