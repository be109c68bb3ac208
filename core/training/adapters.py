"""LoRA adapters by peft: put onto a frozen base, taken up again from a checkpoint, merged at the end."""

from __future__ import annotations

import filecmp
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from trainwiz.core.config import RunConfig
from trainwiz.core.errors import usage_error
from trainwiz.core.estimate.architecture import ALL_LINEAR, lora_targets
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.language import tr
from trainwiz.core.run.folder import PARTIAL, RunFolder
from trainwiz.core.training.failure import rank_of_this_process
from trainwiz.core.training.shards import gathered
from trainwiz.core.training.weights import lasting_name, load_weights
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

TASK_TYPES = {
    "causal-lm": TaskType.CAUSAL_LM,
    "seq2seq": TaskType.SEQ_2_SEQ_LM,
    # Planned and traced only; peft trains its new head too.
    "sequence-classification": TaskType.SEQ_CLS,
}


def base_of_run(
    config: RunConfig, checkpoint: Path | None, folder: Path, build: Callable[[], PreTrainedModel]
) -> PreTrainedModel:
    """The base that the adapters sit on: pretrained weights, or RUN/base_model.

    A base from scratch exists nowhere else, so the first process saves it there before the first
    step, in the type that it is held in. A resumed run loads it back. Raises UsageError.
    """
    saved = RunFolder(folder.resolve()).base_model
    if config.model.init == "pretrained":
        base = build()
        base.config._name_or_path = base.name_or_path = lasting_name(str(base.name_or_path), config)
        return base
    if checkpoint is not None:
        if not (saved / "config.json").is_file():
            raise usage_error(
                "missing_base_model",
                str(saved),
                tr(
                    "{path} is missing: the adapters of {name} sit on that model, which was made from scratch.",
                    path=saved,
                    name=checkpoint.name,
                ),
            )
        base = load_weights(str(saved), config, tr("the base of the adapters"), whole=True)
    else:
        base = build()
        with gathered(base):
            if rank_of_this_process() == 0:
                _save_once(base, saved)
    base.config._name_or_path = base.name_or_path = str(saved)
    return base


def with_adapters(base: PreTrainedModel, config: RunConfig, checkpoint: Path | None) -> PreTrainedModel:
    """`base`, frozen, with trainable adapters in float32 (Hu et al. 2021): new ones, or those of the checkpoint."""
    model: Any
    if checkpoint is None:
        model = get_peft_model(base, lora_config(base, config))
    else:
        try:
            model = PeftModel.from_pretrained(base, str(checkpoint), is_trainable=True)
        except (OSError, ValueError, RuntimeError) as error:
            detail = str(error).splitlines()[0].rstrip(".")
            raise usage_error(
                "broken_checkpoint",
                str(checkpoint),
                tr("The adapters of {path} cannot be loaded: {reason}.", path=checkpoint, reason=detail),
            ) from error
    # On "auto" each save asks the hub whether the vocabulary was changed.
    object.__setattr__(model, "save_pretrained", partial(model.save_pretrained, save_embedding_layers=False))
    return model  # type: ignore[no-any-return]


def lora_config(base: PreTrainedModel, config: RunConfig) -> LoraConfig:
    """peft's settings. Raises UsageError for a target that the model does not have, with the names that it has."""
    peft = config.peft
    targets = _targets(base, peft.targets)
    linear = {name for name, module in base.named_modules() if isinstance(module, torch.nn.Linear | Conv1D)}
    unknown = [target for target in targets if not any(_matches(name, target) for name in linear)]
    if unknown or not targets:
        names = ", ".join(sorted({name.rsplit(".", 1)[-1] for name in linear}))
        message = tr(
            "The linear layers of the model are not known here; modules that can get an adapter are {names} "
            "(peft.targets).",
            names=names,
        )
        if unknown:
            message = tr(
                "The model has no module {unknown}; modules that can get an adapter are {names} (peft.targets).",
                unknown=", ".join(map(repr, unknown)),
                names=names,
            )
        raise usage_error(
            "unknown_lora_target",
            "peft.targets",
            message,
        )
    return LoraConfig(
        task_type=TASK_TYPES[config.task],
        r=peft.rank,
        lora_alpha=peft.alpha if peft.alpha is not None else 2 * peft.rank,  # type: ignore[arg-type]
        lora_dropout=peft.dropout,
        target_modules=targets,
        fan_in_fan_out=any(isinstance(base.get_submodule(name), Conv1D) for name in linear),
        bias="none",
    )


def _targets(base: PreTrainedModel, named: list[str]) -> list[str]:
    """The same names that the plan counts."""
    if named and tuple(named) != ALL_LINEAR:
        return named
    architecture, _ = read_architecture(base.config.to_dict())
    return list(lora_targets(architecture)) if architecture is not None else []


def _matches(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


def merged(model: PeftModel) -> PreTrainedModel:
    """The base with the adapters added to its weights, in place: W + alpha / rank x B A, rounded once to W's type."""
    base = model.merge_and_unload()
    assert isinstance(base, PreTrainedModel)
    return base


def _save_once(base: PreTrainedModel, place: Path) -> None:
    """Beside the place and renamed: complete or not there. Another base there moves aside."""
    partial_copy = place.with_name(f"{place.name}{PARTIAL}")
    base.save_pretrained(str(partial_copy))
    if place.exists():
        if _same_files(partial_copy, place):
            for path in partial_copy.iterdir():
                path.unlink()
            partial_copy.rmdir()
            return
        place.rename(free_name(place))
    partial_copy.rename(place)


def _same_files(first: Path, second: Path) -> bool:
    listed, others = (sorted(path.name for path in folder.iterdir()) for folder in (first, second))
    return listed == others and not any(filecmp.cmpfiles(first, second, listed, shallow=False)[1:])


def free_name(path: Path) -> Path:
    """`<name>.old-1`, or the next number that nothing has."""
    number = 1
    while path.with_name(f"{path.name}.old-{number}").exists():
        number += 1
    return path.with_name(f"{path.name}.old-{number}")
