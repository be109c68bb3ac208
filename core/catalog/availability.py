"""Whether the weights and the tokenizer of a model are here, and what the hub can give where they are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from trainwiz.core.catalog.hub_cache import cached_model_folder, is_hub_id
from trainwiz.core.catalog.hub_model import PICKLES, SAFETENSORS, TOKENIZER_FILES, HubModel
from trainwiz.core.catalog.model import ModelSpec
from trainwiz.core.config.sections import ModelSection
from trainwiz.core.findings import Finding, Remedy, after
from trainwiz.core.language import tr, trn
from trainwiz.core.telemetry.paths import at_home

AskHub = Callable[[str], HubModel]

MADE_FROM_THE_DATA = "train"
"""Value of model.tokenizer that makes one from the rows."""


def default_init(spec: ModelSpec) -> Literal["pretrained", "scratch"]:
    """`pretrained` where weights are here or published under the model's name; else there is nothing to load."""
    here = spec.has_weights or (spec.path is not None and any(spec.path.glob("pytorch_model*.bin")))
    return "pretrained" if here or spec.hub_id is not None else "scratch"


def weights_findings(spec: ModelSpec, section: ModelSection, ask: AskHub) -> tuple[Finding, ...]:
    """() where the run needs no weights or has them; a warning where they are downloaded when it starts; else an error."""
    if section.init != "pretrained" or spec.has_weights:
        return ()
    if spec.path is not None and any(spec.path.glob("pytorch_model*.bin")):
        # Read by torch's restricted unpickler, which runs no code.
        return ()
    if spec.hub_id is None:
        message = tr("There are no pretrained weights for {name}.", name=spec.name)
        return (Finding("missing_model", "error", "model.init", message, (_from_scratch(),)),)
    return (_from_hub(spec, ask(spec.hub_id)),)


def _from_hub(spec: ModelSpec, answer: HubModel) -> Finding:
    hub_id = str(spec.hub_id)
    fetch = Remedy(tr("download them where there is a network"), f"hf download {hub_id}")
    if answer.state == "unknown":
        message = tr(
            "The weights of {hub_id} are not on this machine, and the hub shows no public model of that name "
            "(a private one needs HF_TOKEN).",
            hub_id=hub_id,
        )
        return Finding("missing_model", "error", "model.name", message, (_from_scratch(),))
    if answer.state == "offline":
        message = tr("The weights of {hub_id} are not on this machine.", hub_id=hub_id)
        if spec.gated:
            message += after(tr("It asks for its licence to be accepted on its page first."))
        return Finding("missing_model", "error", "model.name", message, (fetch, _from_scratch()))
    if answer.closed:
        return Finding("gated_model", "error", "model.name", _licence(hub_id), (_from_scratch(),))
    safe, pickles = answer.files(SAFETENSORS), answer.files(PICKLES)
    if not safe and not pickles:
        message = tr(
            "The weights of {hub_id} are not on this machine, and {hub_id} on the hub has no weights that transformers "
            "loads (model.safetensors).",
            hub_id=hub_id,
        )
        return Finding("missing_model", "error", "model.name", message, (_from_scratch(),))
    message = tr(
        "The weights of {hub_id} are not on this machine; {files} are downloaded when the run starts.",
        hub_id=hub_id,
        files=_amount(safe or pickles),
    )
    now = Remedy(tr("download them now"), f"hf download {hub_id}")
    return Finding("model_to_download", "warning", "model.name", message, (now,))


def tokenizer_findings(spec: ModelSpec, section: ModelSection, ask: AskHub) -> tuple[Finding, ...]:
    """The same for the tokenizer of a text task; a note where one is made from the rows in place of the model's own."""
    named = section.tokenizer
    if spec.task == "masked-lm" or named == MADE_FROM_THE_DATA:
        return ()
    if named is not None:
        return _named(named, ask)
    if spec.path is not None and has_tokenizer(spec.path):
        return ()
    if spec.hub_id is None:
        if section.init == "scratch":
            return ()
        message = tr(
            "There is no tokenizer with {name}; name one with model.tokenizer (a folder or a hub id).", name=spec.name
        )
        return (Finding("missing_tokenizer", "error", "model.tokenizer", message),)
    cached = cached_model_folder(spec.hub_id)
    if cached is not None and has_tokenizer(cached):
        return ()
    if section.init == "scratch":
        return (_made(spec),)
    return _on_hub(spec.hub_id, "model.name", ask(spec.hub_id), weights_too=not spec.has_weights)


def has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def _named(name: str, ask: AskHub) -> tuple[Finding, ...]:
    path = at_home(Path(name))
    if path.exists():
        folder = path if path.is_dir() else path.parent
        if has_tokenizer(folder):
            return ()
        message = tr(
            "{folder} holds no tokenizer ({files}, ...).", folder=folder, files=", ".join(sorted(TOKENIZER_FILES)[:3])
        )
        return (Finding("missing_tokenizer", "error", "model.tokenizer", message),)
    cached = cached_model_folder(name) if is_hub_id(name) else None
    if cached is not None and has_tokenizer(cached):
        return ()
    if not is_hub_id(name):
        message = tr("There is no tokenizer {name}: no folder here, and no hub id (owner/name).", name=repr(name))
        return (Finding("missing_tokenizer", "error", "model.tokenizer", message),)
    return _on_hub(name, "model.tokenizer", ask(name), weights_too=False)


def _on_hub(hub_id: str, where: str, answer: HubModel, *, weights_too: bool) -> tuple[Finding, ...]:
    if weights_too:
        # One download brings both, and what is said of the weights holds for the tokenizer.
        return ()
    fetch = Remedy(tr("download it where there is a network"), f"hf download {hub_id}")
    if answer.closed:
        return (Finding("gated_model", "error", where, _licence(hub_id)),)
    if answer.state == "there" and answer.has_tokenizer:
        message = tr(
            "The tokenizer of {hub_id} is not on this machine; it is downloaded when the run starts.", hub_id=hub_id
        )
        return (Finding("model_to_download", "warning", where, message),)
    if answer.state == "offline":
        message = tr("The tokenizer of {hub_id} is not on this machine.", hub_id=hub_id)
    else:
        message = tr(
            "The tokenizer of {hub_id} is not on this machine, and the hub has none of that name.", hub_id=hub_id
        )
    return (Finding("missing_tokenizer", "error", where, message, (fetch,)),)


def _made(spec: ModelSpec) -> Finding:
    entries = spec.architecture.get("vocab_size")
    if isinstance(entries, int):
        message = tr(
            "The tokenizer of {hub_id} is not on this machine. A new tokenizer (up to {entries} entries) will be trained on your data. Fine from scratch, but it won't match the published model.",
            hub_id=spec.hub_id,
            entries=f"{entries:,}",
        )
    else:
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
        "{hub_id} is for accounts that accepted its licence: do so on its page, then log in with `hf auth login`.",
        hub_id=hub_id,
    )


def _amount(files: Mapping[str, int]) -> str:
    total = sum(files.values())
    if not total:
        return trn("{n} file", "{n} files", len(files))
    size = f"{total / 1e9:.1f} GB" if total >= 1e8 else f"{total / 1e6:.0f} MB"
    return trn("{n} file with {size}", "{n} files with {size}", len(files), size=size)
