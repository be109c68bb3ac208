"""A small HTTP server that answers as the hub does: the API of data sets and their files, and documents of models."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

SHA = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class HubStandIn:
    """What the server has, and what it was asked."""

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Data set id -> file -> content."""
    gated: set[str] = field(default_factory=set)
    answers: dict[str, object] = field(default_factory=dict)
    """Path -> an object that is sent as JSON, or raw text."""
    redirect: str = ""
    """Where questions are sent on to."""
    asked: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    """The Authorization of each question."""
    endpoint: str = ""

    def document(self, hub_id: str) -> dict[str, Any]:
        siblings = [{"rfilename": name, "size": len(data)} for name, data in self.files[hub_id].items()]
        gated = "auto" if hub_id in self.gated else False
        return {
            "id": hub_id, "sha": SHA, "siblings": siblings, "cardData": {}, "gated": gated,
            "private": False, "disabled": False, "downloads": 0, "likes": 0, "tags": [],
        }  # fmt: skip

    def add_model(self, hub_id: str, files: dict[str, int], config: object = None, gated: str | bool = False) -> None:
        siblings = [{"rfilename": name, "size": size} for name, size in files.items()]
        self.answers[f"/api/models/{hub_id}"] = {"id": hub_id, "gated": gated, "siblings": siblings}
        if config is not None:
            self.answers[f"/{hub_id}/resolve/main/config.json"] = config


@contextmanager
def hub_server(stand_in: HubStandIn) -> Iterator[HubStandIn]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, *, with_body: bool) -> None:
            path = unquote(urlsplit(self.path).path)
            stand_in.asked.append(f"{self.command} {path}")
            stand_in.tokens.append(self.headers.get("Authorization"))
            body, headers = self._found(path)
            first, _, last = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
            whole, cut = len(body or b""), bool(last) and body is not None
            if body is not None and cut:
                body = body[int(first) : int(last) + 1] if first else body[-int(last) :]
                headers = headers | {"Content-Range": f"bytes {first or 0}-{last}/{whole}"}
            self.send_response(307 if stand_in.redirect else 404 if body is None else 206 if cut else 200)
            if stand_in.redirect:
                headers = {"Location": stand_in.redirect + self.path}
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            if with_body and body is not None:
                self.wfile.write(body)

        def _found(self, path: str) -> tuple[bytes | None, dict[str, str]]:
            if path in stand_in.answers:
                answer = stand_in.answers[path]
                return (answer if isinstance(answer, str) else json.dumps(answer)).encode(), {}
            for hub_id, files in stand_in.files.items():
                api = f"/api/datasets/{hub_id}"
                if path.startswith(f"{api}/tree/"):
                    tree = [
                        {"type": "file", "path": name, "size": len(data), "oid": SHA} for name, data in files.items()
                    ]
                    return json.dumps(tree).encode(), {"Content-Type": "application/json"}
                if path == api or path.startswith(f"{api}/revision/"):
                    return json.dumps(stand_in.document(hub_id)).encode(), {"Content-Type": "application/json"}
                for name, data in files.items():
                    if path in (f"/datasets/{hub_id}/resolve/{revision}/{name}" for revision in (SHA, "main")):
                        return data, {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": SHA}
            return None, {"X-Error-Code": "RepoNotFound"}

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        stand_in.endpoint = f"http://127.0.0.1:{server.server_port}"
        yield stand_in
        server.shutdown()
