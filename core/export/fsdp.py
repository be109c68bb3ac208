"""RunConfig -> the `fsdp_config` of accelerate: FSDP 2, which is torch's `fully_shard` on each block."""

from __future__ import annotations

from typing import Any

from trainwiz.core.config.run import RunConfig


def fsdp_config(config: RunConfig) -> dict[str, Any]:
    """The keys of accelerate's `fsdp_config` (FullyShardedDataParallelPlugin reads them from the environment).

    Mixed precision is the one of accelerate.yaml: it becomes the type of what is gathered, computed and reduced.
    """
    return {
        "fsdp_version": 2,
        # Each block of the model (transformers' `_no_split_modules`), the embedding and the head by themselves.
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_reshard_after_forward": True,
        "fsdp_offload_params": config.engine.offload == "all",
        # final_model and every checkpoint can be read by `from_pretrained`, and by any number of processes.
        "fsdp_state_dict_type": "FULL_STATE_DICT",
        "fsdp_cpu_ram_efficient_loading": False,
        # The one of transformers takes its place (`activation_checkpointing` of TrainingArguments): accelerate 1.15
        # recomputes without the random state of the first pass, so that dropout hides other values in the second.
        "fsdp_activation_checkpointing": False,
    }
