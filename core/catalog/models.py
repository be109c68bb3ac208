"""The model catalogue, and what a model name stands for: catalogue name, hub id, folder, or config.json."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import yaml
from trainwiz.core.catalog.hub_cache import cached_model_folder, is_hub_id
from trainwiz.core.catalog.model import ModelSpec
from trainwiz.core.config.keys import did_you_mean
from trainwiz.core.config.sections import ModelSection
from trainwiz.core.findings import Finding, Remedy
from trainwiz.core.json_text import parse_json

Task = Literal["masked-lm", "causal-lm", "seq2seq"]
TASKS: tuple[Task, ...] = ("masked-lm", "causal-lm", "seq2seq")
Answer = tuple[ModelSpec | None, tuple[Finding, ...]]

_TASKS: tuple[tuple[str, Task], ...] = (
    ("ForMaskedLM", "masked-lm"),
    ("ForPreTraining", "masked-lm"),
    ("LMHeadModel", "causal-lm"),
    ("ForCausalLM", "causal-lm"),
    ("ForConditionalGeneration", "seq2seq"),
    ("ForSeq2SeqLM", "seq2seq"),
    ("MTModel", "seq2seq"),
)
"""Class name ending -> task, most specific first."""

SMALLEST: Mapping[str, str] = {
    "esm": "esm2-tiny",
    "gpt2": "gpt2-tiny",
    "llama": "llama-tiny",
    "m2m_100": "nllb-tiny",
    "marian": "opus-mt-tiny",
    "mistral": "llama-tiny",
    "qwen2": "qwen2-tiny",
    "t5": "t5-chat-tiny",
}
"""Model type -> the catalogue's model that --smoke trains in place of one of that type."""


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
                tokenizer=entry.get("tokenizer"),
                smallest_sibling=entry.get("smallest_sibling"),
            )
    return MappingProxyType(specs)


def known_model(name: str) -> bool:
    """The name can stand for a model: catalogue name, well-formed hub id, or a path that is here."""
    return _in_catalogue(name) is not None or is_hub_id(name) or Path(name).expanduser().exists()


def resolve_model(section: ModelSection) -> Answer:
    """(model, findings). The model is None when nothing is known of it; findings say why and what works instead.

    Reads local files only: a hub id is looked up in the local Hugging Face cache, never on the network.
    `architecture_overrides` are merged into the answer's architecture.
    """
    if section.architecture is not None:
        spec, findings = _filled_in(section)
    else:
        spec, findings = _find(section.name)
    if spec is None:
        return None, findings
    overridden, more = _overridden(spec, section.architecture_overrides)
    return overridden, (*findings, *more, *_weights(overridden, section), *_remote_code(overridden, section))


def _find(name: str) -> Answer:
    path = Path(name).expanduser()
    known = _in_catalogue(name)
    if known is not None:
        return _with_cache(known), ()
    if path.is_dir():
        return _from_config(path / "config.json", name, "folder")
    if path.is_file() or path.suffix == ".json":
        return _from_config(path, name, "config")
    if is_hub_id(name):
        folder = cached_model_folder(name)
        if folder is not None:
            spec, findings = _from_config(folder / "config.json", name, "hub")
            return (replace(spec, hub_id=name) if spec else None), findings
    return None, (_missing(name),)


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
    return _from_architecture(architecture, section.name, "config", None)


def _with_cache(spec: ModelSpec) -> ModelSpec:
    folder = cached_model_folder(spec.hub_id) if spec.hub_id else None
    if folder is None:
        return spec
    return replace(spec, path=folder, has_weights=_has_safetensors(folder))


def _from_config(path: Path, name: str, source: Literal["hub", "folder", "config"]) -> Answer:
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        reason = f"{path} does not exist" if source == "config" else f"{path.parent} has no config.json"
        return None, (_error("missing_model", f"{reason}, so its architecture is not known."),)
    except OSError as error:
        return None, (_error("missing_model", f"{path} cannot be read: {error.strerror}."),)
    except UnicodeDecodeError:
        return None, (_error("broken_model_config", f"{path} is not UTF-8 text."),)
    except ValueError as error:
        at = f"line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        return None, (_error("broken_model_config", f"{path} is not valid JSON ({at}); it may be cut off."),)
    if not isinstance(document, dict):
        return None, (_error("broken_model_config", f"{path} holds no JSON object with an architecture."),)
    return _from_architecture(document, name, source, path)


def _from_architecture(
    document: dict[str, Any], name: str, source: Literal["hub", "folder", "config"], path: Path | None
) -> Answer:
    if not isinstance(document.get("model_type"), str):
        message = f"{path or name} names no `model_type`, so it is not known which model it describes."
        return None, (_error("broken_model_config", message),)
    task = _task(document)
    if task is None:
        message = (
            f"{path or name} describes {_classes(document) or document['model_type']}, which trainwiz cannot train: "
            "it trains masked, causal and sequence-to-sequence language models."
        )
        return None, (_error("unsupported_model", message),)
    folder = path.parent if path and source != "config" else None
    spec = ModelSpec(
        name=name,
        architecture=document,
        task=task,
        tokenizer="esm" if document["model_type"] == "esm" and document.get("vocab_size") == 33 else None,
        smallest_sibling=SMALLEST.get(document["model_type"]),
        source=source,
        path=folder,
        has_weights=folder is not None and _has_safetensors(folder),
    )
    return spec, ()


def _classes(document: dict[str, Any]) -> str:
    listed = document.get("architectures")
    return ", ".join(str(name) for name in listed) if isinstance(listed, list) else ""


def _task(document: dict[str, Any]) -> Task | None:
    classes = _classes(document).split(", ")
    for ending, task in _TASKS:
        if any(name.endswith(ending) for name in classes):
            return task
    if document.get("is_encoder_decoder"):
        return "seq2seq"
    # A config of a headless or fine-tuned model: the family says what it was pretrained on.
    families: dict[str, Task] = {"esm": "masked-lm", "bert": "masked-lm", "roberta": "masked-lm"}
    families |= {"distilbert": "masked-lm", "gpt2": "causal-lm", "llama": "causal-lm", "qwen2": "causal-lm"}
    return families.get(str(document["model_type"]))


def _overridden(spec: ModelSpec, overrides: Mapping[str, Any]) -> tuple[ModelSpec, tuple[Finding, ...]]:
    findings = tuple(
        Finding(
            "unknown_key",
            "error",
            f"model.architecture_overrides.{key}",
            f"{spec.name} has no architecture key {key!r}.{did_you_mean(difflib.get_close_matches(key, spec.architecture, 1))}",
        )
        for key in overrides
        if key not in spec.architecture
    )
    return replace(spec, architecture={**spec.architecture, **overrides}), findings


def _has_safetensors(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json"))


def _weights(spec: ModelSpec, section: ModelSection) -> tuple[Finding, ...]:
    if section.init != "pretrained" or spec.has_weights:
        return ()
    from_scratch = Remedy("train from scratch", "--set model.init=scratch", {"model.init": "scratch"})
    pickles = spec.path is not None and any(spec.path.glob("pytorch_model*.bin"))
    if pickles and section.allow_pickle:
        return ()
    if pickles:
        message = (
            f"The weights of {spec.name} are pickles (.bin), which can run code when they are loaded; "
            "convert them to safetensors, or allow it with --set model.allow_pickle=true."
        )
        allow = Remedy("load the pickle", "--set model.allow_pickle=true", {"model.allow_pickle": True})
        return (Finding("pickled_weights", "error", "model.allow_pickle", message, (allow, from_scratch)),)
    if spec.hub_id is None:
        message = f"There are no pretrained weights for {spec.name}."
        return (Finding("missing_model", "error", "model.init", message, (from_scratch,)),)
    message = f"The weights of {spec.hub_id} are not on this machine."
    fetch = Remedy("download them where there is a network", f"hf download {spec.hub_id}")
    return (Finding("missing_model", "error", "model.name", message, (fetch, from_scratch)),)


def _remote_code(spec: ModelSpec, section: ModelSection) -> tuple[Finding, ...]:
    if "auto_map" not in spec.architecture or section.trust_remote_code:
        return ()
    message = (
        f"{spec.name} comes with Python code of its own, which is not run unless you say so "
        "(--set model.trust_remote_code=true)."
    )
    return (Finding("remote_code", "warning", "model.trust_remote_code", message),)


def _error(code: str, message: str) -> Finding:
    return Finding(code, "error", "model.name", message)


def _missing(name: str) -> Finding:
    models = load_models()
    near = difflib.get_close_matches(name.lower(), models, n=2, cutoff=0.5)
    offline = Remedy(
        f"a model that is known offline: {', '.join(models)}", "--model esm2-8m", {"model.name": "esm2-8m"}
    )
    if is_hub_id(name) and "/" in name:
        message = f"The model {name} is not in the local Hugging Face cache, and nothing is fetched while planning."
        fetch = Remedy("download it where there is a network", f"hf download {name}")
        return Finding("missing_model", "error", "model.name", message, (fetch, offline))
    message = f"There is no model {name!r}: not in the catalogue, not a file or folder here.{did_you_mean(near)}"
    return Finding("missing_model", "error", "model.name", message, (offline,))
