"""FoundModel: what a run or a folder holds as a model: whole or an adapter, its base, its task, its run."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trainwiz.core.catalog.hub import cached_model_folder, is_hub_id
from trainwiz.core.catalog.model_config import ADAPTER_FILE, from_architecture, holds_weights
from trainwiz.core.catalog.models import has_chat_template, has_tokenizer, resolve_model
from trainwiz.core.config import RunConfig
from trainwiz.core.errors import UsageError, usage_error
from trainwiz.core.files import at_home
from trainwiz.core.language import mark, tr
from trainwiz.core.launch.start import read_run_config
from trainwiz.core.run.checkpoints import PROGRESS_JSON, complete_checkpoints
from trainwiz.core.run.folder import RunFolder, name_for_commands, read_json
from trainwiz.core.run.listing import find_run

Speech = Literal["chat", "fill", "translate"]
SPEECH: dict[str, Speech] = {"causal-lm": "chat", "masked-lm": "fill", "seq2seq": "translate"}
"""Task -> how such a model is spoken to."""
BITS = {"nf4": 4, "int8": 8}
"""engine.base_precision -> bits of a weight."""
CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that can be loaded from this machine."""

    path: Path
    """Of the weights, or of the adapter."""
    kind: Literal["whole", "adapter"]
    task: str
    architecture: dict[str, Any]
    tokenizer: Path
    """The folder whose tokenizer it is spoken to with."""
    base: Path | None = None
    """Of an adapter: what it sits on. Of a whole model: the pretrained one that it was trained from, where it is here."""
    base_name: str | None = None
    """The base as hub and people call it."""
    run: RunFolder | None = None
    config: RunConfig | None = field(default=None, repr=False)
    taken: str = ""
    """One sentence, where a choice was made among several."""

    @property
    def name(self) -> str:
        return (self.run.path if self.run is not None else self.path).resolve().name

    @property
    def has_template(self) -> bool:
        return has_chat_template(self.tokenizer)

    @property
    def dtype(self) -> str:
        """Of the weights as they were saved, in torch's word; "" where that is not said."""
        return str(self.architecture.get("dtype") or self.architecture.get("torch_dtype") or "")

    @property
    def bits(self) -> int:
        """In which the base of the adapter was held while it was trained."""
        precision = self.config.engine.base_precision if self.config is not None and self.kind == "adapter" else None
        return BITS.get(str(precision), 16)

    @property
    def speech(self) -> Speech | None:
        return SPEECH.get(self.task)


def find_model(text: str, base: str | None = None) -> FoundModel:
    """The model that `text` means: a run, or a folder with a model or an adapter.
    `base` overrides what an adapter says that it sits on. Raises UsageError with one sentence."""
    folder = at_home(Path(text))
    run, taken = None, ""
    if _holds_model(folder):
        parent = RunFolder(folder.resolve().parent)
        run = parent if parent.is_run() else None
    elif os.path.isdir(folder) and not RunFolder(folder).is_run():  # noqa: PTH112
        message = tr(
            "{path} contains no model: neither config.json with weights, nor {adapter}, nor the run.yaml of a run.",
            path=folder,
            adapter=ADAPTER_FILE,
        )
        raise usage_error("no_model", str(folder), message)
    else:
        run = find_run(text)
        folder, taken = _model_of_run(run)
    return _read(folder, run, taken, base)


def _holds_model(folder: Path) -> bool:
    return (folder / ADAPTER_FILE).is_file() or _holds_whole(folder)


def _holds_whole(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and holds_weights(folder)


def _model_of_run(run: RunFolder) -> tuple[Path, str]:
    """(its folder, what was chosen): the final model, else the best checkpoint, else the newest."""
    if _holds_model(run.final_model):
        return run.final_model, tr("The final model of the run is used.")
    found = [one for one in complete_checkpoints(run) if _holds_model(one.path)]
    if not found:
        message = tr(
            "{run} has no model yet: no final_model and no complete checkpoint that contains one.", run=run.path.name
        )
        raise usage_error("no_model", str(run.path), message)
    path, which = found[-1].path, tr("newest")
    step = (read_json(path / PROGRESS_JSON) or {}).get("best_step")
    for one in found:
        if one.step == step:
            path, which = one.path, tr("best")
    return path, tr("The run has no final model; its {which} checkpoint is used: {name}.", which=which, name=path.name)


def _read(folder: Path, run: RunFolder | None, taken: str, base: str | None) -> FoundModel:
    config = read_run_config(run) if run is not None else None
    if (folder / ADAPTER_FILE).is_file():
        adapter = read_json(folder / ADAPTER_FILE)
        if adapter is None:
            message = tr("{path} is not valid JSON; it may be truncated.", path=folder / ADAPTER_FILE)
            raise usage_error("broken_adapter", str(folder), message)
        name: str | None = base or str(adapter.get("base_model_name_or_path") or "")
        found: Path | None = _base_of(str(name), folder, run, asked=base is not None)
        described = found or folder
    elif base is not None:
        message = tr("{path} is a full model; --base only works with an adapter.", path=folder)
        raise usage_error("bad_choice", "--base", message)
    else:
        adapter, described = None, folder
        name, found = config.model.name if config else None, _trained_from(config, run)
    document = read_json(described / CONFIG)
    if document is None:
        message = tr("{path} is missing or not valid JSON.", path=described / CONFIG)
        raise usage_error("no_model", str(described), message)
    spec, findings = from_architecture(document, described.name, "folder", described / CONFIG)
    if spec is None:
        raise UsageError(findings)
    places = [folder, *([run.tokenizer] if run is not None else []), described]
    tokenizer = next((place for place in places if has_tokenizer(place)), None)
    if tokenizer is None:
        message = tr("{path} contains no tokenizer, and neither does its base model.", path=folder)
        raise usage_error("missing_tokenizer", str(folder), message)
    return FoundModel(
        path=folder,
        kind="whole" if adapter is None else "adapter",
        task=config.task if config is not None else spec.task,
        architecture=spec.architecture,
        tokenizer=tokenizer,
        base=found,
        base_name=name,
        run=run,
        config=config,
        taken=taken,
    )


def _base_of(name: str, adapter: Path, run: RunFolder | None, *, asked: bool) -> Path:
    """Where the base of an adapter lies. Raises UsageError, which says how to get it."""
    if not name:
        message = tr("The adapter in {path} does not name its base model; specify it: --base FOLDER.", path=adapter)
        raise usage_error("missing_base_model", str(adapter), message)
    places = [at_home(Path(name))]
    if run is not None:
        # A relative name is one from where the training was started: the folder of runs is in it, mostly.
        places.append(run.path.parent.parent / name)
        if Path(name).name == run.base_model.name and not asked:
            places.insert(0, run.base_model)
    found = _whole_model(places, name)
    if found is not None:
        return found
    message = tr("{name} is not a folder that contains a model.", name=name)
    if not asked:
        message = tr(
            "The adapter's base model is missing: {name} contains no model. Specify its folder (--base FOLDER), or for a "
            "model of the Hub download it: hf download {name}",
            name=name,
        )
    raise usage_error("missing_base_model", "--base", message)


def _trained_from(config: RunConfig | None, run: RunFolder | None) -> Path | None:
    """The pretrained model that a run began with, where it is on this machine."""
    if config is None or run is None or config.model.init != "pretrained":
        return None
    spec, _ = resolve_model(config.model)
    name = at_home(Path(config.model.name))
    return _whole_model([run.path / name, name], (spec and spec.hub_id) or "")


def _whole_model(places: list[Path], hub_id: str) -> Path | None:
    """The first of `places` with a whole model, else that of the hub's cache."""
    cached = cached_model_folder(hub_id) if is_hub_id(hub_id) else None
    return next((place for place in [*places, cached] if place is not None and _holds_whole(place)), None)


SAID = {"chat": mark("chat with it"), "fill": mark("fill in masks with it"), "translate": mark("translate with it")}


def next_commands(run: RunFolder) -> list[tuple[str, str]]:
    """(what it does, the command): the two that matter after a finished run. None where it has no model to speak to."""
    if not _holds_model(run.final_model):
        return []
    name = name_for_commands(run.path)
    try:
        speech = SPEECH.get(read_run_config(run).task)
    except UsageError:
        return []
    commands = [] if speech is None else [(tr(SAID[speech]), f"trainwiz model {speech} {name}")]
    if (run.final_model / ADAPTER_FILE).is_file():
        target = shlex.quote(f"{run.path.name}-merged")
        commands.append((tr("merge the adapter into its base model"), f"trainwiz model merge {name} --to {target}"))
    elif speech == "chat":
        commands.append((tr("export it to Ollama"), f"trainwiz model export {name} --ollama"))
    else:
        commands.append((tr("write its model card"), f"trainwiz model card {name}"))
    return commands
