"""One question to the hub, for models and data sets alike: who gets the token, and who has an account."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from trainwiz.core.catalog import hub as hub_api
from trainwiz.core.catalog.hub import ask, is_closed, sizes_of
from trainwiz.core.data.hub import HubSplit, hub_files
from trainwiz.core.errors import UsageError

from tests.each import each

DOCUMENT = {"gated": "auto", "siblings": [{"rfilename": "data/train.jsonl", "size": 2}, {"rfilename": "b"}, "c"]}


@contextmanager
def server(redirect: str | None = None) -> Iterator[tuple[str, list[str | None]]]:
    """(address, Authorization header of each question); answers DOCUMENT, or sends on to `redirect`."""
    asked: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers.get("Authorization"))
            self.send_response(307 if redirect else 200)
            if redirect:
                self.send_header("Location", redirect + self.path)
            self.end_headers()
            self.wfile.write(json.dumps(DOCUMENT).encode())

        def log_message(self, format: str, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", asked
        running.shutdown()


def test_the_token_is_not_sent_along_to_where_the_hub_redirects(tmp_path: Path) -> None:
    with server() as (elsewhere, asked_elsewhere), server(redirect=elsewhere) as (hub, asked):
        environment = {"HF_ENDPOINT": hub, "HF_TOKEN": "hf_mine", "HF_HUB_CACHE": str(tmp_path)}
        with pytest.raises(UsageError, match="downloaded when the run starts"):
            hub_files(HubSplit("some/gated"), environment)
    assert (asked, asked_elsewhere) == (["Bearer hf_mine"], [None])


def test_who_has_logged_in_may_read_a_gated_data_set(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hf_kept\n")
    with server() as (hub, asked):
        environment = {"HF_ENDPOINT": hub, "HF_HUB_CACHE": str(tmp_path), "HF_TOKEN_PATH": str(tmp_path / "none")}
        with pytest.raises(UsageError, match="is gated"):
            hub_files(HubSplit("some/gated"), environment)
        with pytest.raises(UsageError, match="downloaded when the run starts"):
            hub_files(HubSplit("some/gated"), environment | {"HF_TOKEN_PATH": str(tmp_path / "token")})
    assert asked == [None, "Bearer hf_kept"]


def test_offline_nobody_is_asked() -> None:
    with server() as (hub, asked):
        assert ask("/api/models/a/b", {"HF_ENDPOINT": hub, "HF_HUB_OFFLINE": "1"}) == (0, None)
        assert asked == []
        status, document = ask("/api/models/a/b", {"HF_ENDPOINT": hub})
    assert status == 200 and document == DOCUMENT and len(asked) == 1


def test_what_a_document_says() -> None:
    assert sizes_of(DOCUMENT) == {"data/train.jsonl": 2, "b": 0}
    assert sizes_of({"siblings": "?"}) == {} == sizes_of({})
    assert not is_closed({"gated": False}, {"HF_TOKEN_PATH": "/nowhere"})
    assert is_closed({"gated": "manual"}, {"HF_TOKEN_PATH": "/nowhere"})


@contextmanager
def strange_server(*pieces: bytes) -> Iterator[str]:
    """Address of one that answers with these pieces, again and again the last one, a tenth of a second apart."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    for piece in (*pieces[:-1], *[pieces[-1]] * 100):
                        connection.sendall(piece)
                        time.sleep(0.1)

        threading.Thread(target=answer, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_an_answer_that_never_ends_is_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_api, "LONGEST_S", 0.5)
    with strange_server(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n") as hub:
        began = time.monotonic()
        assert ask("/api/slow", {"HF_ENDPOINT": hub}) == (0, None)
    assert time.monotonic() - began < 5


def test_what_is_no_http_is_no_answer() -> None:
    with strange_server(b"\0\xff nonsense\r\n\r\n") as hub:
        assert ask("/api/odd", {"HF_ENDPOINT": hub}) == (0, None)


@each("endpoint", ["nonsense", "http://a b", "http://[::", "http://x:port"])
def test_an_address_that_is_none_is_no_answer(endpoint: str) -> None:
    assert ask("/api/odd", {"HF_ENDPOINT": endpoint}) == (0, None)
