"""The model catalogue, and what a model name stands for: catalogue name, hub id, folder, or config.json."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from trainwiz.core.catalog.availability import default_init, tokenizer_findings, weights_findings
from trainwiz.core.catalog.config_file import Answer, from_architecture, has_safetensors, read_config
from trainwiz.core.catalog.hub_cache import cached_model_folder, is_hub_id
from trainwiz.core.catalog.hub_model import HubModel, ask_hub, fetch_config
from trainwiz.core.catalog.model import ModelSpec
from trainwiz.core.config.keys import did_you_mean
from trainwiz.core.config.sections import ModelSection
from trainwiz.core.config.values import Task
from trainwiz.core.findings import Finding, Remedy
from trainwiz.core.language import mark, tr
from trainwiz.core.telemetry.paths import at_home

TASKS: tuple[Task, ...] = ("masked-lm", "causal-lm", "seq2seq")


@cache
def load_models() -> Mapping[str, ModelSpec]:
    """The catalogue: name -> model, by task, smallest first within a family."""
    specs: dict[str, ModelSpec] = {}
    for task in TASKS:
        text = resources.files("trainwiz.profiles").joinpath("models", f"{task}.yaml").read_text(encoding="utf-8")
        for name, entry in yaml.safe_load(text)["models"].items():
            specs[name] = ModelSpec(
                name=name,
                architecture=dict(entry["architecture"]),
                task=task,
                description=entry["description"],
                hub_id=entry.get("hub_id"),
                gated=entry.get("gated", False),
                license=entry.get("license"),
                tokenizer=entry.get("tokenizer"),
                smallest_sibling=entry.get("smallest_sibling"),
            )
    return MappingProxyType(specs)


def known_model(name: str) -> bool:
    """The name can stand for a model: catalogue name, well-formed hub id, or a path that is here."""
    return _in_catalogue(name) is not None or is_hub_id(name) or at_home(Path(name)).exists()


def _nobody(hub_id: str) -> HubModel:
    return HubModel("offline")


def resolve_model(section: ModelSection, *, online: bool = False) -> Answer:
    """(model, findings). The model is None when nothing is known of it; findings say why and what works instead.

    Reads local files: a hub id is looked up in the local Hugging Face cache. Only with `online` is the hub asked for
    what is not here, with questions of at most three seconds; weights are never fetched here.
    `architecture_overrides` are merged into the answer's architecture.
    """
    ask = ask_hub if online else _nobody
    spec, findings = _filled_in(section) if section.architecture is not None else _find(section.name, online)
    if spec is None:
        return None, findings
    if section.init is None:
        section = section.model_copy(update={"init": default_init(spec)})
    spec, more = _overridden(spec, section.architecture_overrides)
    return spec, (
        *findings,
        *more,
        *weights_findings(spec, section, ask),
        *tokenizer_findings(spec, section, ask),
        *_remote_code(spec, section),
    )


def _find(name: str, online: bool = False) -> Answer:
    path = at_home(Path(name))
    known = _in_catalogue(name)
    if known is not None:
        return _with_cache(known), ()
    if path.is_dir():
        return read_config(path / "config.json", name, "folder")
    if path.is_file() or path.suffix == ".json":
        return read_config(path, name, "config")
    if is_hub_id(name):
        folder = cached_model_folder(name)
        if folder is not None:
            spec, findings = read_config(folder / "config.json", name, "hub")
            return (_with_cache(replace(spec, hub_id=name)) if spec else None), findings
        if online and "/" in name:
            return _on_hub(name)
    return None, (_missing(name),)


def _on_hub(name: str) -> Answer:
    """A model that only the hub has: its config.json is enough to plan it."""
    answer = ask_hub(name)
    document = fetch_config(name) if answer.state == "there" and not answer.closed else None
    if document is not None:
        spec, findings = from_architecture(document, name, "hub", None)
        return (replace(spec, hub_id=name) if spec else None), findings
    return None, (_missing(name, answer),)


def _in_catalogue(name: str) -> ModelSpec | None:
    models = load_models()
    if name in models:
        return models[name]
    return next((spec for spec in models.values() if spec.hub_id == name), None)


def _filled_in(section: ModelSection) -> Answer:
    """A run that was planned before: its architecture is in the config, whatever the catalogue says today."""
    architecture = dict(section.architecture or {})
    spec, _ = _find(section.name)
    if spec is not None:
        return replace(spec, architecture=architecture), ()
    answer, findings = from_architecture(architecture, section.name, "config", None)
    if answer is not None and is_hub_id(section.name) and "/" in section.name:
        answer = replace(answer, hub_id=section.name, source="hub")
    return answer, findings


def _with_cache(spec: ModelSpec) -> ModelSpec:
    """With the folder of the local cache that holds its weights; a config alone is no place to load them from."""
    folder = cached_model_folder(spec.hub_id) if spec.hub_id else None
    if folder is None:
        return spec
    safe = has_safetensors(folder)
    here = safe or any(folder.glob("pytorch_model*.bin"))
    return replace(spec, path=folder if here else None, has_weights=safe)


def _overridden(spec: ModelSpec, overrides: Mapping[str, Any]) -> tuple[ModelSpec, tuple[Finding, ...]]:
    findings = tuple(
        Finding(
            "unknown_key",
            "error",
            f"model.architecture_overrides.{key}",
            tr("{name} has no architecture key {key}.", name=spec.name, key=repr(key))
            + did_you_mean(difflib.get_close_matches(key, spec.architecture, 1)),
        )
        for key in overrides
        if key not in spec.architecture
    )
    return replace(spec, architecture={**spec.architecture, **overrides}), findings


def _remote_code(spec: ModelSpec, section: ModelSection) -> tuple[Finding, ...]:
    if "auto_map" not in spec.architecture or section.trust_remote_code:
        return ()
    message = tr(
        "{name} comes with Python code of its own, which is not run unless you say so (--set "
        "model.trust_remote_code=true).",
        name=spec.name,
    )
    return (Finding("remote_code", "warning", "model.trust_remote_code", message),)


def _missing(name: str, answer: HubModel | None = None) -> Finding:
    models = load_models()
    near = difflib.get_close_matches(name.lower(), models, n=2, cutoff=0.5)
    # A model is of one task: only a name that is near enough to be meant is offered as a command.
    meant = tuple(Remedy(tr("take {name}", name=name), changes={"model.name": name}) for name in near)
    offline = Remedy(tr("models that are known offline: {models}", models=", ".join(models)))
    if is_hub_id(name) and "/" in name:
        fetch = Remedy(tr("download it where there is a network"), f"hf download {name}")
        message = tr(_not_cached(answer), name=name)
        return Finding("missing_model", "error", "model.name", message, (fetch, *meant, offline))
    message = tr("There is no model {name}: not in the catalogue, not a file or folder here.", name=repr(name))
    message += did_you_mean(near)
    return Finding("missing_model", "error", "model.name", message, (*meant, offline))


def _not_cached(answer: HubModel | None) -> str:
    """The sentence for a model that is on neither side, with a place for its name."""
    if answer is None or answer.state == "offline":
        return mark("The model {name} is not in the local Hugging Face cache, and the Hub is disabled or unreachable.")
    if answer.state == "unknown":
        return mark(
            "The model {name} is not in the local Hugging Face cache, and the hub shows no public model of that name "
            "(a private one needs HF_TOKEN)."
        )
    if answer.closed:
        return mark(
            "The model {name} is not in the local Hugging Face cache, and on the hub it is for accounts that accepted "
            "its licence (then: hf auth login)."
        )
    return mark("The model {name} is not in the local Hugging Face cache, and on the hub it has no config.json.")
