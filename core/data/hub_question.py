"""One short question to the hub about a data set, and the download of its files."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainwiz.core.catalog.hub_api import REFUSED, ask, is_closed, sizes_of
from trainwiz.core.catalog.hub_cache import hub_cache_folder, hub_endpoint, hub_token
from trainwiz.core.errors import CannotRunError
from trainwiz.core.findings import Finding, Remedy
from trainwiz.core.language import tr


@dataclass(frozen=True, slots=True)
class HubAnswer:
    """What the hub says about a data set."""

    state: Literal["there", "unknown", "offline"]
    sizes: Mapping[str, int]
    """File -> bytes, 0 where the hub does not say."""
    card: Mapping[str, Any]
    gated: bool = False


def ask_hub(hub_id: str, environment: Mapping[str, str]) -> HubAnswer:
    """Files and card of a data set; at most one question of three seconds, none when HF_HUB_OFFLINE is set."""
    status, document = ask(f"/api/datasets/{hub_id}?blobs=true", environment)
    if document is None:
        return HubAnswer("unknown" if status in REFUSED else "offline", {}, {})
    card = document.get("cardData")
    return HubAnswer(
        "there", sizes_of(document), card if isinstance(card, dict) else {}, is_closed(document, environment)
    )


def download(hub_id: str, names: Sequence[str], where: str, environment: Mapping[str, str]) -> Path:
    """Fetch these files of a data set into the local cache; the folder of its snapshot.

    Several processes may ask for the same files: huggingface_hub locks each file. Raises
    CannotRunError with one sentence.
    """
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            hub_id,
            repo_type="dataset",
            allow_patterns=[*map(glob.escape, names), "README.md"],
            cache_dir=hub_cache_folder(environment),
            endpoint=hub_endpoint(environment),
            token=hub_token(environment),
        )
    # The HTTP library beneath changes between versions of huggingface_hub, and its errors pass through.
    except Exception as error:  # noqa: BLE001
        detail = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        command = f"hf download --repo-type dataset {hub_id}"
        message = tr(
            "hub data set {hub_id} cannot be downloaded ({detail}); try again, or fetch it with `{command}`.",
            hub_id=hub_id,
            detail=detail,
            command=command,
        )
        raise CannotRunError(
            Finding("missing_data", "error", where, message, (Remedy(tr("download it once"), command),))
        ) from None
    return Path(folder)
