"""The Hugging Face hub: the local cache, and one short question."""

from __future__ import annotations

import http.client
import os
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trainwiz.core.files import read_small
from trainwiz.core.language import trn
from trainwiz.core.text import parse_json

# The local Hugging Face cache, read without importing huggingface_hub and without a network.


def is_hub_id(name: str) -> bool:
    """`owner/name`, or one word, in the characters that the hub allows."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", name) is not None and ".." not in name


def hub_cache_folder() -> Path:
    """Where Hugging Face keeps what it downloaded (HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, in its own order)."""
    own = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return Path(own).expanduser() if own else _home() / "hub"


def _home() -> Path:
    own = os.environ.get("HF_HOME")
    return Path(own or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface").expanduser()


Kind = Literal["models", "datasets"]


def snapshots(hub_id: str, kind: Kind) -> list[Path]:
    """The snapshots that are here: the one of `main`, then the others, newest first."""
    folder = hub_cache_folder() / f"{kind}--{hub_id.replace('/', '--')}"
    try:
        main = read_small(folder / "refs" / "main").decode().strip()
    except (OSError, UnicodeDecodeError):
        main = ""
    found = [path for path in (folder / "snapshots").glob("*") if path.is_dir()]
    return sorted(found, key=lambda path: (path.name == main, path.stat().st_mtime), reverse=True)


def cached_model_folder(hub_id: str) -> Path | None:
    """The first snapshot of a model that has its config.json here."""
    if not is_hub_id(hub_id):
        return None
    return next((path for path in snapshots(hub_id, "models") if (path / "config.json").is_file()), None)


def is_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def hub_endpoint() -> str:
    """The hub's address, or that of the mirror in HF_ENDPOINT; without a slash at the end."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def hub_token() -> str | None:
    """HF_TOKEN, else what `hf auth login` left beside the cache; None without an account."""
    if os.environ.get("HF_TOKEN"):
        return os.environ["HF_TOKEN"].strip()
    path = Path(os.environ.get("HF_TOKEN_PATH") or _home() / "token").expanduser()
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

HubReply = tuple[int, bytes, bool]
"""(HTTP status, the bytes, whether they are the whole file); status 0 where there was no answer."""
NO_REPLY: HubReply = (0, b"", False)
_remembered: dict[tuple[str, str, str], tuple[float, HubReply]] = {}


def ask(path: str) -> tuple[int, dict[str, Any] | None]:
    """(HTTP status, JSON object) that the hub answers to GET `path`, None for anything but an object; at most one question
    of some seconds, none when HF_HUB_OFFLINE is set."""
    status, data, _ = _in_time(path, "", LONGEST_ANSWER)
    try:
        document = parse_json(data)
    except ValueError:
        document = None
    return status, document if isinstance(document, dict) else None


def ask_for_piece(path: str, size: int, *, at_the_end: bool) -> tuple[bytes, bool]:
    """(the first or last `size` bytes of a file of the hub, whether that is all of it); as short as `ask`, and empty where
    there is no answer."""
    span = f"bytes=-{size}" if at_the_end else f"bytes=0-{size - 1}"
    _, data, is_whole = _in_time(urllib.parse.quote(path), span, size)
    return data, is_whole


def _in_time(path: str, span: str, most: int) -> HubReply:
    """At most so many bytes of the answer, remembered; NO_REPLY where it takes longer than LONGEST_S: each wait has its own
    end, and a slow line makes any number of them."""
    if is_offline():
        return NO_REPLY
    asked = f"{hub_endpoint()}{path}", hub_token() or "", span
    known = _remembered.get(asked)
    if known is not None and time.monotonic() - known[0] <= REMEMBERED_S:
        return known[1]
    found = [NO_REPLY]

    def question() -> None:
        # HTTPException: an answer that is no HTTP, or an address that is none.
        with suppress(OSError, ValueError, http.client.HTTPException):
            try:
                with urllib.request.urlopen(_request(*asked), timeout=TIMEOUT_S) as response:
                    data, headers = response.read(most), response.headers
                    # "bytes 0-99/100"; a server that knows no ranges sends the file from its beginning.
                    size = headers.get("Content-Range", "").rpartition("/")[2] or headers.get("Content-Length")
                    found[0] = response.status, data, size == str(len(data))
            except urllib.error.HTTPError as error:
                found[0] = error.code, b"", False

    thread = threading.Thread(target=question, daemon=True)
    thread.start()
    thread.join(LONGEST_S)
    reply = found[0]
    _remembered[asked] = time.monotonic(), reply
    return reply


def _request(url: str, token: str, span: str) -> urllib.request.Request:
    request = urllib.request.Request(url, headers={"Range": span} if span else {})
    if token:
        # Not sent along when the hub redirects to a store of files elsewhere.
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    return request


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


def amount_of(files: Mapping[str, int]) -> str:
    """ "2 files (4.2 GB)"; without a size where it is not known."""
    total = sum(files.values())
    if not total:
        return trn("{n} file", "{n} files", len(files))
    size = f"{total / 1e9:.1f} GB" if total >= 1e8 else f"{max(total / 1e6, 0.1):.1f} MB"
    return trn("{n} file ({size})", "{n} files ({size})", len(files), size=size)


@dataclass(frozen=True, slots=True)
class HubAnswer:
    """Of a model or data set. `offline`: the hub cannot be reached, or must not be asked; `unknown`: it shows no such one."""

    state: Literal["there", "unknown", "offline"]
    sizes: Mapping[str, int] = field(default_factory=dict)
    """File -> bytes; 0 where the hub does not say."""
    closed: bool = False
    """Its files are for accounts that accepted a licence, and there is no account here."""
    license: str | None = None
    """As its tags name it."""
    card: Mapping[str, Any] = field(default_factory=dict)
    """The YAML head of its README.md."""

    @property
    def weights(self) -> dict[str, int]:
        return weights_of(self.sizes)


def ask_hub(hub_id: str, kind: Kind = "models") -> HubAnswer:
    """At most one question of three seconds, none when HF_HUB_OFFLINE is set."""
    if not is_hub_id(hub_id):
        return HubAnswer("offline")
    status, document = ask(f"/api/{kind}/{hub_id}?blobs=true")
    if document is None:
        return HubAnswer("unknown" if status in REFUSED else "offline")
    try:
        sizes = {str(entry["rfilename"]): int(entry.get("size") or 0) for entry in document.get("siblings") or ()}
        tags = [str(tag) for tag in document.get("tags") or ()]
    except (AttributeError, KeyError, TypeError, ValueError):
        # Of another server, or of a mirror that answers otherwise.
        return HubAnswer("offline")
    licenses = (tag.removeprefix("license:") for tag in tags if tag.startswith("license:"))
    card, closed = document.get("cardData"), bool(document.get("gated")) and hub_token() is None
    return HubAnswer("there", sizes, closed, next(licenses, None), card if isinstance(card, dict) else {})


def fetch_config(hub_id: str) -> dict[str, Any] | None:
    return ask(f"/{hub_id}/resolve/main/config.json")[1] if is_hub_id(hub_id) else None
