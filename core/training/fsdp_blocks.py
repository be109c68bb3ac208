"""Which modules FSDP shares out by themselves: the blocks of the model, by the names of their classes."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Trainer
from transformers.modeling_layers import GradientCheckpointingLayer


def block_classes(model: torch.nn.Module) -> list[str]:
    """Class names of the blocks that transformers recomputes one by one, else those that the model itself calls whole."""
    found = {type(module).__name__ for module in model.modules() if isinstance(module, GradientCheckpointingLayer)}
    own = set(getattr(model, "_no_split_modules", None) or ())
    present = {type(module).__name__ for module in model.modules()}
    return sorted(found or own & present)


def name_blocks(trainer: Trainer) -> None:
    """Tell accelerate's plugin. Left to itself it takes `_no_split_modules`, which for ESM names a class that is not
    there (and refuses to start), and for Marian nothing, so that all of the model would be gathered at once."""
    plugin: Any = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    if plugin is None or trainer.model is None:
        return
    names = block_classes(trainer.model)
    if names:
        plugin.transformer_cls_names_to_wrap = names
    freeze_idle(trainer.model)


def freeze_idle(model: torch.nn.Module) -> None:
    """Weights that no language-model loss reaches: the contact head of ESM. They never get a gradient nor a state of the
    optimizer, and without one torch 2.13 refuses to load the optimizer of a trained weight back."""
    head = getattr(getattr(model, "esm", None), "contact_head", None)
    if head is not None:
        head.requires_grad_(False)
