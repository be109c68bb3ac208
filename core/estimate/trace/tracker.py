"""Tracker: watches every operation of torch, and answers for numbers that fake tensors do not have."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from trainwiz.core.estimate.trace.ledger import Ledger

aten = torch.ops.aten
VIEWS = {
    aten.view, aten.t, aten.transpose, aten.permute, aten.expand, aten.slice, aten.select, aten.unsqueeze,
    aten.squeeze, aten.detach, aten._unsafe_view, aten.alias, aten.split, aten.split_with_sizes, aten.empty,
    aten.as_strided, aten.unbind, aten.empty_like, aten.new_empty, aten.lift_fresh, aten.empty_strided,
}  # fmt: skip
PRODUCTS = {aten.mm: 0, aten.bmm: 0, aten.addmm: 1, aten.baddbmm: 1}
"""Matrix products, and the place of their left factor."""
KINDS_OF_PHASES = {"backward": "temporary", "step": "temporary"}


class Tracker(TorchDispatchMode):
    """Counts storages, products, bytes moved and kernels while it is entered.

    `vocabulary`: tensors of two and more dimensions whose last is of this size are logits.
    """

    def __init__(self, rounding: int, vocabulary: int, *, labelled: bool = True) -> None:
        super().__init__()
        self.ledger = Ledger(rounding)
        self.kind = "activations"
        """What a new tensor is, unless its shape says more."""
        self.flops = 0.0
        self.moved_bytes = 0.0
        self.kernels = 0
        self._vocabulary = vocabulary

    def forget_work(self) -> None:
        self.flops, self.moved_bytes, self.kernels = 0.0, 0.0, 0

    def kernel(self, flops: float, moved_bytes: float, working: list[int]) -> None:
        """One of our own kernels ran; `working` are the bytes of the blocks that it used meanwhile."""
        self.flops += flops
        self.moved_bytes += moved_bytes
        self.kernels += 1
        if working:
            self.ledger.transient(working)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = func._overloadpacket
        if packet is aten._local_scalar_dense:
            return self._scalar(args[0])
        if packet in (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index):
            args = (args[0], _counted(args[1]), *args[2:])
        out = func(*args, **kwargs)
        kind = self._kind_of(func, args)
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                is_logits = tensor.dim() > 1 and tensor.shape[-1] == self._vocabulary and kind != "weights"
                self.ledger.add(tensor, "logits" if is_logits else kind)
        self._count(packet, args, kwargs, out)
        return out

    def _kind_of(self, func: Any, args: Any) -> str:
        # Autocast's copies of weights.
        if func is aten._to_copy.default and self.ledger.kind_of(args[0]) == "weights":
            return "temporary"
        return self.kind

    def _scalar(self, tensor: torch.Tensor) -> Any:
        """A number that steers the model: conditions are taken as not met."""
        return False if tensor.dtype == torch.bool else 0 if not tensor.is_floating_point() else 1.0

    def _count(self, packet: Any, args: Any, kwargs: Any, out: Any) -> None:
        if packet in VIEWS:
            return
        self.kernels += 1
        if packet in PRODUCTS:
            self.flops += 2 * out.numel() * args[PRODUCTS[packet]].shape[-1]
        self.moved_bytes += sum(
            tensor.numel() * tensor.element_size()
            for tensor in tree_leaves((args, kwargs, out))
            if isinstance(tensor, torch.Tensor)
        )


def _counted(indices: Any) -> Any:
    """Indices without booleans: how many are true is not known, so all are."""
    result = []
    for index in indices:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            result.append(index)
            continue
        result.extend(
            torch.empty(index.numel(), dtype=torch.int64, device=index.device) for _ in range(index.dim())
        )
    return result
