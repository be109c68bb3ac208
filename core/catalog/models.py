"""The model catalogue: what a model name stands for, and whether weights and tokenizer are here."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import yaml
from trainwiz.core.catalog.hub import (
    TOKENIZER_FILES,
    HubAnswer,
    amount_of,
    ask_hub,
    cached_model_folder,
    fetch_config,
    is_hub_id,
    weights_of,
)
from trainwiz.core.catalog.model_config import (
    Answer,
    ModelSpec,
    from_architecture,
    holds_weights,
    missing_shards,
    quantized_as,
    read_config,
)
from trainwiz.core.config.keys import did_you_mean
from trainwiz.core.config.run import ModelSection
from trainwiz.core.config.values import Task
from trainwiz.core.config.yaml_text import load_yaml
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.files import at_home, read_small
from trainwiz.core.language import mark, tr
from trainwiz.core.text import parse_json, plain_text

AskHub = Callable[[str], HubAnswer]
_no_model = partial(Finding, "missing_model", "error", "model.name")
_no_tokenizer = partial(Finding, "missing_tokenizer", "error", "model.tokenizer")

MADE_FROM_THE_DATA = "train"
"""Value of model.tokenizer that makes one from the rows."""


def default_init(spec: ModelSpec) -> Literal["pretrained", "scratch"]:
    """`pretrained` where weights are here or published under the model's name; else there is nothing to load."""
    here = spec.has_weights or (spec.path is not None and bool(missing_shards(spec.path)))
    return "pretrained" if here or spec.hub_id is not None else "scratch"


def weights_finding(spec: ModelSpec, section: ModelSection, ask: AskHub) -> Finding | None:
    """None where the run needs no weights or has them; a warning where they are downloaded when it starts; else an error."""
    if section.init != "pretrained":
        return None
    quantized = quantized_as(spec.architecture)
    if quantized not in (None, "mxfp4"):
        return Finding("quantized_weights", "error", "model.name", quantized_message(spec.name, str(quantized)))
    if spec.has_weights:
        return None
    if spec.source == "folder" and (lacking := missing_shards(spec.path or Path())):
        message = tr(
            "{folder} lacks weight files that its index names, for example {file}. Complete the download.",
            folder=spec.path,
            file=lacking[0],
        )
        return _no_model(message)
    if spec.hub_id is None:
        message = tr("{name} has no pretrained weights.", name=spec.name)
        return Finding("missing_model", "error", "model.init", message, (_from_scratch(),))
    return _from_hub(spec, ask(spec.hub_id))


def quantized_message(name: str, quantized: str) -> str:
    return tr(
        "The weights of {name} are quantized ({method}); trainwiz trains from the original model. QLoRA "
        "(engine.base_precision=nf4) quantizes that to 4 bits when it loads it.",
        name=name,
        method=plain_text(quantized, 40),
    )


def _from_hub(spec: ModelSpec, answer: HubAnswer) -> Finding:
    hub_id = str(spec.hub_id)
    if answer.closed:
        return Finding("gated_model", "error", "model.name", _licence(hub_id), (_from_scratch(),))
    if answer.state == "there" and answer.weights:
        message = tr(
            "The weights of {hub_id} are not on this machine; {files} will be downloaded when the run starts.",
            hub_id=hub_id,
            files=amount_of(answer.weights),
        )
        now = Remedy(tr("download them now"), f"hf download {hub_id}")
        return Finding("model_to_download", "warning", "model.name", message, (now,))
    if answer.state == "offline":
        message = tr("The weights of {hub_id} are not on this machine.", hub_id=hub_id)
        fetch = Remedy(tr("download them on a machine with network access"), f"hf download {hub_id}")
        return _no_model(message, (fetch, _from_scratch()))
    message = tr(
        "The weights of {hub_id} are not on this machine, and the Hub has no public weights of it that transformers can "
        "load (model.safetensors; a private model needs HF_TOKEN).",
        hub_id=hub_id,
    )
    return _no_model(message, (_from_scratch(),))


def tokenizer_finding(spec: ModelSpec, section: ModelSection, ask: AskHub) -> Finding | None:
    """The same for the tokenizer of a text task; a note where one is made from the rows in place of the model's own."""
    named = section.tokenizer
    if spec.architecture.get("model_type") == "esm" or named == MADE_FROM_THE_DATA:
        return None
    if named is not None:
        return _named(named, ask)
    if has_tokenizer(spec.path):
        return None
    if spec.hub_id is None:
        if section.init == "scratch":
            return None
        message = tr(
            "{name} has no tokenizer; specify one with model.tokenizer (a folder or a Hub ID).", name=spec.name
        )
        return _no_tokenizer(message)
    if has_tokenizer(cached_model_folder(spec.hub_id)):
        return None
    if section.init == "scratch":
        return _made(spec)
    # One download brings both, and what is said of the weights holds for the tokenizer.
    return _on_hub(spec.hub_id, "model.name", ask(spec.hub_id)) if spec.has_weights else None


SAYS_INSTRUCT = re.compile(r"(?i)(^|[-_./])(instruct|chat|it|thinking)([-_.]|$)")


def is_instruct(spec: ModelSpec, tokenizer: str | None = None) -> bool:
    """Whether a model is tuned to answer in chats, by the catalogue or the name on the hub; or another `tokenizer` by its."""
    if tokenizer is None and spec.instruct:
        return True
    return SAYS_INSTRUCT.search(str(tokenizer or spec.hub_id or spec.name)) is not None


def has_chat_template(folder: Path | None) -> bool:
    if folder is None:
        return False
    if (folder / "chat_template.jinja").is_file():
        return True
    try:
        values = parse_json(read_small(folder / "tokenizer_config.json"))
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and bool(values.get("chat_template"))


def has_tokenizer(folder: Path | None) -> bool:
    return folder is not None and any((folder / name).is_file() for name in TOKENIZER_FILES)


def _named(name: str, ask: AskHub) -> Finding | None:
    path = at_home(Path(name))
    if path.exists():
        folder = path if path.is_dir() else path.parent
        if has_tokenizer(folder):
            return None
        message = tr(
            "{folder} does not contain a tokenizer ({files}, ...).",
            folder=folder,
            files=", ".join(sorted(TOKENIZER_FILES)[:3]),
        )
        return _no_tokenizer(message)
    if has_tokenizer(cached_model_folder(name)):
        return None
    if not is_hub_id(name):
        message = tr(
            "Unknown tokenizer {name}: not a folder on this machine, and not a Hub ID (owner/name).", name=repr(name)
        )
        return _no_tokenizer(message)
    return _on_hub(name, "model.tokenizer", ask(name))


def _on_hub(hub_id: str, where: str, answer: HubAnswer) -> Finding:
    if answer.closed:
        return Finding("gated_model", "error", where, _licence(hub_id))
    if answer.state == "there" and answer.has_tokenizer:
        message = tr(
            "The tokenizer of {hub_id} is not on this machine; it will be downloaded when the run starts.",
            hub_id=hub_id,
        )
        return Finding("model_to_download", "warning", where, message)
    message = tr(
        "The tokenizer of {hub_id} is not on this machine, and the Hub is unreachable or does not have it.",
        hub_id=hub_id,
    )
    fetch = Remedy(tr("download it on a machine with network access"), f"hf download {hub_id}")
    return Finding("missing_tokenizer", "error", where, message, (fetch,))


def _made(spec: ModelSpec) -> Finding:
    message = tr(
        "The tokenizer of {hub_id} is not on this machine. A new tokenizer will be trained on your data. Fine from scratch, but it won't match the published model.",
        hub_id=spec.hub_id,
    )
    fetch = Remedy(tr("use the published one"), f"hf download {spec.hub_id} --include 'tokenizer*' config.json")
    return Finding("tokenizer_made", "note", "model.tokenizer", message, (fetch,))


def _from_scratch() -> Remedy:
    return Remedy(tr("train from scratch"), "--set model.init=scratch", {"model.init": "scratch"})


def _licence(hub_id: str) -> str:
    return tr(
        "{hub_id} is gated: accept its license on its page, then log in with `hf auth login`.",
        hub_id=hub_id,
    )


TASKS: tuple[Task, ...] = ("masked-lm", "causal-lm", "seq2seq")


@cache
def load_models() -> Mapping[str, ModelSpec]:
    """The catalogue: name -> model, by task, smallest first within a family."""
    specs: dict[str, ModelSpec] = {}
    for task in TASKS:
        text = resources.files("trainwiz.profiles").joinpath("models", f"{task}.yaml").read_text(encoding="utf-8")
        for name, entry in yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["models"].items():
            specs[name] = ModelSpec(name=name, task=task, **entry)
    return MappingProxyType(specs)


def known_model(name: str) -> bool:
    """The name can stand for a model: catalogue name, well-formed hub id, or a path that is here."""
    return _in_catalogue(name) is not None or is_hub_id(name) or at_home(Path(name)).exists()


def resolve_model(section: ModelSection, *, online: bool = False) -> Answer:
    """(model, findings). The model is None when nothing is known of it; findings say why and what works instead.

    Reads local files: a hub id is looked up in the local Hugging Face cache. Only with `online` is the hub asked for
    what is not here, with questions of at most three seconds; weights are never fetched here.
    `architecture_overrides` are merged into the answer's architecture.
    """
    ask = ask_hub if online else lambda _: HubAnswer("offline")
    spec, findings = _filled_in(section) if section.architecture is not None else _find(section.name, online)
    if spec is None:
        return None, findings
    if section.init is None:
        section = section.model_copy(update={"init": default_init(spec)})
    spec, more = _overridden(spec, section.architecture_overrides)
    found = weights_finding(spec, section, ask), tokenizer_finding(spec, section, ask), _remote_code(spec, section)
    return spec, (*findings, *more, *filter(None, found))


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
            return _models_on_hub(name)
    return None, (_missing(name, HubAnswer("offline")),)


def _models_on_hub(name: str) -> Answer:
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
    return replace(spec, path=folder, has_weights=True) if holds_weights(folder) else replace(spec, path=None)


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


def _remote_code(spec: ModelSpec, section: ModelSection) -> Finding | None:
    if "auto_map" not in spec.architecture or section.trust_remote_code:
        return None
    message = tr(
        "{name} includes custom Python code, which is not run unless you allow it (--set "
        "model.trust_remote_code=true).",
        name=spec.name,
    )
    return Finding("remote_code", "warning", "model.trust_remote_code", message)


def _missing(name: str, answer: HubAnswer) -> Finding:
    models = load_models()
    near = difflib.get_close_matches(name.lower(), models, n=2, cutoff=0.5)
    # A model is of one task: only a name that is near enough to be meant is offered as a command.
    meant = tuple(Remedy(tr("use {name}", name=name), changes={"model.name": name}) for name in near)
    offline = Remedy(tr("models known offline: {models}", models=", ".join(models)))
    if is_hub_id(name) and "/" in name:
        fetch = Remedy(tr("download it on a machine with network access"), f"hf download {name}")
        message = tr(_NOT_CACHED["closed" if answer.closed else answer.state], name=name)
        return _no_model(message, (fetch, *meant, offline))
    message = tr("Unknown model {name}: not in the catalog, and not a file or folder on this machine.", name=repr(name))
    message += did_you_mean(near)
    return _no_model(message, (*meant, offline))


_NOT_CACHED = {
    "offline": mark("The model {name} is not in the local Hugging Face cache, and the Hub is disabled or unreachable."),
    "unknown": mark(
        "The model {name} is not in the local Hugging Face cache, and the Hub has no public model with that "
        "name (a private one needs HF_TOKEN)."
    ),
    "closed": mark(
        "The model {name} is not in the local Hugging Face cache, and it is gated on the Hub: accept its "
        "license there, then run hf auth login."
    ),
    "there": mark("The model {name} is not in the local Hugging Face cache, and it has no config.json on the Hub."),
}
"""State of the hub's answer -> the sentence for a model that is on neither side."""


def card_of(readme: str) -> dict[str, Any]:
    """The YAML head of a README.md; empty where there is none that can be read."""
    head = re.match(r"\A\s*---\s*\n(.*?)\n---\s*(\n|\Z)", readme, re.DOTALL)
    if head is None:
        return {}
    try:
        document = load_yaml(head[1])
    except yaml.YAMLError:
        return {}
    return document if isinstance(document, dict) else {}


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is not known is None."""

    weights_bytes: int | None = None
    """Of the weight files that are here."""
    weights_folder: Path | None = None
    """Where they are."""
    download_bytes: int | None = None
    """Of the weight files that the hub has, where they are not here and the hub was asked."""
    license: str | None = None


def read_model_facts(spec: ModelSpec) -> ModelFacts:
    """Reads the folder of the model; of the hub only what it has said already. Never raises."""
    folder = spec.path
    if folder is None and spec.hub_id is not None:
        folder = cached_model_folder(spec.hub_id)
    weights = _weights_bytes(folder) if folder is not None else None
    # A model whose config came from the hub: its answer is remembered, and there is no second question.
    answer = ask_hub(spec.hub_id) if spec.source == "hub" and spec.path is None and spec.hub_id else None
    return ModelFacts(
        weights_bytes=weights,
        weights_folder=folder if weights is not None else None,
        download_bytes=sum(answer.weights.values()) or None if answer is not None and weights is None else None,
        license=(_readme_licence(folder) if folder is not None else None)
        or spec.license
        or (answer.license if answer is not None else None),
    )


def _weights_bytes(folder: Path) -> int | None:
    try:
        found = weights_of({path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()})
    except OSError:
        return None
    return sum(found.values()) if found else None


def _readme_licence(folder: Path) -> str | None:
    """`license:` of the head of README.md; "other" gives way to its `license_name:`."""
    try:
        card = card_of(read_small(folder / "README.md").decode("utf-8", "replace"))
    except OSError:
        return None
    named = card.get("license_name") if card.get("license") == "other" else None
    found = named or card.get("license")
    return found if isinstance(found, str) else None
