"""final_model at the end of a run: complete or not there; with adapters alone, or merged into their base."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peft import PeftModel
from trainwiz.core.run.folder import PARTIAL, RunFolder
from trainwiz.core.training.adapters import free_name, merged
from transformers import Trainer


def save_final_model(trainer: Trainer, folder: RunFolder, merge: bool) -> None:
    """Save beside the place and rename; every process must call it.

    With `merge` the adapters go to RUN/adapter first, and final_model is the whole model.
    """
    model: Any = trainer.accelerator.unwrap_model(trainer.model, keep_torch_compile=False)
    if not (merge and isinstance(model, PeftModel)):
        _save(trainer, folder.final_model)
    else:
        _save(trainer, folder.adapter)
        if trainer.is_world_process_zero():
            partial = _partial(folder.final_model)
            merged(model).save_pretrained(str(partial))
            if trainer.processing_class is not None:
                trainer.processing_class.save_pretrained(str(partial))
            _put_in_place(partial, folder.final_model)
    if trainer.is_world_process_zero():
        print(f"model saved in {folder.final_model}", flush=True)


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
