"""A model that several processes share out: how large it is, and how to see all of it (ZeRO-3 and FSDP)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


def numbers_in(parameter: torch.nn.Parameter) -> int:
    """Numbers of the whole parameter. ZeRO-3 leaves an empty one behind and notes how many it stands for."""
    return int(getattr(parameter, "ds_numel", parameter.numel()))


def shared_by_zero3(parameters: Iterable[torch.nn.Parameter]) -> bool:
    """Whether DeepSpeed holds a part of each in this process."""
    return any(hasattr(parameter, "ds_id") for parameter in parameters)


def is_fully_sharded(module: Any) -> bool:
    """Whether torch's `fully_shard` (FSDP 2) or its older FSDP made this module."""
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    return isinstance(module, FSDPModule | FullyShardedDataParallel)


def forward_needs_all(model: torch.nn.Module) -> bool:
    """Whether each forward pass is a collective: a process that makes one more than the others waits for ever."""
    return is_fully_sharded(model) or shared_by_zero3(model.parameters())


@contextmanager
def gathered(model: torch.nn.Module) -> Iterator[None]:
    """All weights whole in every process, where ZeRO-3 shares them out; every process must enter it."""
    parameters = list(model.parameters())
    if not shared_by_zero3(parameters):
        yield
        return
    import deepspeed

    with deepspeed.zero.GatheredParameters(parameters, modifier_rank=None):
        yield
