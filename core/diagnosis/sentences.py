"""What each cause is called, for people."""

from __future__ import annotations

from collections.abc import Mapping

from trainwiz.core.diagnosis.causes import Cause
from trainwiz.core.language import mark

SENTENCES: Mapping[Cause, str] = {
    "cuda_oom": mark("The GPU ran out of memory"),
    "host_oom": mark("The machine ran out of RAM"),
    "disk_full": mark("The disk is full"),
    "nccl_timeout": mark("The training processes waited for each other too long"),
    "nccl_error": mark("The communication between the training processes failed"),
    "bf16_unsupported": mark("This device cannot compute in bf16"),
    "flash_attention_missing": mark("FlashAttention is asked for and cannot be used here"),
    "dataloader_worker_killed": mark("A loader process was killed"),
    "shared_memory": mark("Shared memory (/dev/shm) is too small for the loader processes"),
    "deepspeed_mismatch": mark("The DeepSpeed file contradicts the training arguments"),
    "port_in_use": mark("The port for the training processes is taken"),
    "nan_loss": mark("The loss is no longer a number"),
    "missing_file": mark("A file is missing"),
    "config_mismatch": mark("Two settings contradict each other, or do not fit the model"),
    "gpu_lost": mark("A GPU stopped answering"),
    "node_lost": mark("A machine of the run did not come, or was lost"),
    "user_stop": mark("It was stopped on purpose"),
}
