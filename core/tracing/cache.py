"""TraceCache: traces that were made before, one file for each, in the user's cache folder."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import platformdirs
from trainwiz.core.json_text import parse_json
from trainwiz.core.run.folder import write_atomic
from trainwiz.core.small_file import open_file
from trainwiz.core.tracing.answer import result_of
from trainwiz.core.tracing.request import TraceRequest, TraceTier
from trainwiz.core.tracing.result import TraceResult
from trainwiz.core.tracing.versions import trace_versions

MOST_TRACES = 4000
"""About 2 kB each. Half of them stay when there are more, those that were used last."""
LARGEST_FILE_BYTES = 1 << 20


def user_cache_folder() -> Path:
    """Where traces are kept, for example ~/.cache/trainwiz/traces."""
    return Path(platformdirs.user_cache_dir("trainwiz")) / "traces"


class TraceCache:
    """Never raises: a folder that cannot be used is a cache that knows nothing. Safe for threads and processes."""

    def __init__(
        self, folder: Path | None = None, most: int = MOST_TRACES, versions: Mapping[str, str] | None = None
    ) -> None:
        """`most` 0 keeps nothing. `versions` are those of this installation unless given."""
        self._folder = user_cache_folder() if folder is None else folder
        self._most = most
        self._versions = dict(trace_versions() if versions is None else versions)

    def file(self, request: TraceRequest, tier: TraceTier) -> Path:
        """Where the trace of `request` is, or would be."""
        return self._folder / f"{request.key({**self._versions, 'tier': tier})}.json"

    def get(self, request: TraceRequest, tier: TraceTier) -> TraceResult | None:
        """None for what is not there, and for a file that is broken or of another request."""
        if self._most == 0:
            return None
        path = self.file(request, tier)
        try:
            with open_file(path) as file:
                document = parse_json(file.read(LARGEST_FILE_BYTES))
            if document["request"] != request.to_json():
                return None
            result = result_of(document["result"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if result.tier != tier:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return result

    def put(self, request: TraceRequest, tier: TraceTier, result: TraceResult) -> None:
        """Keeps `result`; a reader meanwhile sees the old or the new file, never half of one."""
        if self._most == 0:
            return
        document = {"request": request.to_json(), "result": result.to_json()}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomic(self.file(request, tier), json.dumps(document))
            self._tidy()
        except (OSError, ValueError):
            return

    def _tidy(self) -> None:
        """Removes the traces that nobody used for longest, and what killed writers left."""
        with os.scandir(self._folder) as entries:
            files = [(entry.stat().st_mtime, entry.path) for entry in entries if entry.is_file()]
        if len(files) <= self._most:
            return
        files.sort()
        for _, path in files[: len(files) - self._most // 2]:
            with contextlib.suppress(OSError):
                Path(path).unlink()
