"""Traces in the user's cache folder."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from trainwiz.core.estimate.workload import Moment
from trainwiz.core.tracing.request import TraceCache, TraceResult, trace_versions, user_cache_folder

from tests.core.tracing.requests import request
from tests.each import each

RESULT = TraceResult((Moment("forward", {"weights": 7, "activations": 3}),), (), 5, 4)


def test_what_is_put_is_got_by_another_cache_for_the_same_request_and_versions(tmp_path: Path) -> None:
    TraceCache(tmp_path / "new").put(request(), RESULT)
    cache = TraceCache(tmp_path / "new")
    assert (cache.get(request()), cache.get(request(micro_batch=2))) == (RESULT, None)
    assert all(trace_versions()[name] for name in ("torch", "transformers", "accelerate", "peft", "code"))
    newer = {**trace_versions(), "torch": "99.0"}
    assert TraceCache(tmp_path / "new", versions=newer).get(request()) is None
    TraceCache().put(request(), RESULT)
    assert [file.suffix for file in user_cache_folder().iterdir()] == [".json"]
    assert user_cache_folder().is_relative_to(os.environ["XDG_CACHE_HOME"])
    (tmp_path / "file").write_text("")
    unusable = TraceCache(tmp_path / "file" / "below")
    unusable.put(request(), RESULT)
    assert unusable.get(request()) is None


def broken_files() -> list[bytes]:
    result = RESULT.to_json()
    wrong: list[Any] = [{"trainable_parameters": -1}, {"training": []}, {"training": 3}, {"parameters": 10**400}]
    documents = [json.dumps(found).encode() for found in (None, [], *({**result, **one} for one in wrong))]
    return [b"{", b"[" * 100_000, *documents]


@each("content", broken_files())
def test_a_file_that_is_no_trace_of_the_request_is_ignored_and_replaced(tmp_path: Path, content: bytes) -> None:
    cache = TraceCache(tmp_path)
    cache.put(request(), RESULT)
    assert cache.file(request()).is_file()
    cache.file(request()).write_bytes(content)
    assert cache.get(request()) is None
    cache.put(request(), RESULT)
    assert cache.get(request()) == RESULT


def test_the_ones_that_were_used_last_stay(tmp_path: Path) -> None:
    cache = TraceCache(tmp_path, most=10)
    for size in range(1, 11):
        cache.put(request(micro_batch=size), RESULT)
        hours_ago = time.time() - 3600 * (20 - size)
        os.utime(cache.file(request(micro_batch=size)), (hours_ago, hours_ago))
    (tmp_path / ".left.123.tmp").write_text("")
    os.utime(tmp_path / ".left.123.tmp", (0, 0))
    assert cache.get(request(micro_batch=1)) == RESULT
    cache.put(request(micro_batch=11), RESULT)
    kept = [size for size in range(1, 12) if cache.file(request(micro_batch=size)).exists()]
    assert kept == [1, 8, 9, 10, 11]
    assert not (tmp_path / ".left.123.tmp").exists()
