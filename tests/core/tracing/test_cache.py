"""Traces in the user's cache folder."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from trainwiz.core.estimate.workload import Moment
from trainwiz.core.tracing.request import TraceCache, TraceResult, trace_versions, user_cache_folder

from tests.core.tracing.requests import request
from tests.each import each

RESULT = TraceResult(
    "full", (Moment("forward", {"weights": 7, "activations": 3}),), (), 12, 5, 4, 1e9, 2e9, 8, 0.5, {"torch": "2"}, "n"
)


def test_what_is_put_is_got_by_another_cache(tmp_path: Path) -> None:
    TraceCache(tmp_path / "new").put(request(), "full", RESULT)
    assert TraceCache(tmp_path / "new").get(request(), "full") == RESULT


def test_other_requests_tiers_and_versions_have_no_trace(tmp_path: Path) -> None:
    cache = TraceCache(tmp_path)
    cache.put(request(), "full", RESULT)
    assert cache.get(request(micro_batch=2), "full") is None
    assert cache.get(request(), "layers") is None
    assert all(trace_versions()[name] for name in ("torch", "transformers", "accelerate", "peft", "code"))
    newer = {**trace_versions(), "torch": "99.0"}
    assert TraceCache(tmp_path, versions=newer).get(request(), "full") is None


def test_it_lies_in_the_users_cache_folder() -> None:
    TraceCache().put(request(), "full", RESULT)
    assert [file.suffix for file in user_cache_folder().iterdir()] == [".json"]
    assert user_cache_folder().is_relative_to(os.environ["XDG_CACHE_HOME"])


def broken_documents() -> list[Any]:
    whole = {"request": request().to_json(), "result": RESULT.to_json()}
    result = whole["result"]
    wrong_kind = {**result, "training": [{"name": "forward", "parts": {"weights": "7"}}]}
    return [
        [],
        {"result": result},
        {**whole, "request": request(micro_batch=2).to_json()},
        {**whole, "result": None},
        {**whole, "result": {**result, "training": []}},
        {**whole, "result": {**result, "training": 3}},
        {**whole, "result": wrong_kind},
        {**whole, "result": {**result, "parameters": -1}},
        {**whole, "result": {**result, "flops": float("nan")}},
        {**whole, "result": {**result, "flops": 10**400}},
        {**whole, "result": {**result, "training": [{"name": "forward", "parts": {"weights": 10**400}}]}},
        {**whole, "result": {**result, "tier": "layers"}},
        {**whole, "result": {**result, "unknown": 1}},
    ]


@each("document", broken_documents())
def test_a_document_that_is_no_trace_of_the_request_is_ignored(tmp_path: Path, document: Any) -> None:
    cache = TraceCache(tmp_path)
    cache.put(request(), "full", RESULT)
    file = cache.file(request(), "full")
    assert file.is_file()
    file.write_text(json.dumps(document))
    assert cache.get(request(), "full") is None


@each("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_broken_file_is_ignored_and_replaced(tmp_path: Path, content: bytes) -> None:
    cache = TraceCache(tmp_path)
    cache.file(request(), "full").write_bytes(content)
    assert cache.get(request(), "full") is None
    cache.put(request(), "full", RESULT)
    assert cache.get(request(), "full") == RESULT


def test_a_folder_that_cannot_be_used_is_an_empty_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = TraceCache(tmp_path / "file" / "below")
    cache.put(request(), "full", RESULT)
    assert cache.get(request(), "full") is None


def test_the_ones_that_were_used_last_stay(tmp_path: Path) -> None:
    cache = TraceCache(tmp_path, most=10)
    for size in range(1, 11):
        cache.put(request(micro_batch=size), "full", RESULT)
        hours_ago = time.time() - 3600 * (20 - size)
        os.utime(cache.file(request(micro_batch=size), "full"), (hours_ago, hours_ago))
    (tmp_path / ".left.123.tmp").write_text("")
    os.utime(tmp_path / ".left.123.tmp", (0, 0))
    assert cache.get(request(micro_batch=1), "full") == RESULT
    cache.put(request(micro_batch=11), "full", RESULT)
    kept = [size for size in range(1, 12) if cache.file(request(micro_batch=size), "full").exists()]
    assert kept == [1, 8, 9, 10, 11]
    assert not (tmp_path / ".left.123.tmp").exists()


def test_a_reader_never_meets_half_a_trace(tmp_path: Path) -> None:
    cache = TraceCache(tmp_path)
    cache.put(request(), "full", RESULT)
    seen: list[TraceResult | None] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.append(cache.get(request(), "full"))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(200):
        cache.put(request(), "full", RESULT)
    done.set()
    reader.join()
    assert seen
    assert set(seen and [one == RESULT for one in seen]) == {True}
