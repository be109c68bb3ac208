"""Hub data sets: the cache first, at most one quick question, one sentence."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.data.hub import HubSplit, hub_files
from trainwiz.core.data.summary import summarize_data
from trainwiz.core.errors import UsageError

from tests.core.data.builders import parquet


def _cached(folder: Path) -> dict[str, str]:
    snapshot = folder / "datasets--some--proteins" / "snapshots" / "abc"
    (snapshot / "data").mkdir(parents=True)
    (folder / "datasets--some--proteins" / "refs").mkdir()
    (folder / "datasets--some--proteins" / "refs" / "main").write_text("abc")
    parquet(snapshot / "data" / "train-00000-of-00001.parquet", sequence=["MKT"])
    parquet(snapshot / "data" / "test-00000-of-00001.parquet", sequence=["GAVL"])
    return {"HF_HUB_CACHE": str(folder), "HF_HUB_OFFLINE": "1"}


def test_the_split_in_the_cache_is_used(tmp_path: Path) -> None:
    environment = _cached(tmp_path)
    for split in ("train", "test"):
        (path,) = hub_files(HubSplit("some/proteins", split), environment)
        assert path.name.startswith(split)
    with pytest.raises(UsageError, match="no split 'nothing'"):
        hub_files(HubSplit("some/proteins", "nothing"), environment)


def test_offline_says_at_once_what_works() -> None:
    with pytest.raises(UsageError, match=r"sample-proteins.*hf download") as caught:
        hub_files(HubSplit("no/such-set", "train"), {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": "/nowhere"})
    assert len(caught.value.findings) == 1


def test_the_samples_that_are_named_are_those_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("no/such-set", "no-such-file.csv"):
        config = RunConfig.model_validate({"task": "seq2seq", "data": {"sources": [{"name": name}]}})
        with pytest.raises(UsageError, match="sample-pairs") as caught:
            summarize_data(config)
        assert "sample-proteins" not in str(caught.value)


def test_a_hub_that_does_not_answer_costs_one_short_wait() -> None:
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        environment = {"HF_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}", "HF_HUB_CACHE": "/nowhere"}
        # Without its limit of three seconds the question would wait until the test is ended from outside.
        with pytest.raises(UsageError, match="cannot be reached"):
            hub_files(HubSplit("no/such-set", "train"), environment)
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_an_answer_that_is_not_the_hubs_counts_as_offline(tmp_path: Path) -> None:
    class Portal(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>Please log in</html>")

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Portal) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = {"HF_HUB_CACHE": str(tmp_path), "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
        with pytest.raises(UsageError, match="the hub cannot be reached"):
            hub_files(HubSplit("some/proteins", "train"), environment)
        server.shutdown()
