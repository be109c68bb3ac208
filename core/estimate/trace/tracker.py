"""Tracker: watches every operation of torch, and answers for numbers that fake tensors do not have."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from trainwiz.core.estimate.trace.ledger import Ledger
from trainwiz.core.estimate.trace.shadows import UNKNOWN_SIZES, compute_shadows, like_real, real_result, shadow_of
from trainwiz.core.language import tr

aten = torch.ops.aten
VIEWS = {
    aten.view, aten.t, aten.transpose, aten.permute, aten.expand, aten.slice, aten.select, aten.unsqueeze,
    aten.squeeze, aten.detach, aten._unsafe_view, aten.alias, aten.split, aten.split_with_sizes, aten.empty,
    aten.as_strided, aten.unbind, aten.empty_like, aten.new_empty, aten.lift_fresh, aten.empty_strided,
}  # fmt: skip
PRODUCTS = {aten._grouped_mm: 0, aten.mm: 0, aten.bmm: 0, aten.addmm: 1, aten.baddbmm: 1}
"""Matrix products, and the place of their left factor."""
INDEXED = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index}
ONLY_TENSOR, ONLY_STORAGE = 4, 2
"""Uses of a tensor, and of its storage, that nothing but the autograd engine holds, as counted in a dispatch mode."""


class Tracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts storages, products, bytes moved and kernels while it is entered.

    Tensors may be fake or real.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ledger = ledger
        self.kind = "activations"
        """What a new tensor is, unless its shape says more."""
        self.in_backward = False
        self.vocabulary = 0
        """Tensors of two and more dimensions whose last is of this size are logits; 0 for none."""
        self.flops = 0.0
        self.moved_bytes = 0.0
        self.kernels = 0

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
        if func is torch.ops.prim.device.default:
            # A question, not a kernel, and most of what is asked of a fake tensor.
            return args[0].fake_device if isinstance(args[0], FakeTensor) else func(*args)
        kwargs = kwargs or {}
        packet = func._overloadpacket
        if packet is aten.add and self._accumulates(func, args, kwargs):
            func, packet = aten.add_.Tensor, aten.add_
        out = self._run(func, packet, args, kwargs)
        kind = self._kind_of(func, args)
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                is_logits = tensor.dim() > 1 and tensor.shape[-1] == self.vocabulary and kind != "optimizer"
                self.ledger.add(tensor, "logits" if is_logits else kind)
        self._count(packet, args, kwargs, out)
        return out

    def _run(self, func: Any, packet: Any, args: Any, kwargs: Any) -> Any:
        if any(isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) for value in args):
            return func(*args, **kwargs)
        if packet is aten._local_scalar_dense:
            return _number(args[0])
        if packet is aten._grouped_mm and args[0].dtype != torch.bfloat16:
            return _grouped_product(*args, **kwargs)
        if packet is aten.embedding:
            _check_rows(*args[:2])
        if packet in INDEXED:
            args = (args[0], _counted(args[1]), *args[2:])
        if packet in UNKNOWN_SIZES:
            try:
                return real_result(func, args, kwargs)
            except KeyError:
                pass
        out = func(*args, **kwargs)
        compute_shadows(func, args, kwargs, out)
        return out

    def _accumulates(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Whether the autograd engine adds up two gradients of one tensor.

        It does so in place where it alone holds the first (torch/csrc/autograd/input_buffer.cpp),
        but not while a dispatch mode is entered, as this one is.
        """
        if not self.in_backward or torch.is_grad_enabled() or func is not aten.add.Tensor or kwargs:
            return False
        first, second = args[0], args[1]
        if not isinstance(second, torch.Tensor) or first.shape != second.shape or first.dtype != second.dtype:
            return False
        uses, storage_uses = first._use_count(), torch._C._storage_Use_Count(first.untyped_storage()._cdata)
        return uses <= ONLY_TENSOR and storage_uses <= ONLY_STORAGE and _is_dense(first)

    def _kind_of(self, func: Any, args: Any) -> str:
        # Autocast's copies of weights.
        if func is aten._to_copy.default and self.ledger.kind_of(args[0]) == "weights":
            return "temporary"
        if self.in_backward:
            return "activations" if torch.is_grad_enabled() else "temporary"
        return self.kind

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


def _check_rows(table: torch.Tensor, indices: torch.Tensor) -> None:
    """Raises IndexError as the real operation does: fake tensors look nothing up."""
    shadow = shadow_of(indices)
    if shadow is None or not shadow.numel():
        return
    with unset_fake_temporarily():
        largest = int(shadow.max())
    if largest >= table.shape[0]:
        raise IndexError(
            tr(
                "a table of {rows} rows is asked for row {row}; use a shorter length",
                rows=f"{table.shape[0]:,}",
                row=f"{largest:,}",
            )
        )


def _grouped_product(first: torch.Tensor, second: torch.Tensor, offs: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """The experts' product in the formats that fake tensors are refused for; groups are rows or, where both are flat, the sum."""
    if first.dim() == second.dim() == 2:
        return first.new_empty(offs.numel(), first.shape[0], second.shape[1])
    return first.new_empty(first.shape[-2], second.shape[-1])


def _is_dense(tensor: torch.Tensor) -> bool:
    return bool(torch.ops.aten.is_non_overlapping_and_dense(tensor))


def _number(tensor: torch.Tensor) -> Any:
    """A number that steers the model. Where it is not known, conditions are not met and sizes are 0."""
    shadow = shadow_of(tensor)
    if shadow is not None:
        with unset_fake_temporarily():
            return shadow.item()
    return False if tensor.dtype == torch.bool else 1.0 if tensor.is_floating_point() else 0


def _counted(indices: Any) -> Any:
    """Indices without booleans. Where it is not known how many are true, all are."""
    result: list[Any] = []
    for index in indices:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            result.append(index)
            continue
        shadow = shadow_of(index)
        if shadow is None:
            size = (index.numel(),)
            result.extend(torch.empty(size, dtype=torch.int64, device=index.device) for _ in range(index.dim()))
        else:
            with unset_fake_temporarily():
                places = shadow.nonzero(as_tuple=True)
            result.extend(map(like_real, places))
    return result
