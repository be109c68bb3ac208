"""Whether the rows of a micro-batch lie end to end instead of being padded to the longest."""

from __future__ import annotations

from trainwiz.core.config import RunConfig
from trainwiz.core.data.joining import joins_texts


def packs_rows(config: RunConfig) -> bool:
    """What `data.packing` says; joined texts are of one length and have no padding to leave out."""
    return config.data.packing and not joins_texts(config)
