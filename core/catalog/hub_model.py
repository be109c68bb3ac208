"""What the hub says about a model that is not on this machine: its files, its config, whether it is gated."""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trainwiz.core.catalog.hub_cache import hub_endpoint, hub_token, is_hub_id, is_offline
from trainwiz.core.json_text import parse_json

TIMEOUT_S = 3.0
REMEMBERED_S = 60.0
"""A screen plans at each key that is pressed: the hub is not asked each time."""
LONGEST_ANSWER = 16 * 2**20
"""Bytes; a config or a list of files is far shorter."""

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

    def files(self, pattern: re.Pattern[str]) -> dict[str, int]:
        """Files whose name matches, with their bytes."""
        return {name: size for name, size in self.sizes.items() if pattern.fullmatch(name)}

    @property
    def has_tokenizer(self) -> bool:
        return not TOKENIZER_FILES.isdisjoint(self.sizes)


_Reply = tuple[int, dict[str, Any] | None]
_remembered: dict[tuple[str, str, str], tuple[float, _Reply]] = {}


def ask_hub(hub_id: str) -> HubModel:
    """Files of a model on the hub: at most one question of three seconds, none when HF_HUB_OFFLINE is set."""
    if is_offline() or not is_hub_id(hub_id):
        return HubModel("offline")
    status, document = _get(f"/api/models/{hub_id}?blobs=true")
    if document is None:
        return HubModel("unknown" if status in (401, 403, 404) else "offline")
    listed = document.get("siblings")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    sizes = {
        str(entry.get("rfilename")): size if isinstance(size := entry.get("size"), int) else 0 for entry in entries
    }
    return HubModel("there", sizes, bool(document.get("gated")) and hub_token() is None)


def fetch_config(hub_id: str) -> dict[str, Any] | None:
    """The config.json of a model on the hub; None where it cannot be had."""
    if is_offline() or not is_hub_id(hub_id):
        return None
    return _get(f"/{hub_id}/resolve/main/config.json")[1]


def _get(path: str) -> _Reply:
    """(HTTP status, JSON object); status 0 where there was no answer."""
    endpoint, token = hub_endpoint(), hub_token() or ""
    key = (endpoint, path, token)
    known = _remembered.get(key)
    if known is not None and time.monotonic() - known[0] <= REMEMBERED_S:
        return known[1]
    reply = _ask(f"{endpoint}{path}", token)
    _remembered[key] = (time.monotonic(), reply)
    return reply


def _ask(url: str, token: str) -> _Reply:
    request = urllib.request.Request(url)
    if token:
        # Not sent along when the hub redirects to a store of files elsewhere.
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            document = parse_json(response.read(LONGEST_ANSWER))
            return response.status, document if isinstance(document, dict) else None
    except urllib.error.HTTPError as error:
        return error.code, None
    except (OSError, ValueError):
        return 0, None
