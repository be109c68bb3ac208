"""What a setting may be: the words that it knows, names, sizes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator
from trainwiz.core.config.environment import as_text, check_variable_name, check_variable_value
from trainwiz.core.language import tr

Task = Literal["masked-lm", "causal-lm", "seq2seq", "sequence-classification"]
"""sequence-classification can be planned, not trained: many published measurements are of it."""
Precision = Literal["fp32", "tf32", "fp16", "bf16", "bf16-true"]
Attention = Literal["sdpa", "eager", "flash_attention_2"]
Strategy = Literal["single", "ddp", "fsdp", "zero1", "zero2", "zero3"]
Offload = Literal["none", "optimizer", "all"]
Schedule = Literal["linear", "cosine", "constant", "polynomial"]
LossMean = Literal["tokens", "micro_batches"]
Optimizer = Literal["adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "adamw_bnb_8bit", "paged_adamw_8bit"]

LONGEST_FILE_NAME = 255
"""Bytes of one part of a path, on every common file system."""


def _can_name_a_file(value: str) -> str:
    if "\0" in value:
        raise ValueError(tr("a name holds no zero byte"))
    if any(len(part.encode(errors="replace")) > LONGEST_FILE_NAME for part in value.split("/")):
        raise ValueError(
            tr("too long for the name of a file or model ({count} characters); check what was pasted", count=len(value))
        )
    return value


SourceName = Annotated[str, AfterValidator(_can_name_a_file)]
"""A catalogue name, hub id or path."""


def _as_context_size(value: Any) -> Any:
    # Profiles are made of this module.
    from trainwiz.core.profile.size import parse_size

    size = parse_size(value) if isinstance(value, str | int) else None
    if value is not None and (size is None or not LEAST_CONTEXT_BYTES <= size <= MOST_CONTEXT_BYTES):
        raise ValueError(
            tr("it must be a size from 16M to 16G, like 500M: what nvidia-smi shows for an idle CUDA process")
        )
    return size


LEAST_CONTEXT_BYTES, MOST_CONTEXT_BYTES = 16 << 20, 16 << 30
ContextSize = Annotated[int, BeforeValidator(_as_context_size)]
"""Bytes, also as text with a unit."""

VariableName = Annotated[str, AfterValidator(check_variable_name)]
VariableValue = Annotated[str, BeforeValidator(as_text), AfterValidator(check_variable_value)]
