"""Shadows: the numbers of small tensors, which fake tensors do not have.

Masks and positions decide which way a model takes (is anything padded? is the text longer than the
table?), so operations on them are also done for real, where all that goes in is known. Choices that
a model makes by numbers nobody has, such as the experts of a token, are spread evenly.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import tree_leaves, tree_map_only

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
    made = [tensor for tensor in tree_leaves(out) if isinstance(tensor, torch.Tensor)]
    if torch.Tag.nondeterministic_seeded in func.tags:
        # Chance would have a trace leave out layers, as models do that drop some; the fullest step drops none.
        return
    if not any(_is_kept(tensor) for tensor in made):
        return
    if func._overloadpacket in BY_SHAPE:
        with unset_fake_temporarily():
            real = func(
                torch.empty(args[0].shape, dtype=args[0].dtype, device="meta"), *args[1:], **{**kwargs, "device": "cpu"}
            )
        give_shadow(out, real)
        return
    given = [tensor for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, torch.Tensor)]
    if any(shadow_of(tensor) is None for tensor in given):
        if func._overloadpacket in CHOICES:
            _spread(func, args, kwargs, made)
            return
        for tensor in made:
            # Changed in place by something that is not known.
            vars(tensor).pop(ATTRIBUTE, None)
        return
    with unset_fake_temporarily():
        real = func(*tree_map_only(torch.Tensor, shadow_of, args), **tree_map_only(torch.Tensor, shadow_of, kwargs))
    for tensor, shadow in zip(made, _tensors(real), strict=True):
        if _is_kept(tensor):
            give_shadow(tensor, shadow)


def real_result(func: Any, args: Any, kwargs: Any) -> Any:
    """The shape of `func`'s result hangs on numbers: fake tensors of the right shape, with their shadows.

    Raises KeyError where the numbers are not known.
    """
    given = [tensor for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, torch.Tensor)]
    if any(shadow_of(tensor) is None for tensor in given):
        raise KeyError(str(func))
    with unset_fake_temporarily():
        real = func(*tree_map_only(torch.Tensor, shadow_of, args), **tree_map_only(torch.Tensor, shadow_of, kwargs))
    return tree_map_only(torch.Tensor, like_real, real)


def like_real(real: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape under the modes that are entered, which knows the numbers of `real`."""
    tensor = torch.empty(real.shape, dtype=real.dtype)
    give_shadow(tensor, real)
    return tensor


def _is_kept(tensor: torch.Tensor) -> bool:
    return tensor.numel() <= (LARGEST_FRACTIONAL if tensor.is_floating_point() else LARGEST)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def _spread(func: Any, args: Any, kwargs: Any, made: list[torch.Tensor]) -> None:
    """0, 1, 2, ... and again from 0, over the size of the dimension that is chosen from."""
    size = max(1, _choices(func, args, kwargs))
    for tensor in made:
        if not tensor.is_floating_point() and tensor.numel() <= LARGEST:
            with unset_fake_temporarily():
                numbers = (torch.arange(tensor.numel()) % size).reshape(tensor.shape)
            give_shadow(tensor, numbers)


def _choices(func: Any, args: Any, kwargs: Any) -> int:
    """How many there are to choose from: the last dimension, unless `dim` says another, or all of them."""
    names = [argument.name for argument in func._schema.arguments]
    place = names.index("dim") if "dim" in names else len(args)
    dim = args[place] if place < len(args) else kwargs.get("dim")
    if dim is None and func._overloadpacket in (aten.argmax, aten.argmin):
        return int(args[0].numel())
    return int(args[0].shape[-1 if dim is None else dim]) if args[0].dim() else 1
