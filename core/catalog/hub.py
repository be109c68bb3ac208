"""Models of the Hugging Face hub: the local cache, and one short question."""

from __future__ import annotations

import http.client
import os
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from trainwiz.core.files import read_small
from trainwiz.core.text import parse_json

# The local Hugging Face cache, read without importing huggingface_hub and without a network.


def is_hub_id(name: str) -> bool:
    """`owner/name`, or one word, in the characters that the hub allows."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", name) is not None and ".." not in name


def hub_cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where Hugging Face keeps what it downloaded (HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, in its own order)."""
    variables = os.environ if environment is None else environment
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if variables.get(variable):
            return Path(variables[variable]).expanduser()
    return _home(variables) / "hub"


def _home(variables: Mapping[str, str]) -> Path:
    own = variables.get("HF_HOME")
    return Path(own or Path(variables.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface").expanduser()


def cached_model_folder(hub_id: str) -> Path | None:
    """The snapshot of a model that has its config.json here: the one of `main`, else the newest."""
    if not is_hub_id(hub_id):
        return None
    marker, root = "config.json", hub_cache_folder() / f"models--{hub_id.replace('/', '--')}"
    try:
        main = root / "snapshots" / read_small(root / "refs" / "main").decode().strip()
    except (OSError, UnicodeDecodeError):
        main = None
    if main is not None and (main / marker).is_file():
        return main
    snapshots = [path for path in (root / "snapshots").glob("*") if (path / marker).is_file()]
    return max(snapshots, key=lambda path: path.stat().st_mtime, default=None)


def is_offline(environment: Mapping[str, str] | None = None) -> bool:
    variables = os.environ if environment is None else environment
    return variables.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def hub_endpoint(environment: Mapping[str, str] | None = None) -> str:
    """The hub's address, or that of the mirror in HF_ENDPOINT; without a slash at the end."""
    variables = os.environ if environment is None else environment
    return (variables.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def hub_token(environment: Mapping[str, str] | None = None) -> str | None:
    """HF_TOKEN, else what `hf auth login` left beside the cache; None without an account."""
    variables = os.environ if environment is None else environment
    if variables.get("HF_TOKEN"):
        return variables["HF_TOKEN"].strip()
    path = Path(variables.get("HF_TOKEN_PATH") or _home(variables) / "token").expanduser()
    try:
        return read_small(path).decode().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


# One short question to the Hugging Face hub; its answer is remembered for a minute.

TIMEOUT_S = 3.0
LONGEST_S = 6.0
"""For an answer that comes in small pieces: each of them is waited for."""
REMEMBERED_S = 60.0
"""A screen plans at each key that is pressed: the hub is not asked each time."""
LONGEST_ANSWER = 16 * 2**20
"""Bytes; a config or a list of files is far shorter."""
REFUSED = (401, 403, 404)
"""HTTP statuses of what the hub does not have, or does not show to this account."""

HubReply = tuple[int, dict[str, Any] | None]
"""(HTTP status, JSON object); status 0 where there was no answer, None for anything but an object."""
_remembered: dict[tuple[str, str, str], tuple[float, Any]] = {}
T = TypeVar("T")


def ask(path: str, environment: Mapping[str, str] | None = None) -> HubReply:
    """What the hub answers to GET `path`; at most one question of some seconds, none when HF_HUB_OFFLINE is set."""
    if is_offline(environment):
        return 0, None
    nothing: HubReply = (0, None)
    return _in_time(f"{hub_endpoint(environment)}{path}", hub_token(environment) or "", "", _document, nothing)


def ask_for_piece(path: str, size: int, *, at_the_end: bool) -> tuple[bytes, bool]:
    """(the first or last `size` bytes of a file of the hub, whether that is all of it); as short as `ask`, and empty where
    there is no answer."""
    if is_offline():
        return b"", False
    span = f"bytes=-{size}" if at_the_end else f"bytes=0-{size - 1}"
    url = f"{hub_endpoint()}{urllib.parse.quote(path)}"
    return _in_time(url, hub_token() or "", span, lambda response: _piece(response, size), (b"", False))


def _in_time(url: str, token: str, span: str, read: Callable[[Any], T], nothing: T) -> T:
    """What `read` makes of the answer, remembered; `nothing` without one, or where it takes longer than LONGEST_S: each wait
    has its own end, and a slow line makes any number of them."""
    known = _remembered.get((url, token, span))
    if known is not None and time.monotonic() - known[0] <= REMEMBERED_S:
        return cast(T, known[1])
    found: list[T] = []

    def question() -> None:
        try:
            with urllib.request.urlopen(_request(url, token, span), timeout=TIMEOUT_S) as response:
                found.append(read(response))
        except urllib.error.HTTPError as error:
            found.append(cast(T, (error.code, None)) if not span else nothing)
        except (OSError, ValueError, http.client.HTTPException):
            # HTTPException: an answer that is no HTTP, or an address that is none.
            found.append(nothing)

    thread = threading.Thread(target=question, daemon=True)
    thread.start()
    thread.join(LONGEST_S)
    reply = found[0] if found else nothing
    _remembered[url, token, span] = (time.monotonic(), reply)
    return reply


def _document(response: Any) -> HubReply:
    document = parse_json(response.read(LONGEST_ANSWER))
    return response.status, document if isinstance(document, dict) else None


def _piece(response: Any, size: int) -> tuple[bytes, bool]:
    data, headers = response.read(size), response.headers
    # "bytes 0-99/100"; a server that knows no ranges sends the file from its beginning.
    whole = headers.get("Content-Range", "").rpartition("/")[2] or headers.get("Content-Length")
    return data, whole == str(len(data))


def _request(url: str, token: str, span: str) -> urllib.request.Request:
    request = urllib.request.Request(url, headers={"Range": span} if span else {})
    if token:
        # Not sent along when the hub redirects to a store of files elsewhere.
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    return request


def sizes_of(document: Mapping[str, Any]) -> dict[str, int]:
    """File -> bytes of a model or data set; 0 where the hub does not say."""
    listed = document.get("siblings")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return {str(entry.get("rfilename")): size if isinstance(size := entry.get("size"), int) else 0 for entry in entries}


def is_closed(document: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> bool:
    """Whether its files are for accounts that accepted a licence, and there is no account here."""
    return bool(document.get("gated")) and hub_token(environment) is None


def license_of(document: Mapping[str, Any]) -> str | None:
    """The licence that its tags name ("license:mit"); None where none does."""
    tags = document.get("tags")
    names = [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
    return next((tag.removeprefix("license:") for tag in names if tag.startswith("license:")), None)


SAFETENSORS = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
PICKLES = re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin")
TOKENIZER_FILES = frozenset(
    {"tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "source.spm", "vocab.json",
     "vocab.txt"}
)  # fmt: skip
"""Any of them makes a folder one with a tokenizer."""


def weights_of(sizes: Mapping[str, int]) -> dict[str, int]:
    """The safetensors, or where there are none torch's own files: both hold the same weights."""
    kinds = ({name: size for name, size in sizes.items() if kind.fullmatch(name)} for kind in (SAFETENSORS, PICKLES))
    return next(filter(None, kinds), {})


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

    @property
    def weights(self) -> dict[str, int]:
        return weights_of(self.sizes)

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
    return ask(f"/{hub_id}/resolve/main/config.json")[1] if is_hub_id(hub_id) else None
