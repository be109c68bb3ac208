"""Marks: which part of the model a step is at, told to the ledger as phases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from trainwiz.core.language import mark
from transformers.modeling_layers import GradientCheckpointingLayer

FORWARD = mark("the forward pass")
FORWARD_END = mark("the end of the forward pass")
LOSS = mark("the loss")
LOSS_BACKWARD = mark("the start of the backward pass")
BACKWARD_END = mark("the end of the backward pass")
CLIPPING = mark("clipping the gradients")
STEP = mark("the optimizer step")

BACKWARD = {
    "": (
        mark("the backward pass of the last layer"),
        mark("the backward pass of the first layer"),
        mark("the backward pass of the other layers"),
    ),
    "encoder": (
        mark("the backward pass of the encoder's last layer"),
        mark("the backward pass of the encoder's first layer"),
        mark("the backward pass of the encoder's other layers"),
    ),
    "decoder": (
        mark("the backward pass of the decoder's last layer"),
        mark("the backward pass of the decoder's first layer"),
        mark("the backward pass of the decoder's other layers"),
    ),
}
"""Stack -> its last layer, the first, those in between."""


def backward_phase(stack: str, place: int, layers: int) -> str:
    """Layers in between are one phase, so that the phases are the same for any depth."""
    return BACKWARD[stack][0 if place == layers - 1 else 1 if place == 0 else 2]


def layer_stacks(model: nn.Module) -> list[tuple[str, list[nn.Module]]]:
    """(name, layers) of each stack, in the order in which they run; the name is "" where there is one stack."""
    found: list[tuple[str, list[nn.Module]]] = []
    for path, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) and not any(path.startswith(f"{p}.") for p, _ in found):
            layers = list(module)
            if all(isinstance(layer, GradientCheckpointingLayer) for layer in layers):
                found.append((path, layers))
    if len(found) < 2:
        return [("", layers) for _, layers in found]
    return [("decoder" if "decoder" in path else "encoder", layers) for path, layers in found]


class Marks:
    """Hooks on the layers of a model; `enter` is called with the phase that begins.

    The hooks are on the tensors between the layers, which adds nothing to what the graph keeps.
    """

    def __init__(self, model: nn.Module, enter: Callable[[str], None]) -> None:
        self._enter = enter
        self._handles = []
        stacks = layer_stacks(model)
        self.known = bool(stacks)
        for name, layers in stacks:
            self._handles.append(layers[0].register_forward_pre_hook(self._before_first, with_kwargs=True))
            for place, layer in enumerate(layers):
                ends = layers is stacks[-1][1] and place == len(layers) - 1
                hook = self._after_layer(backward_phase(name, place, len(layers)), ends)
                self._handles.append(layer.register_forward_hook(hook))

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _before_first(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        hidden = args[0] if args else kwargs.get("hidden_states")
        if isinstance(hidden, torch.Tensor) and hidden.requires_grad and torch.is_grad_enabled():
            hidden.register_hook(lambda gradient: self._enter(BACKWARD_END))  # type: ignore[no-untyped-call]

    def _after_layer(self, phase: str, ends: bool) -> Callable[..., None]:
        def after(module: nn.Module, args: Any, output: Any) -> None:
            hidden = output[0] if isinstance(output, tuple | list) else output
            if isinstance(hidden, torch.Tensor) and hidden.requires_grad and torch.is_grad_enabled():
                hidden.register_hook(lambda gradient: self._enter(phase))  # type: ignore[no-untyped-call]
            if ends:
                self._enter(FORWARD_END)

        return after
