"""Logits that never exist whole: the product with the vocabulary, kept apart to be computed in slices.

The last layer of a language model multiplies each position by the whole vocabulary, which for a
large vocabulary is the fullest point of a step. `let_logits_be_read(model, chunk)` changes the
bare model, once, after it is built and before accelerate, DDP or DeepSpeed wrap it:

    let_logits_be_read(model, chunk)
    outputs = model(**inputs, logits_reader=reader)
    outputs.loss                              # what reader(logits) returned; outputs.logits is None

The reader runs inside the model's own forward pass: under its autocast, before accelerate makes a
float32 copy of what comes out, and where DDP and DeepSpeed still count the last layer as the
model's. It gets the logits themselves without `chunk`, else a VocabularyProduct. Without a reader
the model is as it was, so `generate`, `state_dict` and tied weights are untouched.

`core.training.loss.StepLoss` and `core.training.evaluation.batch_sums` are the readers of a run.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from types import MethodType
from typing import Any

import torch
from torch import nn
from trainwiz.core.errors import usage_error
from trainwiz.core.language import tr

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

    def _with(self, change: Change) -> VocabularyProduct:
        return replace(self, changes=(*self.changes, change))

    def _combined(self, operation: Callable[[Any, Any], torch.Tensor], other: Any) -> VocabularyProduct:
        if not isinstance(other, torch.Tensor):
            return self._with(lambda logits: operation(logits, other))
        if any(size != 1 for size in other.shape[:-1]):
            # It differs from position to position, and the slices have lost their places.
            raise not_sliceable(self.head)
        # ZeRO-3 takes a bias away again when the layer that owns it is done.
        kept = other.clone() if hasattr(other, "ds_id") else other
        flat = kept.reshape(-1) if kept.ndim > 1 else kept
        return replace(self._with(lambda logits: operation(logits, flat)), constants=(*self.constants, flat))

    def __add__(self, other: Any) -> VocabularyProduct:
        return self._combined(operator.add, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> VocabularyProduct:
        return self._combined(operator.sub, other)

    def __mul__(self, other: Any) -> VocabularyProduct:
        return self._combined(operator.mul, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> VocabularyProduct:
        return self._combined(operator.truediv, other)

    def float(self) -> VocabularyProduct:
        return self._with(torch.Tensor.float)

    def tanh(self) -> VocabularyProduct:
        return self._with(torch.tanh)

    def to(self, *args: Any, **kwargs: Any) -> VocabularyProduct:
        return self._with(lambda logits: logits.to(*args, **kwargs))

    def contiguous(self) -> VocabularyProduct:
        return self

    def __getitem__(self, key: Any) -> VocabularyProduct:
        """logits[..., :n]: some of the vocabulary for all positions, as models do that pad it."""
        if not isinstance(key, tuple) or len(key) != 2 or key[0] is not Ellipsis or not isinstance(key[1], slice):
            raise not_sliceable(self.head)
        return self._with(lambda logits: logits[..., key[1]])

    @property
    def device(self) -> torch.device:
        return self.hidden.device

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> VocabularyProduct:
        """torch.tanh(logits) and tensor * logits, where the tensor stands first."""
        product = next(value for value in args if isinstance(value, cls))
        name = {"mul": "__mul__", "add": "__add__", "tanh": "tanh"}.get(getattr(function, "__name__", "").strip("_r"))
        if name is None or kwargs:
            raise not_sliceable(product.head)
        others = [value for value in args if value is not product]
        changed: VocabularyProduct = getattr(product, name)(*others)
        return changed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise not_sliceable(self.head)


def not_sliceable(what: object) -> Exception:
    return usage_error(
        "cannot_slice_vocabulary",
        "training.loss_chunk",
        tr(
            "the loss of a {kind} cannot be computed in slices of the vocabulary product, since the model "
            "changes its logits in a way that is not known here; leave training.loss_chunk out.",
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
    if hasattr(plain, READER):
        plain = getattr(plain, READER)

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
    setattr(forward, READER, plain)
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
