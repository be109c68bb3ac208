"""What DeepSpeed needs before it starts: locks that end, the process group where accelerate makes none; and its end."""

from __future__ import annotations

import os
import warnings
from datetime import timedelta
from typing import Any

import torch
from accelerate import PartialState
from trainwiz.core.config import RunConfig
from trainwiz.core.export.solved import processes, runs_on_cpu, uses_deepspeed
from trainwiz.core.training.extension_lock import use_kernel_locks

TIMEOUT_S = 1800
"""As TrainingArguments has it."""


def join_processes(config: RunConfig) -> dict[str, Any]:
    """Arguments of TrainingArguments that take the group made here; none where it makes its own.

    For DeepSpeed accelerate 1.15 asks for a backend only where there is a GPU. Without one it
    starts the group, believes in a single process, and the batch sizes contradict each other.
    """
    if uses_deepspeed(config):
        use_kernel_locks()
        _let_its_states_be_read()
        # DeepSpeed 0.19 calls collectives by names that torch 2.13 replaces: a line in the log for each, in each step.
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
    if not (uses_deepspeed(config) and runs_on_cpu(config) and processes(config) > 1):
        return {}
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    PartialState(backend="gloo", timeout=timedelta(seconds=config.engine.process_timeout_s or TIMEOUT_S))
    return {"accelerator_config": {"use_configured_state": True}}


def _let_its_states_be_read() -> None:
    """DeepSpeed 0.19 keeps these in the states that it saves; a run reads checkpoints as values, never as code."""
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    torch.serialization.add_safe_globals([fragment_address, LossScaler, DynamicLossScaler, ZeroStageEnum])


def leave_processes() -> None:
    """End the process group: its threads, left to the end of the interpreter, abort the process now and then."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
