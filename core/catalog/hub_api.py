"""One short question to the Hugging Face hub; its answer is remembered for a minute."""

from __future__ import annotations

import http.client
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from trainwiz.core.catalog.hub_cache import hub_endpoint, hub_token, is_offline
from trainwiz.core.json_text import parse_json

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
_remembered: dict[tuple[str, str, str], tuple[float, HubReply]] = {}


def ask(path: str, environment: Mapping[str, str] | None = None) -> HubReply:
    """What the hub answers to GET `path`; at most one question of some seconds, none when HF_HUB_OFFLINE is set."""
    if is_offline(environment):
        return 0, None
    endpoint, token = hub_endpoint(environment), hub_token(environment) or ""
    key = (endpoint, path, token)
    known = _remembered.get(key)
    if known is not None and time.monotonic() - known[0] <= REMEMBERED_S:
        return known[1]
    reply = _in_time(f"{endpoint}{path}", token)
    _remembered[key] = (time.monotonic(), reply)
    return reply


def _in_time(url: str, token: str) -> HubReply:
    """What the hub answers within LONGEST_S: each wait has its own end, and a slow line makes any number of them."""
    replies: list[HubReply] = []
    thread = threading.Thread(target=lambda: replies.append(_ask(url, token)), daemon=True)
    thread.start()
    thread.join(LONGEST_S)
    return replies[0] if replies else (0, None)


def _ask(url: str, token: str) -> HubReply:
    try:
        request = urllib.request.Request(url)
        if token:
            # Not sent along when the hub redirects to a store of files elsewhere.
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            document = parse_json(response.read(LONGEST_ANSWER))
            return response.status, document if isinstance(document, dict) else None
    except urllib.error.HTTPError as error:
        return error.code, None
    except (OSError, ValueError, http.client.HTTPException):
        # HTTPException: an answer that is no HTTP, or an address that is none.
        return 0, None


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
