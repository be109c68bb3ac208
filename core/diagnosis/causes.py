"""Cause: the codes of why a training ended. DESIGN.md names them; programs rely on them."""

from __future__ import annotations

from typing import Literal, get_args

Cause = Literal[
    "cuda_oom", "host_oom", "disk_full", "nccl_timeout", "nccl_error", "bf16_unsupported",
    "flash_attention_missing", "dataloader_worker_killed", "shared_memory", "deepspeed_mismatch",
    "port_in_use", "nan_loss", "missing_file", "config_mismatch", "gpu_lost", "node_lost", "user_stop",
    "python_error", "unknown",
]  # fmt: skip
CAUSES: tuple[Cause, ...] = get_args(Cause)

Confidence = Literal["high", "medium", "low"]
"""high: a sentence of the framework or the system names the cause; medium: it follows from what
they say; low: one weak clue, or nothing."""
