"""CUDA's autocast, on the CPU's dispatch key.

The CPU's own lists keep softmax, layer norm and others in half precision; CUDA's compute them in
fp32 (aten/src/ATen/autocast_mode.h: AT_FORALL_FP32, AT_FORALL_FP32_SET_OPT_DTYPE).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

IN_SINGLE = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor
    pow.Scalar softplus layer_norm native_layer_norm group_norm norm.Scalar norm.ScalarOpt_dim norm.names_ScalarOpt_dim
    frobenius_norm.dim nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss
    nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss
    multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits
    dist pdist cdist renorm logsumexp upsample_nearest1d upsample_nearest2d
"""
SUMMED_IN_SINGLE = """
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm sum sum.dim_IntList
"""
"""These take `dtype` and then read half precision themselves, without a copy."""

KEY = "AutocastCPU"
HALVES = (torch.float16, torch.bfloat16)


@contextmanager
def cuda_autocast_lists() -> Iterator[None]:
    """While it lasts, torch.autocast("cpu") treats each operation as it would on CUDA."""
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    try:
        for names, wrap in ((IN_SINGLE, _in_single), (SUMMED_IN_SINGLE, _summed_in_single)):
            for name in names.split():
                operation = _operation(name)
                if operation is not None:
                    library.impl(name, wrap(operation), KEY, allow_override=True)  # type: ignore[no-untyped-call]
        yield
    finally:
        library._destroy()  # type: ignore[no-untyped-call]


def _operation(name: str) -> Any:
    """None for one that this version of torch lacks."""
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    return getattr(packet, overload or "default", None) if packet is not None else None


CASTING_KERNELS = {
    torch.ops.aten.softmax.int: torch.ops.aten._softmax,
    torch.ops.aten.log_softmax.int: torch.ops.aten._log_softmax,
}
"""On CUDA they make fp32 of fp16 by themselves."""


def _dtype(args: Any, kwargs: Any, place: int) -> Any:
    return args[place] if len(args) > place else kwargs.get("dtype")


def _without_autocast() -> Any:
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU))


def _single(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() and value.dtype != torch.float64 else value
    if isinstance(value, list | tuple) and value and isinstance(value[0], torch.Tensor):
        return [_single(item) for item in value]
    return value


def _in_single(operation: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            return operation(*map(_single, args), **{name: _single(value) for name, value in kwargs.items()})

    return run


def _summed_in_single(operation: Any) -> Callable[..., Any]:
    place = [argument.name for argument in operation._schema.arguments].index("dtype")

    def run(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            if isinstance(args[0], torch.Tensor) and args[0].dtype in HALVES:
                if len(args) > place and args[place] is None:
                    args = (*args[:place], torch.float32, *args[place + 1 :])
                elif len(args) <= place and kwargs.get("dtype") is None:
                    kwargs["dtype"] = torch.float32
                kernel = CASTING_KERNELS.get(operation)
                if (
                    kernel is not None
                    and args[0].dtype == torch.float16
                    and _dtype(args, kwargs, place) == torch.float32
                ):
                    return kernel(args[0], args[1] if len(args) > 1 else kwargs["dim"], True)
            return operation(*args, **kwargs)

    return run
