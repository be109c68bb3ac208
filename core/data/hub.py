"""Data sets of the Hugging Face hub: what lies in the local cache, and a quick word when it does not."""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwiz.core.catalog.hub_cache import hub_cache_folder
from trainwiz.core.data.formats import format_of
from trainwiz.core.errors import UsageError
from trainwiz.core.findings import Finding, Remedy
from trainwiz.core.json_text import parse_json

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
ONLINE_CHECK_S = 3.0
WORKS_OFFLINE = "offline, a file or folder works (--dataset FILE) and so does the sample sample-proteins"


def looks_like_hub_id(name: str) -> bool:
    return HUB_ID.fullmatch(name) is not None


def hub_files(
    hub_id: str, split: str, subset: str | None, where: str, environment: Mapping[str, str] | None = None
) -> list[Path]:
    """The data files of one split in the local cache.

    Raises UsageError with one sentence when they are not there; that takes at most one question
    of three seconds to the hub, and none when HF_HUB_OFFLINE is set.
    """
    environment = os.environ if environment is None else environment
    folder = hub_cache_folder(environment) / f"datasets--{hub_id.replace('/', '--')}"
    snapshot = _snapshot(folder)
    if snapshot is None:
        raise _not_here(hub_id, where, _ask_hub(hub_id, environment))
    found = [path for path in sorted(snapshot.rglob("*")) if path.is_file() and format_of(path) not in (None, "txt")]
    if not found:
        raise _finding(
            "missing_data", where, f"hub data set {hub_id} is in the local cache without a data file that can be read."
        )
    inside = {path: path.relative_to(snapshot).as_posix() for path in found}
    if subset:
        found = [path for path in found if subset in re.split(r"[/]", inside[path])[:-1]]
    chosen = [path for path in found if re.search(rf"(^|[^a-z]){re.escape(split)}([^a-z]|$)", inside[path])]
    if not chosen and not any(
        re.search(r"(^|[^a-z])(train|test|valid\w*)([^a-z]|$)", name) for name in inside.values()
    ):
        chosen = found
    if not chosen:
        listed = ", ".join(sorted(inside.values())[:8])
        raise _finding(
            "missing_data",
            where,
            f"the cached files of {hub_id} hold no split {split!r}"
            f"{f' of {subset!r}' if subset else ''}; there are: {listed}.",
        )
    return chosen


def _snapshot(folder: Path) -> Path | None:
    """The snapshot that refs/main names, else the newest one."""
    main = folder / "refs" / "main"
    if main.is_file():
        named = folder / "snapshots" / main.read_text(encoding="utf-8").strip()
        if named.is_dir():
            return named
    snapshots = [path for path in (folder / "snapshots").glob("*") if path.is_dir()]
    return max(snapshots, key=lambda path: path.stat().st_mtime, default=None)


def _ask_hub(hub_id: str, environment: Mapping[str, str]) -> str:
    """ "offline", "unknown" or "there"."""
    if environment.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return "offline"
    endpoint = environment.get("HF_ENDPOINT") or "https://huggingface.co"
    request = urllib.request.Request(f"{endpoint.rstrip('/')}/api/datasets/{hub_id}")
    if environment.get("HF_TOKEN"):
        request.add_header("Authorization", f"Bearer {environment['HF_TOKEN']}")
    try:
        with urllib.request.urlopen(request, timeout=ONLINE_CHECK_S) as response:
            document: Any = parse_json(response.read())
    except urllib.error.HTTPError as error:
        return "unknown" if error.code in (401, 403, 404) else "offline"
    except (OSError, ValueError):
        return "offline"
    return "there" if isinstance(document, dict) else "offline"


def _not_here(hub_id: str, where: str, answer: str) -> UsageError:
    if answer == "unknown":
        return _finding("missing_data", where, f"the hub has no public data set {hub_id!r} (or it needs HF_TOKEN).")
    command = f"hf download --repo-type dataset {hub_id}"
    if answer == "there":
        message = f"hub data set {hub_id} is not in the local cache; fetch it once with `{command}`."
        return _finding("missing_data", where, message, Remedy("download it once", command))
    message = (
        f"hub data set {hub_id} is not in the local cache and the hub cannot be reached; {WORKS_OFFLINE}, "
        f"or with a network `{command}`."
    )
    return _finding("missing_data", where, message, Remedy("use a local file: --dataset FILE"))


def _finding(code: str, where: str, message: str, *remedies: Remedy) -> UsageError:
    return UsageError(Finding(code=code, severity="error", where=where, message=message, remedies=remedies))
