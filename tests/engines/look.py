"""Inside a training process: what the engine holds at the end, put together without the code that saves models.

gathered.safetensors: every parameter of the live model under its own name, whole, written by rank 0 before final_model is.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

GATHERED = "gathered.safetensors"
SHARDS_ON_CPU = "TRAINWIZ_TEST_FSDP"
"""Environment variable: FSDP is to shard without a GPU."""


def look() -> None:
    """Make this process note its weights; call it before the training begins."""
    from trainwiz.core.training import session

    if os.environ.get(SHARDS_ON_CPU):
        shard_without_a_gpu()
    save = session.save_final_model

    def note_and_save(trainer: Any, folder: Any, *rest: Any) -> None:
        note_weights(trainer, Path(folder.path))
        save(trainer, folder, *rest)

    session.save_final_model = note_and_save
    name_blocks = session.name_blocks

    def name_and_weigh(trainer: Any) -> None:
        name_blocks(trainer)
        trainer.add_callback(weigher(trainer))

    session.name_blocks = name_and_weigh


def shard_without_a_gpu() -> None:
    """torch's `fully_shard` over gloo, by the settings of the export. accelerate 1.15 takes DistributedDataParallel for FSDP
    where there is no GPU and says nothing. Its choice alone is replaced; its plugin, wrapping and saving are the real ones."""
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType
    from torch.distributed.fsdp import CPUOffloadPolicy

    original = AcceleratorState.__init__

    def init(self: AcceleratorState, *args: Any, fsdp_plugin: Any = None, **kwargs: Any) -> None:
        original(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None and self.distributed_type == DistributedType.MULTI_CPU:
            # What AcceleratorState does itself where there are GPUs.
            self.distributed_type = DistributedType.FSDP
            if self._mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(self._mixed_precision)
            if isinstance(fsdp_plugin.cpu_offload, CPUOffloadPolicy):
                # Page-locked memory is for copies to a GPU, and torch asks the driver for it.
                fsdp_plugin.cpu_offload = CPUOffloadPolicy(pin_memory=False)
            self.fsdp_plugin = fsdp_plugin
            PartialState._shared_state["distributed_type"] = self.distributed_type

    AcceleratorState.__init__ = init  # type: ignore[method-assign]


def weigher(trainer: Any) -> Any:
    """A callback that notes, in the second step, how many bytes this process holds of everything that trains."""
    from transformers import TrainerCallback

    class Weigher(TrainerCallback):
        def __init__(self) -> None:
            self.held: dict[str, int] = {}

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            parameters = [own for own in trainer.model.parameters() if own.requires_grad]
            self.held["weights"] = sum(local_bytes(getattr(own, "ds_tensor", own)) for own in parameters)
            self.held["gradients"] = sum(local_bytes(own.grad) for own in parameters if own.grad is not None)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            inner: Any = trainer.optimizer
            while hasattr(inner, "optimizer"):
                inner = inner.optimizer
            values = (value for kept in inner.state.values() for value in kept.values())
            self.held["moments"] = sum(local_bytes(value) for value in values if getattr(value, "ndim", 0))
            if state.global_step == 2:
                rank = os.environ.get("RANK", "0")
                Path(f"held-rank{rank}.json").write_text(json.dumps(self.held))

    return Weigher()


def local_bytes(tensor: Any) -> int:
    own = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return int(own.numel() * own.element_size())


def note_weights(trainer: Any, folder: Path) -> None:
    from safetensors.torch import save_file

    model = trainer.accelerator.unwrap_model(trainer.model, keep_torch_compile=False)
    found = {name: whole(parameter) for name, parameter in model.named_parameters()}
    if trainer.is_world_process_zero():
        save_file(found, str(folder / GATHERED))


def whole(parameter: Any) -> Any:
    """All numbers of one parameter, on the CPU; a collective where processes share it out."""
    if hasattr(parameter, "full_tensor"):
        return parameter.detach().full_tensor().cpu().contiguous()
    if hasattr(parameter, "ds_id"):
        import deepspeed

        with deepspeed.zero.GatheredParameters([parameter], modifier_rank=None):
            return parameter.detach().cpu().clone()
    return parameter.detach().cpu().clone()
