"""RunSetup: what engine.json says of how a run reads its data and saves, as far as advice asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainwiz.core.numbers import whole_in


@dataclass(frozen=True, slots=True)
class RunSetup:
    """As read inside the training process; None where an older run does not say it."""

    workers: int | None = None
    """Loader workers of each training process; 0 where the process loads itself."""
    prefetch: int | None = None
    """Batches that each of them keeps ready."""
    pinned: bool = False
    """They wait in pinned memory."""
    accumulation: int = 1
    """Micro-batches of a step in each training process, which are taken at once."""
    processes: int = 1
    """Training processes, on all machines."""
    cpu_cores: int | None = None
    """That the training may use on its machine."""
    save_every_steps: int | None = None
    checkpoints_kept: int | None = None
    """Most complete checkpoints that lie there between two saves."""
    model_bytes: int = 0
    """Of the weights that the end of the run writes once more."""
    max_steps: int | None = None


def setup_of(engine: Mapping[str, Any]) -> RunSetup:
    """`engine` as state.json holds it."""
    parameters = whole_in(engine.get("parameters")) or 0
    return RunSetup(
        workers=whole_in(engine.get("workers")),
        prefetch=whole_in(engine.get("prefetch")),
        pinned=engine.get("pin_memory") is True,
        accumulation=whole_in(engine.get("gradient_accumulation_steps")) or 1,
        processes=whole_in(engine.get("world_size")) or 1,
        cpu_cores=whole_in(engine.get("cpu_cores")),
        save_every_steps=whole_in(engine.get("save_every_steps")) or None,
        checkpoints_kept=whole_in(engine.get("checkpoints_kept")),
        model_bytes=parameters * (4 if engine.get("weights_dtype") == "float32" else 2),
        max_steps=whole_in(engine.get("max_steps")),
    )
