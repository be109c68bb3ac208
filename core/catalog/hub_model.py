"""What the hub says about a model that is not on this machine: its files, its config, whether it is gated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trainwiz.core.catalog.hub_api import REFUSED, ask, is_closed, license_of, sizes_of
from trainwiz.core.catalog.hub_cache import is_hub_id

SAFETENSORS = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
PICKLES = re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin")
TOKENIZER_FILES: frozenset[str] = frozenset(
    {
        "tokenizer.json",
        "tokenizer.model",
        "spiece.model",
        "sentencepiece.bpe.model",
        "source.spm",
        "vocab.json",
        "vocab.txt",
    }
)
"""Any of them makes a folder one with a tokenizer."""


@dataclass(frozen=True, slots=True)
class HubModel:
    """The hub's answer. `offline`: it cannot be reached, or must not be asked; `unknown`: it shows no such model."""

    state: Literal["there", "unknown", "offline"]
    sizes: Mapping[str, int] = field(default_factory=dict)
    """File -> bytes; 0 where the hub does not say."""
    closed: bool = False
    """Its files are for accounts that accepted a licence, and there is no account here."""
    license: str | None = None
    """As its tags name it."""

    def files(self, pattern: re.Pattern[str]) -> dict[str, int]:
        """Files whose name matches, with their bytes."""
        return {name: size for name, size in self.sizes.items() if pattern.fullmatch(name)}

    @property
    def has_tokenizer(self) -> bool:
        return not TOKENIZER_FILES.isdisjoint(self.sizes)


def ask_hub(hub_id: str) -> HubModel:
    """Files of a model on the hub: at most one question of three seconds, none when HF_HUB_OFFLINE is set."""
    if not is_hub_id(hub_id):
        return HubModel("offline")
    status, document = ask(f"/api/models/{hub_id}?blobs=true")
    if document is None:
        return HubModel("unknown" if status in REFUSED else "offline")
    return HubModel("there", sizes_of(document), is_closed(document), license_of(document))


def fetch_config(hub_id: str) -> dict[str, Any] | None:
    """The config.json of a model on the hub; None where it cannot be had."""
    return ask(f"/{hub_id}/resolve/main/config.json")[1] if is_hub_id(hub_id) else None
