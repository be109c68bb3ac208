"""Rows of text tasks: in memory and streamed they are the same; several sources, filters, held-out rows."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.data.streamed import StreamedTexts
from trainwiz.core.data.text_store import MemoryTexts
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.errors import CannotRunError, UsageError
from trainwiz.core.files import ROWS

from tests.core.data.builders import parquet, write

CHAT = {"text_column": "prompt", "target_column": "response"}


def _config(task: str, *sources: dict[str, object], **data: object) -> RunConfig:
    return RunConfig.model_validate({"task": task, "data": {"sources": list(sources), **data}})


def _both(config: RunConfig, folder: Path) -> list[tuple[list[str], list[str] | None, list[int], list[int]]]:
    found = []
    for streaming in (False, True):
        config.data.streaming = streaming
        rows = load_text_rows(config, folder)
        assert isinstance(rows.texts, StreamedTexts if streaming else MemoryTexts)
        targets = None if rows.targets is None else list(rows.targets)
        found.append((list(rows.texts), targets, rows.train.tolist(), rows.held_out.tolist()))
    return found


@pytest.mark.parametrize(
    ("task", "source"),
    [("seq2seq", {"name": "sample-pairs"}), ("causal-lm", {"name": "sample-text"}), ("causal-lm", {"name": "sample-chat", **CHAT})],
)  # fmt: skip
def test_streamed_rows_are_the_rows_in_memory(tmp_path: Path, task: str, source: dict[str, object]) -> None:
    memory, streamed = _both(_config(task, source, validation_rows=100), tmp_path)
    assert memory == streamed
    texts, targets, train, held_out = memory
    assert len(held_out) == 100 and sorted([*train, *held_out]) == list(range(len(texts)))
    assert targets is None or len(targets) == len(texts)


def test_stores_give_any_row_in_any_process(tmp_path: Path) -> None:
    texts = ["", "a", "你好", "x" * 5000, "\u0000 \U0001f600"]
    path = parquet(tmp_path / "a.parquet", text=[text or "-" for text in texts])
    for streaming in (False, True):
        rows = load_text_rows(
            _config("causal-lm", {"name": str(path)}, streaming=streaming, validation_rows=0), tmp_path
        )
        store = pickle.loads(pickle.dumps(rows.texts))
        assert [store[number] for number in (4, 0, 2)] == [texts[4].strip(), "-", "你好"]
        assert store.lengths.tolist() == [len(text.encode()) for text in store]
        assert list(store.batches(rows.train[::2], size=2)) == [["-", "你好"], [texts[4].strip()]]
        for number in (-1, 5):
            with pytest.raises(IndexError):
                store[number]


def test_processes_and_threads_read_the_same_open_files(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "\n".join("word " * (n % 40 + 1) + str(n) for n in range(2000)))
    rows = load_text_rows(_config("causal-lm", {"name": "a.txt"}, streaming=True), tmp_path)
    expected = list(rows.texts)

    def wrong(start: int) -> list[int]:
        return [n for n in range(start, len(expected), 4) if rows.texts[n] != expected[n]]

    children = []
    for start in range(3):
        child = os.fork()
        if child == 0:
            os._exit(1 if wrong(start) else 0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(wrong, range(4))) == [[]] * 4


def test_streamed_rows_are_built_once_and_again_when_a_file_or_filter_changes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "one\ntwo\nthree\n")
    config = _config("causal-lm", {"name": str(path)}, streaming=True)
    load_text_rows(config, tmp_path)
    (built,) = [entry for entry in (tmp_path / ROWS).iterdir() if entry.is_dir()]
    before = (built / "index.json").stat().st_mtime_ns
    load_text_rows(config, tmp_path)
    assert (built / "index.json").stat().st_mtime_ns == before
    write(path, "one\ntwo\nthree\nfour\n")
    assert len(load_text_rows(config, tmp_path).texts) == 4
    config.data.min_characters = 4
    assert list(load_text_rows(config, tmp_path).texts) == ["three", "four"]
    assert len([entry for entry in (tmp_path / ROWS).iterdir() if entry.is_dir()]) == 1, "old rows take no space"


def test_processes_that_start_together_share_one_copy(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from trainwiz.core.config import RunConfig;"
        "from trainwiz.core.data.texts import load_text_rows;"
        "c = RunConfig.model_validate({'task': 'seq2seq', 'data': {'sources': [{'name': 'sample-pairs'}], 'streaming': True}});"
        "r = load_text_rows(c, Path(sys.argv[1])); print(len(r.texts), r.held_out.sum(), r.folder)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = {process.communicate(timeout=60)[0] for process in running}
    assert len(outputs) == 1 and outputs.pop().startswith("4000 ")


def test_a_build_that_was_killed_is_cleared_up_and_a_failed_one_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / ROWS / "abc.77.part").mkdir(parents=True)
    bad = write(tmp_path / "a.csv", "text\nfine\nbroken \xff\n".encode("latin-1"))
    with pytest.raises(UsageError, match="line 3"):
        load_text_rows(_config("causal-lm", {"name": str(bad)}, streaming=True), tmp_path)
    assert [entry.name for entry in (tmp_path / ROWS).iterdir()] == ["lock"]


def test_a_disk_that_takes_no_more_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / ROWS).write_text("in the way")
    with pytest.raises(CannotRunError, match=r"rows cannot be kept in .*data.streaming: false"):
        load_text_rows(_config("seq2seq", {"name": "sample-pairs"}, streaming=True), tmp_path)


def test_sources_are_mixed_with_limits_of_their_own_and_of_all(tmp_path: Path) -> None:
    first = write(tmp_path / "a.tsv", "source\ttarget\nab\tAB\nabcd\tABCD\nabcdef\tA\nabcde\tABCDE\n")
    second = write(
        tmp_path / "b.jsonl", '{"prompt": "x", "response": "yy"}\n{"prompt": "xxxxxxxxx", "response": "y"}\n'
    )
    config = _config(
        "seq2seq",
        {"name": str(first), "max_rows": 2},
        {"name": str(second), "min_characters": 1, "max_characters": 9},
        min_characters=2,
        max_characters=5,
        validation_rows=0,
    )
    memory, streamed = _both(config, tmp_path)
    assert memory == streamed
    assert memory[:2] == (["ab", "abcd", "x", "xxxxxxxxx"], ["AB", "ABCD", "yy", "y"])
    config.data.sources[0].max_rows = None
    assert list(load_text_rows(config, tmp_path).texts)[:3] == ["ab", "abcd", "abcde"], "the target is too short"


def test_targets_in_some_sources_only_are_refused(tmp_path: Path) -> None:
    config = _config("causal-lm", {"name": "sample-chat", **CHAT}, {"name": "sample-text"})
    with pytest.raises(UsageError, match=r"data\.sources\.1 has no target_column"):
        load_text_rows(config, tmp_path)


def test_all_findings_of_all_sources_come_at_once(tmp_path: Path) -> None:
    gone, empty = tmp_path / "gone.csv", write(tmp_path / "empty.txt", "\n\n")
    config = _config("causal-lm", {"name": str(gone)}, {"name": str(empty)}, {"name": "sample-textt"})
    with pytest.raises(UsageError) as caught:
        load_text_rows(config, tmp_path)
    assert len(caught.value.findings) >= 2


def test_streaming_a_large_file_keeps_the_memory_small(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    line = "word " * 200 + "\n"
    path.write_text(line * 150_000)
    code = (
        "import resource, sys; from pathlib import Path; from trainwiz.core.config import RunConfig;"
        "from trainwiz.core.data.texts import load_text_rows;"
        "c = RunConfig.model_validate({'task': 'causal-lm', 'data': {'sources': [{'name': sys.argv[1]}], 'streaming': True}});"
        "from trainwiz.core.data import rows, parquet; before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "r = load_text_rows(c, Path(sys.argv[2])); n = sum(len(t) for t in r.texts.batches(r.train));"
        "print(n, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    command = [sys.executable, "-c", code, str(path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    rows, grown_kib = map(int, done.stdout.split())
    assert rows == 148_500
    assert grown_kib < 100_000, "150 MB of text were read"


def test_validation_sources_are_held_out_whole(tmp_path: Path) -> None:
    write(tmp_path / "train.txt", "a\nb\nc\n")
    write(tmp_path / "more.txt", "d\n")
    write(tmp_path / "held.txt", "e\nf\n")
    config = _config(
        "causal-lm", {"name": "train.txt"}, {"name": "more.txt"}, validation_sources=[{"name": "held.txt"}]
    )
    memory, streamed = _both(config, tmp_path)
    assert memory == streamed == (["a", "b", "c", "d", "e", "f"], None, [0, 1, 2, 3], [4, 5])


def test_reading_a_row_from_a_file_moves_no_position_that_processes_share(tmp_path: Path) -> None:
    rows = load_text_rows(_config("seq2seq", {"name": "sample-pairs"}, streaming=True), tmp_path)
    expected = list(rows.texts)
    children = []
    for start in range(3):
        child = os.fork()
        if child == 0:
            right = all(rows.texts[number] == expected[number] for number in range(start, len(expected), 3))
            os._exit(0 if right else 1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]


def test_held_out_rows_come_from_all_sources_by_the_seed(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{name}.txt", f"{name}\n" * 500) for name in ("aa", "bb")]
    config = _config("causal-lm", *({"name": str(path)} for path in files), validation_rows=100)
    rows = load_text_rows(config, tmp_path)
    held = [rows.texts[number] for number in rows.held_out.tolist()]
    assert 30 < held.count("aa") < 70 and held.count("aa") + held.count("bb") == 100
    config.training.seed += 1
    assert load_text_rows(config, tmp_path).held_out.tolist() != rows.held_out.tolist()
