"""torch.compile for batches of every length."""

from __future__ import annotations

import os

from trainwiz.core.config import RunConfig


def allow_any_length(config: RunConfig) -> None:
    """Let torch.compile find out that lengths change; called before the Trainer reads its environment.

    `accelerate launch` exports `dynamic=False`, which compiles anew for each padded length and after
    eight of them computes uncompiled, with only a warning (torch 2.13, accelerate 1.15).
    """
    if config.engine.compile:
        os.environ.pop("ACCELERATE_DYNAMO_USE_DYNAMIC", None)
