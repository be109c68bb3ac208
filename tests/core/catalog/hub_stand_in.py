"""A small server that answers like the hub's API, on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Hub:
    """What the stand-in has, and what it was asked."""

    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Hub id -> the API's document of the model."""
    configs: dict[str, object] = field(default_factory=dict)
    """Hub id -> its config.json, as an object or as raw text."""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    """(path, Authorization header) of each question."""
    endpoint: str = ""

    def add(self, hub_id: str, files: dict[str, int], config: object = None, gated: str | bool = False) -> None:
        siblings = [{"rfilename": name, "size": size} for name, size in files.items()]
        self.models[hub_id] = {"id": hub_id, "gated": gated, "siblings": siblings}
        if config is not None:
            self.configs[hub_id] = config


@contextmanager
def hub_stand_in() -> Iterator[Hub]:
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hub.asked.append((self.path, self.headers.get("Authorization")))
            path = self.path.partition("?")[0]
            found: object = hub.models.get(path.removeprefix("/api/models/"))
            if path.endswith("/resolve/main/config.json"):
                found = hub.configs.get(path.removesuffix("/resolve/main/config.json").strip("/"))
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write((found if isinstance(found, str) else json.dumps(found)).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
