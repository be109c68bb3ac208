"""What is changed in torch and transformers while a step is traced, and put back afterwards."""

from __future__ import annotations

import gc
import itertools
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import transformers.integrations.flash_attention as flash
import transformers.modeling_utils as modeling_utils
import transformers.utils.import_utils as import_utils
from torch.nn import functional
from trainwiz.core.estimate.trace.attention import Recorder, flash_attention, plain_attention, scaled_dot_product
from trainwiz.core.estimate.trace.autocast import cuda_autocast_lists
from transformers import GenerationMixin, PreTrainedModel


@contextmanager
def emulated(device: str, recorder: Recorder) -> Iterator[None]:
    """Operations on CPU tensors do as they would on `device` ("cuda", "mps" or "cpu")."""
    with ExitStack() as changes:
        changes.enter_context(_quiet())
        changes.enter_context(replaced(torch.nn.Module, "_apply", _apply_to_fakes))
        # Models build masks for fake tensors that they leave out for real ones.
        changes.enter_context(replaced(import_utils, "is_fake_tensor", lambda tensor: False))
        changes.enter_context(replaced(GenerationMixin, "_beam_search_has_unfinished_sequences", _two_positions()))
        if device == "mps":
            # Its own lists are close to CUDA's.
            changes.enter_context(cuda_autocast_lists())
            changes.enter_context(replaced(functional, "scaled_dot_product_attention", plain_attention))
        if device == "cuda":
            changes.enter_context(cuda_autocast_lists())
            kernels = {
                "dropout": _dropout,
                "softmax": _softmax,
                "rms_norm": _rms_norm,
                "scaled_dot_product_attention": scaled_dot_product(recorder),
            }
            for name, kernel in kernels.items():
                changes.enter_context(replaced(functional, name, kernel))
            changes.enter_context(replaced(torch, "dropout", _dropout))
        changes.enter_context(replaced(flash, "_flash_attention_forward", flash_attention(recorder)))
        changes.enter_context(replaced(modeling_utils, "lazy_import_flash_attention", lambda *args, **kwargs: None))
        changes.enter_context(replaced(PreTrainedModel, "_flash_attn_can_dispatch", _has_flash_attention))
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Warnings are about the emulation. Nothing waits for the garbage collector: what it frees and when hangs on how many
    objects were made, here many more than in a real step. The graph of a step has no cycles."""
    collects = gc.isenabled()
    loggers = [logging.getLogger(name) for name in ("torch._subclasses.fake_tensor", "transformers")]
    levels = [logger.level for logger in loggers]
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for logger in loggers:
                logger.setLevel(logging.CRITICAL)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if collects:
            gc.enable()


@contextmanager
def attention_of(model: torch.nn.Module, recorder: Recorder) -> Iterator[None]:
    """FlashAttention-2 for the modules of `model` that call it by themselves, and import it only where it is installed."""
    name = "_flash_attention_forward"
    places = {sys.modules[type(module).__module__] for module in model.modules()}
    lacking = [place for place in places if place.__name__.startswith("transformers.") and not hasattr(place, name)]
    for place in lacking:
        setattr(place, name, flash_attention(recorder))
    try:
        yield
    finally:
        for place in lacking:
            delattr(place, name)


def _two_positions() -> Any:
    """A beam search that goes on after its first position and ends after its second."""
    answers = itertools.cycle((True, False))
    return staticmethod(lambda *args, **kwargs: next(answers))


@contextmanager
def replaced(place: Any, name: str, value: Any) -> Iterator[None]:
    before = place.__dict__[name]
    setattr(place, name, value)
    try:
        yield
    finally:
        setattr(place, name, before)


def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """CUDA keeps a mask of one byte an element, the CPU one of the input's type."""
    return torch.native_dropout(input, p, True)[0] if training and p > 0 else input


def _softmax(
    input: torch.Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """CUDA's kernel makes fp32 of fp16 by itself (aten/src/ATen/native/SoftMax.cpp); the CPU copies first."""
    if dim is not None and input.dtype == torch.float16 and dtype == torch.float32:
        return torch.ops.aten._softmax(input, dim, True)  # type: ignore[no-any-return]
    return torch.softmax(input, -1 if dim is None else dim, dtype=dtype)


def _rms_norm(
    input: torch.Tensor, normalized_shape: Any, weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    """One kernel on CUDA from torch 2.9 on, a chain of operations on the CPU."""
    fused = getattr(torch.ops.aten, "_fused_rms_norm", None)
    if fused is None:
        return torch.rms_norm(input, normalized_shape, weight, eps)
    return fused(input, normalized_shape, weight, eps)[0]  # type: ignore[no-any-return]


def _has_flash_attention(model: Any, flash_attn_version: int = 2, is_init_check: bool = False) -> bool:
    """The package need not be installed here; the model must be able to use it."""
    if not model._supports_flash_attn:
        raise ValueError(f"{type(model).__name__} does not support FlashAttention-2")
    return True


def _apply_to_fakes(module: torch.nn.Module, fn: Callable[..., Any], recurse: bool = True) -> torch.nn.Module:
    """Module.to() without numbers: torch's own way of exchanging a parameter's data refuses fake tensors."""
    for child in module.children():
        _apply_to_fakes(child, fn)
    for name, parameter in module._parameters.items():
        if parameter is None:
            continue
        with torch.no_grad():
            changed = fn(parameter)
        if changed is not parameter and changed.dtype != parameter.dtype:
            module._parameters[name] = torch.nn.Parameter(changed, parameter.requires_grad)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = fn(buffer)
    return module
