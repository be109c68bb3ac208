"""The classifier that sequence classification puts in place of the vocabulary projection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainwiz.core.estimate.architecture import Architecture
from trainwiz.core.estimate.config_keys import number


def classifying(architecture: Architecture, config: Mapping[str, Any]) -> Architecture:
    """The same model with one prediction of `num_labels` for each sequence. Encoders have a dense layer before it."""
    named = config.get("id2label")
    labels = number(config, "num_labels", default=len(named) if isinstance(named, Mapping) and named else 2)
    hidden = architecture.hidden
    decoder = architecture.kind == "decoder"
    dense = 0 if decoder else hidden * hidden
    return replace(
        architecture,
        vocabulary=labels,
        head_linear_parameters=dense + labels * hidden,
        head_other_parameters=0 if decoder else hidden + labels,
        tied=False,
        transform_head=False,
        pooled=True,
        embedding_width=None,
    )
