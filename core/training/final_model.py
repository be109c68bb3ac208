"""final_model at the end of a run: complete or not there; with adapters alone, or merged into their base."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peft import PeftModel
from trainwiz.core.config import RunConfig
from trainwiz.core.language import tr
from trainwiz.core.run.folder import PARTIAL, RunFolder
from trainwiz.core.training.adapters import free_name, merged
from trainwiz.core.training.shards import forward_needs_all
from trainwiz.core.training.weights import load_weights, name_of_weights
from transformers import Trainer
from transformers.integrations.deepspeed import unset_hf_deepspeed_config


def save_final_model(trainer: Trainer, folder: RunFolder, config: RunConfig) -> None:
    """Save beside the place and rename; every process must call it.

    With `peft.merge` the adapters go to RUN/adapter first, and final_model is the whole model.
    """
    model: Any = trainer.accelerator.unwrap_model(trainer.model, keep_torch_compile=False)
    if not (config.peft.merge and isinstance(model, PeftModel)):
        _save(trainer, folder.final_model)
    else:
        _save(trainer, folder.adapter)
        if trainer.is_world_process_zero():
            partial = _partial(folder.final_model)
            whole = _adapted_base(folder, config) if forward_needs_all(model) else model
            merged(whole).save_pretrained(str(partial))
            if trainer.processing_class is not None:
                trainer.processing_class.save_pretrained(str(partial))
            _put_in_place(partial, folder.final_model)
    if trainer.is_world_process_zero():
        print(f"model saved in {folder.final_model}", flush=True)


def _adapted_base(folder: RunFolder, config: RunConfig) -> Any:
    """Base and adapters read back from the disk, for one process: the live ones are shared out among all."""
    # from_pretrained would share the base out again, and wait for processes that are not here.
    unset_hf_deepspeed_config()  # type: ignore[no-untyped-call]
    own = folder.base_model
    name = str(own) if (own / "config.json").is_file() else name_of_weights(config, folder.path)
    base: Any = load_weights(name, config, tr("the base of the adapters"))
    return PeftModel.from_pretrained(base, str(folder.adapter))


def _save(trainer: Trainer, place: Path) -> None:
    partial = _partial(place)
    trainer.save_model(str(partial))
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        _put_in_place(partial, place)


def _partial(place: Path) -> Path:
    return place.with_name(f"{place.name}{PARTIAL}")


def _put_in_place(partial: Path, place: Path) -> None:
    if place.exists():
        place.rename(free_name(place))
    partial.rename(place)
