"""One short question to the hub about a data set, and the download of its files."""

from __future__ import annotations

import glob
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainwiz.core.catalog.hub_cache import hub_cache_folder
from trainwiz.core.errors import CannotRunError
from trainwiz.core.findings import Finding, Remedy
from trainwiz.core.json_text import parse_json

ONLINE_CHECK_S = 3.0
REMEMBERED_S = 60.0
"""A screen plans at each key that is pressed: the hub is not asked each time."""
DEFAULT_ENDPOINT = "https://huggingface.co"


@dataclass(frozen=True, slots=True)
class HubAnswer:
    """What the hub says about a data set."""

    state: Literal["there", "unknown", "offline"]
    sizes: Mapping[str, int]
    """File -> bytes, 0 where the hub does not say."""
    card: Mapping[str, Any]
    gated: bool = False


_OFFLINE = HubAnswer("offline", {}, {})
_UNKNOWN = HubAnswer("unknown", {}, {})
_remembered: dict[tuple[str, str, str], tuple[float, HubAnswer]] = {}


def is_offline(environment: Mapping[str, str]) -> bool:
    return environment.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def endpoint_of(environment: Mapping[str, str]) -> str:
    return (environment.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")


def ask_hub(hub_id: str, environment: Mapping[str, str]) -> HubAnswer:
    """Files and card of a data set; at most one question of three seconds, none when HF_HUB_OFFLINE is set."""
    if is_offline(environment):
        return _OFFLINE
    endpoint, token = endpoint_of(environment), environment.get("HF_TOKEN", "")
    key = (endpoint, hub_id, token)
    asked, answer = _remembered.get(key, (-REMEMBERED_S, _OFFLINE))
    if time.monotonic() - asked > REMEMBERED_S:
        answer = _ask(f"{endpoint}/api/datasets/{hub_id}?blobs=true", token)
        _remembered[key] = (time.monotonic(), answer)
    return answer


def _ask(url: str, token: str) -> HubAnswer:
    request = urllib.request.Request(url)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=ONLINE_CHECK_S) as response:
            document: Any = parse_json(response.read())
    except urllib.error.HTTPError as error:
        return _UNKNOWN if error.code in (401, 403, 404) else _OFFLINE
    except (OSError, ValueError):
        return _OFFLINE
    if not isinstance(document, dict):
        return _OFFLINE
    listed = document.get("siblings")
    files = [file for file in listed if isinstance(file, dict)] if isinstance(listed, list) else []
    card = document.get("cardData")
    return HubAnswer(
        "there",
        {str(file.get("rfilename")): size if isinstance(size := file.get("size"), int) else 0 for file in files},
        card if isinstance(card, dict) else {},
        bool(document.get("gated")) and not token,
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
            endpoint=endpoint_of(environment),
            token=environment.get("HF_TOKEN") or None,
        )
    # The HTTP library beneath changes between versions of huggingface_hub, and its errors pass through.
    except Exception as error:  # noqa: BLE001
        detail = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        command = f"hf download --repo-type dataset {hub_id}"
        message = f"hub data set {hub_id} cannot be downloaded ({detail}); try again, or fetch it with `{command}`."
        raise CannotRunError(
            Finding("missing_data", "error", where, message, (Remedy("download it once", command),))
        ) from None
    return Path(folder)
