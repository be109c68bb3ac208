"""Entry of a training process that really shards on a CPU: torch's `fully_shard` over gloo, by the settings of the export.

accelerate 1.15 takes DistributedDataParallel for FSDP where there is no GPU and says nothing. Here its choice alone is
replaced; the plugin it makes of accelerate.yaml, its wrapping, its saving and all of the training code are the real ones.
"""

from __future__ import annotations

from typing import Any

from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from torch.distributed.fsdp import CPUOffloadPolicy


def shard_without_a_gpu() -> None:
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


if __name__ == "__main__":
    shard_without_a_gpu()
    from trainwiz.core.training.__main__ import main

    main()
