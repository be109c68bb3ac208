"""The model catalogue: what a model name stands for, and whether weights and tokenizer are here."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
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
    model_error,
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

MADE_FROM_THE_DATA = "train"
"""Value of model.tokenizer that makes one from the rows."""


def default_init(spec: ModelSpec) -> Literal["pretrained", "scratch"]:
    """`pretrained` where weights are here or published under the model's name; else there is nothing to load."""
    here = spec.has_weights or (spec.path is not None and bool(missing_shards(spec.path)))
    return "pretrained" if here or spec.hub_id is not None else "scratch"


def _weights_finding(spec: ModelSpec, section: ModelSection, ask: AskHub) -> Finding | None:
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
        return model_error("missing_model", message)
    scratch = Remedy(tr("train from scratch"), "--set model.init=scratch", {"model.init": "scratch"})
    if spec.hub_id is None:
        message = tr("{name} has no pretrained weights.", name=spec.name)
        return Finding("missing_model", "error", "model.init", message, (scratch,))
    answer = ask(spec.hub_id)
    return _on_hub(spec.hub_id, "model.safetensors", answer, answer.weights, "missing_model", "model.name", scratch)


def quantized_message(name: str, quantized: str) -> str:
    return tr(
        "The weights of {name} are quantized ({method}); trainwiz trains from the original model. QLoRA "
        "(engine.base_precision=nf4) quantizes that to 4 bits when it loads it.",
        name=name,
        method=plain_text(quantized, 40),
    )


def _tokenizer_finding(spec: ModelSpec, section: ModelSection, ask: AskHub) -> Finding | None:
    """The same for the tokenizer of a text task; a note where one is made from the rows in place of the model's own."""
    if spec.architecture.get("model_type") == "esm" or section.tokenizer == MADE_FROM_THE_DATA:
        return None
    if section.tokenizer is not None:
        return _named_tokenizer(section.tokenizer, ask)
    if has_tokenizer(spec.path) or (spec.hub_id is not None and has_tokenizer(cached_model_folder(spec.hub_id))):
        return None
    if section.init == "scratch":
        return _made(spec) if spec.hub_id is not None else None
    if spec.hub_id is None:
        message = tr(
            "{name} has no tokenizer; specify one with model.tokenizer (a folder or a Hub ID).", name=spec.name
        )
        return Finding("missing_tokenizer", "error", "model.tokenizer", message)
    # One download brings both, and what is said of the weights holds for the tokenizer.
    return _tokenizer_on_hub(spec.hub_id, "model.name", ask) if spec.has_weights else None


def _named_tokenizer(name: str, ask: AskHub) -> Finding | None:
    path = at_home(Path(name))
    if has_tokenizer(path if path.is_dir() else path.parent if path.exists() else cached_model_folder(name)):
        return None
    if path.exists():
        files = ", ".join(sorted(TOKENIZER_FILES)[:3])
        message = tr("{folder} does not contain a tokenizer ({files}, ...).", folder=path, files=files)
    elif is_hub_id(name):
        return _tokenizer_on_hub(name, "model.tokenizer", ask)
    else:
        message = tr(
            "Unknown tokenizer {name}: not a folder on this machine, and not a Hub ID (owner/name).", name=repr(name)
        )
    return Finding("missing_tokenizer", "error", "model.tokenizer", message)


def _tokenizer_on_hub(hub_id: str, where: str, ask: AskHub) -> Finding:
    answer = ask(hub_id)
    files = {name: size for name, size in answer.sizes.items() if name in TOKENIZER_FILES}
    return _on_hub(hub_id, "tokenizer.json", answer, files, "missing_tokenizer", where)


_NOT_ON_HUB = {
    "offline": mark("{name} has no {file} on this machine, and the Hub is disabled or unreachable."),
    "unknown": mark(
        "{name} has no {file} on this machine, and the Hub has no public model with that name (a private one needs "
        "HF_TOKEN)."
    ),
    "there": mark("{name} has no {file}: neither on this machine nor on the Hub."),
}
"""State of the hub's answer -> the sentence for what is on neither side."""


def _on_hub(
    hub_id: str, file: str, answer: HubAnswer, has: Mapping[str, int], code: str, where: str, *others: Remedy
) -> Finding:
    """What comes of files that are not here and of which the hub `has` these; `file` is the usual one, for the sentence."""
    if answer.closed:
        message = tr(
            "{hub_id} is gated: accept its license on its page, then log in with `hf auth login`.", hub_id=hub_id
        )
        return Finding("gated_model", "error", where, message, others)
    command = f"hf download {hub_id}"
    if has:
        message = tr(
            "{hub_id} is not on this machine: {files} will be downloaded when the run starts.",
            hub_id=hub_id,
            files=amount_of(has),
        )
        return Finding("model_to_download", "warning", where, message, (Remedy(tr("download them now"), command),))
    fetch = Remedy(tr("download it on a machine with network access"), command)
    remedies = (fetch, *others) if answer.state == "offline" else others
    return Finding(code, "error", where, tr(_NOT_ON_HUB[answer.state], name=hub_id, file=file), remedies)


def _made(spec: ModelSpec) -> Finding:
    message = tr(
        "The tokenizer of {hub_id} is not on this machine. A new tokenizer will be trained on your data. Fine from scratch, but it won't match the published model.",
        hub_id=spec.hub_id,
    )
    fetch = Remedy(tr("use the published one"), f"hf download {spec.hub_id} --include 'tokenizer*' config.json")
    return Finding("tokenizer_made", "note", "model.tokenizer", message, (fetch,))


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
    spec, findings = _filled_in(section) if section.architecture is not None else _find(section.name, ask)
    if spec is None:
        return None, findings
    if section.init is None:
        section = section.model_copy(update={"init": default_init(spec)})
    spec, more = _overridden(spec, section.architecture_overrides)
    found = _weights_finding(spec, section, ask), _tokenizer_finding(spec, section, ask), _remote_code(spec, section)
    return spec, (*findings, *more, *filter(None, found))


def _find(name: str, ask: AskHub = lambda _: HubAnswer("offline")) -> Answer:
    path = at_home(Path(name))
    known = _in_catalogue(name)
    if known is not None:
        return _with_cache(known), ()
    if path.is_dir():
        return read_config(path / "config.json", name, "folder")
    if path.is_file() or path.suffix == ".json":
        return read_config(path, name, "config")
    folder = cached_model_folder(name)
    if folder is not None:
        spec, findings = read_config(folder / "config.json", name, "hub")
        return (_with_cache(replace(spec, hub_id=name)) if spec else None), findings
    # A word without an owner is a typing mistake more often than a model: it is not sent anywhere.
    answer = ask(name) if is_hub_id(name) and "/" in name else HubAnswer("offline")
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
    remedies = (*meant, Remedy(tr("models known offline: {models}", models=", ".join(models))))
    if is_hub_id(name) and "/" in name:
        return _on_hub(name, "config.json", answer, {}, "missing_model", "model.name", *remedies)
    message = tr("Unknown model {name}: not in the catalog, and not a file or folder on this machine.", name=repr(name))
    return Finding("missing_model", "error", "model.name", message + did_you_mean(near), remedies)


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
