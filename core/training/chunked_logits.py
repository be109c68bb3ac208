"""The loss over slices of the vocabulary's logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partialmethod, wraps
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy, linear
from torch.utils.checkpoint import checkpoint
from trainwiz.core.errors import usage_error
from trainwiz.core.language import tr

# Logits that never exist whole: the product with the vocabulary, kept apart to be computed in slices.
#
# For a large vocabulary they are the fullest point of a step. `let_logits_be_read(model, chunk)` changes the bare model,
# once, before accelerate, DDP or DeepSpeed wrap it:
#
#     outputs = model(**inputs, logits_reader=reader)
#     outputs.loss                              # what reader(logits) returned; outputs.logits is None
#
# The reader (StepLoss and batch_sums of core.training.evaluation) runs inside the forward pass: under its autocast, before
# accelerate makes a float32 copy of what comes out, and where DDP and DeepSpeed still count the last layer as the model's.
# Without one the model is as it was, so `generate`, `state_dict` and tied weights are untouched.

READER = "logits_reader"
"""Keyword of the model's forward pass."""
Change = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, eq=False)  # without slots: ZeRO-3 looks through vars() of whatever a layer gives
class VocabularyProduct:
    """What the last layer would have made of `hidden` (..., width), and what the model does to it afterwards.

    Models add a bias, scale or cap their logits after the last layer. Such elementwise steps are
    kept in `changes`, in order, and done to each slice. Any other use of it raises UsageError.
    """

    head: nn.Module
    hidden: torch.Tensor
    chunk: int
    """Positions of a slice."""
    changes: tuple[Change, ...] = ()
    constants: tuple[torch.Tensor, ...] = ()
    """Tensors among the changes, such as a bias, which may have gradients."""

    def rows(self) -> torch.Tensor:
        """(positions, width): the inputs of the last layer, one for each position."""
        return self.hidden.reshape(-1, self.hidden.shape[-1])

    def changed(self, logits: torch.Tensor) -> torch.Tensor:
        for change in self.changes:
            logits = change(logits)
        return logits

    def read(self, rows: torch.Tensor, compute: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """compute(rows) inside one call of the last layer, however many slices it takes.

        Where processes share the weights out (ZeRO-3), each call gathers them from all: slices,
        whose number differs between processes, would wait for each other for ever.
        """
        if type(self.head) is not nn.Linear and any(hasattr(weight, "ds_id") for weight in self.head.parameters()):
            raise not_sliceable(self.head)
        with _replaced(self.head, compute):
            result: torch.Tensor = self.head(rows)
        return result

    def logits_of(self, rows: torch.Tensor) -> torch.Tensor:
        """(some positions, vocabulary) of `rows` (some positions, width); within `read`."""
        forward: Callable[..., torch.Tensor] = type(self.head).forward
        return self.changed(forward(self.head, rows))

    def recorded(self, name: str, *others: Any, **named: Any) -> VocabularyProduct:
        """With the method of that `name` of a tensor done to each slice."""
        if name == "__getitem__" and not _some_of_the_vocabulary(*others):
            raise not_sliceable(self.head)
        if any(isinstance(other, torch.Tensor) and any(size != 1 for size in other.shape[:-1]) for other in others):
            # It differs from position to position, and the slices have lost their places.
            raise not_sliceable(self.head)
        kept = [_kept(other) if isinstance(other, torch.Tensor) else other for other in others]
        constants = (value for value in kept if isinstance(value, torch.Tensor))
        return replace(
            self,
            changes=(*self.changes, lambda logits: getattr(logits, name)(*kept, **named)),
            constants=(*self.constants, *constants),
        )

    @property
    def device(self) -> torch.device:
        return self.hidden.device

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> VocabularyProduct:
        """torch.tanh(logits) and tensor * logits, where the tensor stands first."""
        product = next(value for value in args if isinstance(value, cls))
        name = function.__name__.strip("_r")
        if name not in ("mul", "add", "tanh") or kwargs:
            raise not_sliceable(product.head)
        return product.recorded(name, *(value for value in args if value is not product))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise not_sliceable(self.head)


def _some_of_the_vocabulary(key: Any) -> bool:
    """logits[..., :n]: for all positions, as models do that pad it."""
    return isinstance(key, tuple) and len(key) == 2 and key[0] is Ellipsis and isinstance(key[1], slice)


def _kept(constant: torch.Tensor) -> torch.Tensor:
    # ZeRO-3 takes a bias away again when the layer that owns it is done.
    own = constant.clone() if hasattr(constant, "ds_id") else constant
    return own.reshape(-1) if own.ndim > 1 else own


for _name in (
    *("__add__", "__radd__", "__sub__", "__mul__", "__rmul__", "__truediv__", "__getitem__"),
    *("float", "tanh", "to", "contiguous"),
):
    setattr(VocabularyProduct, _name, partialmethod(VocabularyProduct.recorded, _name))


def not_sliceable(what: object) -> Exception:
    return usage_error(
        "cannot_slice_vocabulary",
        "training.loss_chunk",
        tr(
            "the loss of {kind} cannot be computed in chunks of the logits because the model changes its logits "
            "in an unknown way; remove training.loss_chunk.",
            kind=type(what).__name__,
        ),
    )


_uncompiled: Callable[..., Any] = torch.compiler.disable
LogitsReader = Callable[[torch.Tensor | VocabularyProduct], torch.Tensor]


def let_logits_be_read(model: nn.Module, chunk: int | None) -> None:
    """Give the forward pass of `model` (bare, or in peft's wrapper) the keyword `logits_reader`, in place.

    With `chunk` the reader gets a VocabularyProduct of slices of that many positions.
    Raises UsageError when `chunk` is given and the model has no last layer of its own.
    """
    outer: Any = model
    bare: Any = outer.get_base_model() if hasattr(outer, "get_base_model") else outer
    head = bare.get_output_embeddings()
    if chunk is not None and head is None:
        raise not_sliceable(bare)
    plain = getattr(bare.forward, "__func__", type(bare).forward)

    # One function for good: torch.compile takes another one for another model.
    apart = _uncompiled(lambda hidden: VocabularyProduct(head, hidden, chunk or 1))

    @wraps(plain)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        reader = kwargs.pop(READER, None)
        if reader is None:
            return plain(self, *args, **kwargs)
        if chunk is None:
            outputs = plain(self, *args, **kwargs)
        else:
            with _replaced(head, apart):
                outputs = plain(self, *args, **kwargs)
        logits = outputs["logits"]
        outputs["logits"] = None
        outputs["loss"] = _read(reader, logits)
        return outputs

    if chunk is not None:
        # torch.compile goes on inside the layers; what a product does is Python's.
        forward = _uncompiled(forward, recursive=False)
    bare.forward = MethodType(forward, bare)


@_uncompiled
def _read(reader: LogitsReader, logits: torch.Tensor | VocabularyProduct) -> torch.Tensor:
    """Not compiled: each number of slices would be a program of its own."""
    return reader(logits)


@contextmanager
def _replaced(head: Any, forward: Callable[[torch.Tensor], Any]) -> Iterator[None]:
    """Within, calling `head` is calling `forward`."""
    own = vars(head).get("forward")
    head.forward = forward
    try:
        yield
    finally:
        if own is None:
            del head.forward
        else:
            head.forward = own


# Cross entropy of a vocabulary product, one slice of positions at a time, forwards and backwards.


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
            total = total + checkpoint(
                lambda some, their: _summed(product.logits_of(some), their, smoothing), some, their, use_reentrant=False
            )
        return total

    return product.read(product.rows()[positions], compute)


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
        held, added = _cast(ctx.autocast, weight, bias)
        for some, their in zip(torch.split(rows, product.chunk), torch.split(targets, product.chunk), strict=True):
            logits = linear(some.to(held.dtype), held, added)
            total += _summed(product.changed(logits), their, smoothing)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        targets, *inputs = ctx.saved_tensors
        rows, weight, bias, *constants = inputs
        product: VocabularyProduct = ctx.product
        asked = zip(inputs, ctx.needs_input_grad[3:], strict=True)
        sums = [torch.zeros_like(tensor) if needs else None for tensor, needs in asked]
        of_rows, of_weight, of_bias, *of_constants = sums
        learned = [
            (constant, total) for constant, total in zip(constants, of_constants, strict=True) if total is not None
        ]
        with torch.autocast(**ctx.autocast):
            held, added = _cast(ctx.autocast, weight, bias)
            for start in range(0, len(rows), product.chunk):
                part = slice(start, start + product.chunk)
                some = rows[part].to(held.dtype)
                logits = linear(some, held, added).requires_grad_()
                with torch.enable_grad():
                    loss = _summed(product.changed(logits), targets[part], ctx.smoothing)
                of_logits, *others = torch.autograd.grad(loss, [logits, *(pair[0] for pair in learned)], gradients[0])
                del logits, loss
                if of_rows is not None:
                    of_rows[part] = of_logits @ held
                if of_weight is not None:
                    of_weight += of_logits.T @ some
                if of_bias is not None:
                    of_bias += of_logits.sum(0)
                for (_, of_constant), other in zip(learned, others, strict=True):
                    of_constant += other
        return None, None, None, *sums


def _cast(
    autocast: dict[str, Any], weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weight and bias as the product takes them."""
    dtype = autocast["dtype"] if autocast["enabled"] else weight.dtype
    return weight.to(dtype), None if bias is None else bias.to(dtype)
