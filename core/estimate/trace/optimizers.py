"""The optimizer of a request, with the states and temporaries that it has on a GPU."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Adafactor, Trainer

BLOCK = 256
"""Elements that share a scale in 8-bit Adam (bitsandbytes)."""
SMALLEST_8BIT = 4096
PAGED_FROM = 100_000


class EightBitAdam(torch.optim.Optimizer):
    """The state tensors of bitsandbytes' AdamW8bit, without its kernels.

    `paged` ones of large parameters are managed memory that torch does not count. `whole` holds the
    ids of parameters that keep fp32 states: the Trainer asks for that for embeddings.
    """

    def __init__(self, groups: Any, *, paged: bool, whole: set[int]) -> None:
        super().__init__(groups, {"lr": 1e-3})
        self._paged = paged
        self._whole = whole

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and not self.state[parameter]:
                    self.state[parameter] = self._states(parameter)

    def _states(self, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        size = parameter.numel()
        if self._paged and size >= PAGED_FROM:
            return {} if id(parameter) in self._whole else self._scales(parameter)
        if size < SMALLEST_8BIT or id(parameter) in self._whole:
            return {name: torch.zeros_like(parameter, dtype=torch.float32) for name in ("state1", "state2")}
        states = {name: torch.zeros_like(parameter, dtype=torch.uint8) for name in ("state1", "state2")}
        return {**states, **self._scales(parameter)}

    def _scales(self, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        blocks = -(-parameter.numel() // BLOCK)
        return {name: parameter.new_zeros(blocks, dtype=torch.float32) for name in ("absmax1", "absmax2")}


def make_optimizer(name: str, model: torch.nn.Module) -> torch.optim.Optimizer:
    """Of the weights that train, in the Trainer's two groups (with and without weight decay)."""
    decayed = set(Trainer.get_decay_parameter_names(None, model))  # type: ignore[arg-type]
    trained = [(key, value) for key, value in model.named_parameters() if value.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [value for key, value in trained if (key in decayed) == decays], "weight_decay": 0.01 * decays}
        for decays in (True, False)
    ]
    match name:
        case "adamw_torch":
            # On CUDA torch chooses foreach by itself.
            return torch.optim.AdamW(groups, lr=1e-3, foreach=True)
        case "adamw_torch_fused":
            return torch.optim.AdamW(groups, lr=1e-3, fused=True)
        case "adafactor":
            return Adafactor(groups, lr=1e-3, scale_parameter=False, relative_step=False)  # type: ignore[no-untyped-call]
        case "sgd":
            return torch.optim.SGD(groups, lr=1e-3, foreach=True)
        case _:
            tables = [module.weight for module in model.modules() if isinstance(module, torch.nn.Embedding)]
            return EightBitAdam(groups, paged=name.startswith("paged"), whole=set(map(id, tables)))
