"""Cross entropy of a vocabulary product, one slice of positions at a time, forwards and backwards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy, linear
from torch.utils.checkpoint import checkpoint
from trainwiz.core.training.vocabulary import VocabularyProduct


def sliced_loss(
    product: VocabularyProduct, positions: torch.Tensor, targets: torch.Tensor, smoothing: float
) -> torch.Tensor:
    """Summed cross entropy in nats, in float32, at `positions` (n,) of the product; targets (n,).

    Each slice of logits is computed again in the backward pass, so that no more than one exists at
    a time: a product more than the plain loss, as each checkpointed layer costs.
    """

    def compute(rows: torch.Tensor) -> torch.Tensor:
        head: Any = product.head
        if type(head) is nn.Linear:
            arguments = (product, smoothing, targets, rows, head.weight, head.bias, *product.constants)
            total: torch.Tensor = _LinearHead.apply(*arguments)  # type: ignore[no-untyped-call]
            return total
        # An adapter on the last layer, say.
        total = rows.new_zeros((), dtype=torch.float32)
        for some, their in zip(torch.split(rows, product.chunk), torch.split(targets, product.chunk), strict=True):
            total = total + checkpoint(_slice_loss, product, some, their, smoothing, use_reentrant=False)
        return total

    return product.read(product.rows()[positions], compute)


def _slice_loss(
    product: VocabularyProduct, rows: torch.Tensor, targets: torch.Tensor, smoothing: float
) -> torch.Tensor:
    return _summed(product.logits_of(rows), targets, smoothing)


def _summed(logits: torch.Tensor, targets: torch.Tensor, smoothing: float) -> torch.Tensor:
    return cross_entropy(logits.float(), targets, reduction="sum", label_smoothing=smoothing)


class _LinearHead(torch.autograd.Function):
    """The loss of a linear last layer.

    Under autocast its weights are cast once each way rather than for each slice, and their
    gradient is summed over the slices in the weights' own type: as exact as one product.
    """

    @staticmethod
    def forward(
        ctx: Any,
        product: VocabularyProduct,
        smoothing: float,
        targets: torch.Tensor,
        rows: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        *constants: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(targets, rows, weight, bias, *constants)
        # Without the whole of its input, of which `rows` has what is needed.
        ctx.product, ctx.smoothing = replace(product, hidden=rows.new_empty(0)), smoothing
        kind = rows.device.type
        ctx.autocast = {
            "device_type": kind,
            "enabled": torch.is_autocast_enabled(kind),
            "dtype": torch.get_autocast_dtype(kind),
        }
        total = rows.new_zeros((), dtype=torch.float32)
        held, added = _cast(ctx.autocast, rows, weight, bias)
        for some, their in zip(torch.split(rows, product.chunk), torch.split(targets, product.chunk), strict=True):
            logits = linear(some.to(held.dtype), held, added)
            total += _summed(product.changed(logits), their, smoothing)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        targets, rows, weight, bias, *constants = ctx.saved_tensors
        product: VocabularyProduct = ctx.product
        needs_rows, needs_weight, needs_bias, *needed = ctx.needs_input_grad[3:]
        learned = [constant for constant, needs in zip(constants, needed, strict=True) if needs]
        of_rows = torch.empty_like(rows) if needs_rows else None
        of_weight = torch.zeros_like(weight) if needs_weight else None
        of_bias = torch.zeros_like(bias) if needs_bias else None
        of_learned = [torch.zeros_like(constant) for constant in learned]
        with torch.autocast(**ctx.autocast):
            held, added = _cast(ctx.autocast, rows, weight, bias)
            for start in range(0, len(rows), product.chunk):
                part = slice(start, start + product.chunk)
                some = rows[part].to(held.dtype)
                logits = linear(some, held, added).requires_grad_()
                with torch.enable_grad():
                    loss = _summed(product.changed(logits), targets[part], ctx.smoothing)
                of_logits, *others = torch.autograd.grad(loss, [logits, *learned], gradients[0])
                del logits, loss
                if of_rows is not None:
                    of_rows[part] = of_logits @ held
                if of_weight is not None:
                    of_weight += of_logits.T @ some
                if of_bias is not None:
                    of_bias += of_logits.sum(0)
                for whole, other in zip(of_learned, others, strict=True):
                    whole += other
        learned_gradients = iter(of_learned)
        return (
            *(None, None, None, of_rows, of_weight, of_bias),
            *(next(learned_gradients) if needs else None for needs in needed),
        )


def _cast(
    autocast: dict[str, Any], rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weight and bias as the product takes them."""
    dtype = autocast["dtype"] if autocast["enabled"] else weight.dtype
    return weight.to(dtype), None if bias is None else bias.to(dtype)
