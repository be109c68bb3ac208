"""Watches every operation of torch, and answers for numbers that fake tensors do not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from trainwiz.core.estimate.trace.ledger import Ledger
from trainwiz.core.language import tr

# Shadows: the numbers of small tensors, which fake tensors do not have.
#
# Masks and positions decide which way a model takes (is anything padded? is the text longer than the
# table?), so operations on them are also done for real, where all that goes in is known. Choices that
# a model makes by numbers nobody has, such as the experts of a token, are spread evenly.

aten = torch.ops.aten
LARGEST = 2**22
"""Elements of a tensor of whole numbers that are kept."""
LARGEST_FRACTIONAL = 2**18
"""Some models make their masks of fractional numbers."""
ATTRIBUTE = "_trainwiz_shadow"
CHOICES = {aten.argmax, aten.argmin, aten.topk, aten.multinomial}
BY_SHAPE = {aten.new_ones, aten.new_zeros, aten.new_full, aten.ones_like, aten.zeros_like, aten.full_like}
"""Their result takes the shape and type of a tensor, not its numbers."""
UNKNOWN_SIZES = {aten.nonzero, aten.masked_select, aten._unique2, aten.unique_consecutive, aten.unique_dim}


def shadow_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The numbers of `tensor`; None where they are not known."""
    found: torch.Tensor | None = getattr(tensor, ATTRIBUTE, None)
    return found if found is not None else getattr(tensor, "constant", None)


def give_shadow(tensor: torch.Tensor, shadow: torch.Tensor) -> None:
    setattr(tensor, ATTRIBUTE, shadow)


def compute_shadows(func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """Keep the numbers of `out` = func(*args, **kwargs), where they can be known."""
    made = [tensor for tensor in _tensors(out) if _is_kept(tensor)]
    # Chance would have a trace leave out layers, as models do that drop some; the fullest step drops none.
    if not made or torch.Tag.nondeterministic_seeded in func.tags:
        return
    known = all(shadow_of(tensor) is not None for tensor in _tensors((args, kwargs)))
    if func._overloadpacket in BY_SHAPE:
        with unset_fake_temporarily():
            like = torch.empty(args[0].shape, dtype=args[0].dtype, device="meta")
            real = func(like, *args[1:], **{**kwargs, "device": "cpu"})
        give_shadow(out, real)
    elif known:
        for tensor, shadow in zip(_tensors(out), _tensors(_real(func, args, kwargs)), strict=True):
            if _is_kept(tensor):
                give_shadow(tensor, shadow)
    elif func._overloadpacket in CHOICES:
        for tensor in made:
            if not tensor.is_floating_point():
                # 0, 1, 2, ... and again from 0, over the size of the dimension that is chosen from.
                with unset_fake_temporarily():
                    numbers = (torch.arange(tensor.numel()) % args[0].shape[-1]).reshape(tensor.shape)
                give_shadow(tensor, numbers)
    else:
        for tensor in made:
            # Changed in place by something that is not known.
            vars(tensor).pop(ATTRIBUTE, None)


def real_result(func: Any, args: Any, kwargs: Any) -> Any:
    """The shape of `func`'s result hangs on numbers: fake tensors of the right shape, with their shadows; None where the
    numbers are not known."""
    if any(shadow_of(tensor) is None for tensor in _tensors((args, kwargs))):
        return None
    return tree_map_only(torch.Tensor, like_real, _real(func, args, kwargs))


def _real(func: Any, args: Any, kwargs: Any) -> Any:
    with unset_fake_temporarily():
        args, kwargs = tree_map_only(torch.Tensor, shadow_of, (args, kwargs))
        return func(*args, **kwargs)


def like_real(real: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape under the modes that are entered, which knows the numbers of `real`."""
    tensor = torch.empty(real.shape, dtype=real.dtype)
    give_shadow(tensor, real)
    return tensor


def _is_kept(tensor: torch.Tensor) -> bool:
    return tensor.numel() <= (LARGEST_FRACTIONAL if tensor.is_floating_point() else LARGEST)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


INDEXED = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index}
ONLY_TENSOR, ONLY_STORAGE = 4, 2
"""Uses of a tensor, and of its storage, that nothing but the autograd engine holds, as counted in a dispatch mode."""


def _product_of_4_bits(
    rows: Any, packed: Any, shape: Any, absmax: Any, block: int, kind: str, bias: Any = None, absmax_8bit: Any = None,
    absmax_code: Any = None, absmax_offset: Any = None,
) -> Any:  # fmt: skip
    """As bitsandbytes 0.50 does it on CUDA where there are many rows (backends/cuda/ops.py, _dequant_linear_fallback):
    below 1,537 of them it may have a kernel that needs no copy of the weights, and the backward pass makes one anyway."""
    own = torch.ops.bitsandbytes
    absmax = own.dequantize_blockwise.default(absmax_8bit, absmax, absmax_code, 256, torch.float32) + absmax_offset
    whole = own.dequantize_4bit.default(packed, absmax, block, kind, shape, rows.dtype)
    # Composed operations are not taken apart below autograd.
    flat = (rows if rows.is_contiguous() else rows.clone(memory_format=torch.contiguous_format)).view(-1, shape[1])
    out = torch.mm(flat, whole.t()) if bias is None else torch.addmm(bias, flat, whole.t())
    return out.view(*rows.shape[:-1], shape[0])


def _product_of_8_bits(
    rows: Any, weight: Any, row_scales: Any, scales: Any, bias: Any = None, dtype: Any = None
) -> Any:
    """The sums in int32, then as numbers."""
    own = torch.ops.bitsandbytes
    sums = own.int8_linear_matmul.default(rows, weight)
    return own.int8_mm_dequant.default(sums, row_scales, scales, dtype=dtype, bias=bias)


DEQUANTIZED: dict[str, Callable[..., Any]] = {
    "bitsandbytes::gemm_4bit": _product_of_4_bits,
    "bitsandbytes::int8_scaled_mm": _product_of_8_bits,
}
"""Operations of bitsandbytes that are several, by what they allocate on CUDA."""


class Tracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts storages while it is entered."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ledger = ledger
        self.kind = "activations"
        """What a new tensor is, unless its shape says more."""
        self.in_backward = False
        self.vocabulary = 0
        """Tensors of two and more dimensions whose last is of this size are logits; 0 for none."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            # A question, not a kernel, and most of what is asked of a fake tensor.
            return args[0].fake_device if isinstance(args[0], FakeTensor) else func(*args)
        kwargs = kwargs or {}
        if func.name() in DEQUANTIZED:
            with self:
                return DEQUANTIZED[func.name()](*args, **kwargs)
        packet = func._overloadpacket
        if packet is aten.add and self._accumulates(func, args, kwargs):
            func, packet = aten.add_.Tensor, aten.add_
        out = self._run(func, packet, args, kwargs)
        kind = self._kind_of(func, args)
        for tensor in _tensors(out):
            is_logits = tensor.dim() > 1 and tensor.shape[-1] == self.vocabulary and kind != "optimizer"
            self.ledger.add(tensor, "logits" if is_logits else kind)
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
        if packet in UNKNOWN_SIZES and (real := real_result(func, args, kwargs)) is not None:
            return real
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
        return uses <= ONLY_TENSOR and storage_uses <= ONLY_STORAGE and bool(aten.is_non_overlapping_and_dense(first))

    def _kind_of(self, func: Any, args: Any) -> str:
        # Autocast's copies of weights.
        if func is aten._to_copy.default and self.ledger.kind_of(args[0]) == "weights":
            return "temporary"
        if self.in_backward:
            return "activations" if torch.is_grad_enabled() else "temporary"
        return self.kind


def _check_rows(table: torch.Tensor, indices: torch.Tensor) -> None:
    """Raises IndexError as the real operation does: fake tensors look nothing up."""
    shadow = shadow_of(indices)
    with unset_fake_temporarily():
        largest = -1 if shadow is None or not shadow.numel() else int(shadow.max())
    if largest >= table.shape[0]:
        row, rows = f"{largest:,}", f"{table.shape[0]:,}"
        text = tr(
            "index {row} is out of range for an embedding table of {rows} rows; use a shorter length",
            rows=rows,
            row=row,
        )
        raise IndexError(text)


def _grouped_product(first: torch.Tensor, second: torch.Tensor, offs: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """The experts' product in the formats that fake tensors are refused for; groups are rows or, where both are flat, the sum."""
    if first.dim() == second.dim() == 2:
        return first.new_empty(offs.numel(), first.shape[0], second.shape[1])
    return first.new_empty(first.shape[-2], second.shape[-1])


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
        elif (shadow := shadow_of(index)) is None:
            result += [torch.empty(index.numel(), dtype=torch.int64, device=index.device) for _ in range(index.dim())]
        else:
            with unset_fake_temporarily():
                places = shadow.nonzero(as_tuple=True)
            result += map(like_real, places)
    return result
