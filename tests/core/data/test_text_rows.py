"""Rows of text tasks: in memory and streamed they are the same, of every format; sources, filters, held-out rows."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.data import texts
from trainwiz.core.data.summary import summarize_data
from trainwiz.core.data.text_store import FileTexts, MemoryTexts
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.errors import CannotRunError, UsageError
from trainwiz.core.files import ROWS

from tests.core.data.builders import config_of, rows_in, write
from tests.each import each

CHAT = {"text_column": "prompt", "target_column": "response"}


def _both(config: RunConfig, folder: Path) -> list[tuple[list[str], list[str] | None, list[int], list[int]]]:
    found = []
    for streaming in (False, True):
        config.data.streaming = streaming
        rows = load_text_rows(config, folder)
        assert isinstance(rows.texts, FileTexts if streaming else MemoryTexts)
        targets = None if rows.targets is None else list(rows.targets)
        found.append((list(rows.texts), targets, rows.train.tolist(), rows.held_out.tolist()))
    return found


@each("kind", ["parquet", "jsonl"])
def test_stores_give_any_row_in_any_process(tmp_path: Path, kind: str) -> None:
    texts = ["-", "a", "你好", "x" * 5000, "\u0000 \U0001f600", *("word " * (n % 40 + 1) + str(n) for n in range(500))]
    path = rows_in(tmp_path / f"a.{kind}", [{"text": text} for text in texts])
    for streaming in (False, True):
        config = config_of("causal-lm", {"name": str(path)}, streaming=streaming, validation_rows=0)
        store = load_text_rows(config, tmp_path).texts
        again = pickle.loads(pickle.dumps(store))
        assert list(again) == list(store) == [text.strip() for text in texts]
        assert store.lengths.tolist() == [len(text.encode()) for text in store]
        assert list(store.batches(np.array([4, 0, 2]))) == [[texts[4].strip(), "-", "你好"]]
        children = []
        for start in range(3):
            # Forked loader workers go on with the files that are open.
            child = os.fork()
            if child == 0:
                os._exit(any(store[n] != texts[n].strip() for n in range(start, len(texts), 3)))
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
        for number in (-1, len(texts)):
            with pytest.raises(IndexError):
                store[number]


def test_streamed_rows_are_built_once_and_again_when_a_file_or_filter_changes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "one\ntwo\nthree\n")
    config = config_of("causal-lm", {"name": str(path)}, streaming=True)
    load_text_rows(config, tmp_path)
    (index,) = (tmp_path / ROWS).glob("*/training-rows")
    before = index.stat().st_mtime_ns
    load_text_rows(config, tmp_path)
    assert index.stat().st_mtime_ns == before
    write(path, "one\ntwo\nthree\nfour\n")
    assert len(load_text_rows(config, tmp_path).texts) == 4
    config.data.min_characters = 4
    assert list(load_text_rows(config, tmp_path).texts) == ["three", "four"]
    assert len([entry for entry in (tmp_path / ROWS).iterdir() if entry.is_dir()]) == 1, "old rows take no space"


def test_those_that_start_together_share_one_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is on the open file, so threads wait for each other as processes do."""
    config, built, build = config_of("seq2seq", "sample-pairs", streaming=True), [], texts._write
    monkeypatch.setattr(texts, "_write", lambda *given: (built.append(given[-1]), build(*given)))
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: load_text_rows(config, tmp_path), range(3)))
    assert {len(rows.texts) for rows in found} == {4000} and {rows.folder for rows in found} == {*built}
    assert len(built) == 1


def test_builds_that_were_killed_or_failed_leave_nothing_and_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / ROWS / "abc.77.part").mkdir(parents=True)
    bad = write(tmp_path / "a.txt", b"fine\n" * 3000 + b"br\xffken\n")
    with pytest.raises(UsageError, match=r"a\.txt, line 3001: the text is not UTF-8"):
        load_text_rows(config_of("causal-lm", bad, streaming=True), tmp_path)
    assert [entry.name for entry in (tmp_path / ROWS).iterdir()] == ["lock"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / ROWS).write_text("in the way")
    with pytest.raises(CannotRunError, match=r"rows cannot be stored in .*data.streaming: false"):
        load_text_rows(config_of("seq2seq", "sample-pairs", streaming=True), tmp_path / "full")


def test_sources_are_mixed_with_limits_of_their_own_and_of_all(tmp_path: Path) -> None:
    first = write(tmp_path / "a.tsv", "source\ttarget\nab\tAB\nabcd\tABCD\nabcdef\tA\nabcde\tABCDE\n")
    second = rows_in(tmp_path / "b.jsonl", [{"prompt": "x", "response": "yy"}, {"prompt": "x" * 9, "response": "y"}])
    sources = {"name": str(first), "max_rows": 2}, {"name": str(second), "min_characters": 1, "max_characters": 9}
    config = config_of("seq2seq", *sources, min_characters=2, max_characters=5, validation_rows=0)
    memory, streamed = _both(config, tmp_path)
    assert memory == streamed
    assert memory[:2] == (["ab", "abcd", "x", "xxxxxxxxx"], ["AB", "ABCD", "yy", "y"])
    config.data.sources[0].max_rows = None
    assert list(load_text_rows(config, tmp_path).texts)[:3] == ["ab", "abcd", "abcde"], "the target is too short"


def test_targets_in_some_sources_only_are_refused(tmp_path: Path) -> None:
    config = config_of("causal-lm", {"name": "sample-chat", **CHAT}, {"name": "sample-text"})
    with pytest.raises(UsageError, match=r"data\.sources\.1 has no target_column"):
        load_text_rows(config, tmp_path)


def test_streaming_a_large_file_keeps_the_memory_small(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    line = "word " * 2000 + "\n"
    path.write_text(line * 5_000)
    code = (
        "import resource, sys; from pathlib import Path; from trainwiz.core.config import RunConfig;"
        "from trainwiz.core.data.texts import load_text_rows;"
        "c = RunConfig.model_validate({'task': 'causal-lm', 'data': {'sources': [{'name': sys.argv[1]}], 'streaming': True}});"
        "from trainwiz.core.data import rows; before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "r = load_text_rows(c, Path(sys.argv[2])); n = sum(len(t) for t in r.texts.batches(r.train));"
        "print(n, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    command = [sys.executable, "-c", code, str(path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=280)
    rows, grown_kib = map(int, done.stdout.split())
    assert rows == 4_950 and grown_kib < 35_000, "50 MB of text were read"


def test_held_out_rows_are_those_of_their_sources_or_of_all_by_the_seed(tmp_path: Path) -> None:
    for name in ("aa", "bb", "held"):
        write(tmp_path / f"{name}.txt", f"{name}\n" * 500)
    sources = [{"name": "aa.txt"}, {"name": "bb.txt"}]
    config = config_of("causal-lm", *sources, validation_sources=[{"name": "held.txt", "max_rows": 2}])
    memory, streamed = _both(config, tmp_path)
    assert memory == streamed == (["aa"] * 500 + ["bb"] * 500 + ["held"] * 2, None, [*range(1000)], [1000, 1001])
    config = config_of("causal-lm", *sources, validation_rows=100)
    rows = load_text_rows(config, tmp_path)
    held = [rows.texts[number] for number in rows.held_out.tolist()]
    assert 30 < held.count("aa") < 70 and held.count("aa") + held.count("bb") == 100
    config.training.seed += 1
    assert load_text_rows(config, tmp_path).held_out.tolist() != rows.held_out.tolist()


PAIRS = [
    (f"{number} " + "wörd 你好 " * (number * 7 % 23), f"\N{GRINNING FACE}{number} target " * (number % 5 + 1))
    for number in range(700)
]
FASTA = "".join(f">p{n} a protein\n{'MKTAYIAK' * (n % 30 + 1)}\n{'GAV' * n}\n" for n in range(300))
BOTH = {"text_column": "source", "target_column": "target"}


def put(path: Path) -> None:
    """PAIRS in the form that the name tells, or FASTA."""
    rows = [{"source": a, "target": b} for a, b in PAIRS]
    if path.suffix == ".fasta":
        path.write_text(FASTA)
    elif path.suffix == ".parquet":
        table = pa.Table.from_pylist([{"n": n, **row} for n, row in enumerate(rows)])
        pq.write_table(table, path, row_group_size=700 if path.stem == "one_group" else 37)
    elif path.suffix == ".csv":
        quote = '"' if path.stem == "quoted" else ""
        lines = (f"{n},{quote}{a}{quote},{b}\r\n" for n, (a, b) in enumerate(PAIRS))
        path.write_text("\ufeffid,source,target\r\n" + "".join(lines))
    elif path.suffix == ".tsv":
        path.write_text("source\ttarget\n" + "".join(f'{a}"\t{b}\n' for a, b in PAIRS))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=1))
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    else:
        wide = [{"meta": {"n": n}, "source": f" {a}\n\t", "target": b} for n, (a, b) in enumerate(PAIRS)]
        path.write_text("\n\n".join(json.dumps(row, ensure_ascii=n % 2 == 0) for n, row in enumerate(wide)))


FILES = ("a.jsonl", "a.csv", "quoted.csv", "a.tsv", "a.jsonl.gz", "array.json", "a.parquet", "one_group.parquet")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of some 100 KB stand for large ones: many batches and windows."""
    monkeypatch.setattr("trainwiz.core.data.lengths.UNIT_BYTES", 1000)
    monkeypatch.setattr("trainwiz.core.data.text_file.BATCH_ROWS", 16)
    monkeypatch.setattr("trainwiz.core.data.reader.GROUP_ROWS", 16)


@each("name", FILES)
def test_a_row_is_the_same_in_memory_and_from_its_file(tmp_path: Path, name: str) -> None:
    put(tmp_path / name)
    source = {"name": name, **BOTH, "min_characters": 12, "max_characters": 120, "max_rows": 400}
    memory, streamed = (
        load_text_rows(config_of("seq2seq", source, streaming=streaming, validation_rows=30), tmp_path)
        for streaming in (False, True)
    )
    assert isinstance(streamed.texts, FileTexts) and streamed.targets is not None and memory.targets is not None
    assert 50 < len(memory.texts) == len(streamed.texts) < 700
    assert (memory.train.tolist(), memory.held_out.tolist()) == (streamed.train.tolist(), streamed.held_out.tolist())
    for side, other in ((memory.texts, streamed.texts), (memory.targets, streamed.targets)):
        assert side.lengths.tolist() == other.lengths.tolist()
    again = pickle.loads(pickle.dumps(streamed))
    pairs = [((a + '"' if name == "a.tsv" else a).strip(), b.strip()) for a, b in PAIRS]
    fitting = [pair for pair in pairs if all(12 <= len(side) <= 120 for side in pair)][:400]
    assert list(zip(memory.texts, memory.targets, strict=True)) == fitting
    for number in np.random.default_rng(1).permutation(len(fitting)).tolist():
        for rows in (streamed, again):
            assert (rows.texts[number], rows.targets[number]) == fitting[number]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_lines_of_text_and_records_of_fasta(tmp_path: Path, ending: str) -> None:
    texts = [f"  {a} " for a, _ in PAIRS]
    (tmp_path / "a.txt").write_bytes(ending.join(["\ufeff", *texts, ""]).encode())
    records = FASTA.replace(" a protein\n", " a protein\n;note\n")
    (tmp_path / "b.fasta").write_bytes(records.replace("\n", ending).encode())
    fasta = {"name": "b.fasta", "text_column": "sequence"}
    memory, streamed = _both(config_of("causal-lm", {"name": "a.txt"}, fasta), tmp_path)
    assert memory == streamed and len(memory[0]) == 1000
    assert memory[0][1] == texts[1].strip() and memory[0][-1].startswith("MKT")


def test_several_sources_keep_their_order_in_windows(tmp_path: Path) -> None:
    sources = [{"name": name, **BOTH} for name in ("a.parquet", "one_group.parquet", "a.jsonl", "a.jsonl.gz")]
    for source in sources:
        put(tmp_path / source["name"])
    memory = load_text_rows(config_of("seq2seq", *sources), tmp_path)
    streamed = load_text_rows(config_of("seq2seq", *sources, streaming=True), tmp_path)
    windows = streamed.windows_of_training()
    assert windows is not None and memory.windows_of_training() is None
    orders = list(windows.orders(seed=3, epoch=1))
    assert len(orders) > 8
    seen = np.concatenate(orders)
    assert sorted(seen.tolist()) == list(range(len(memory.train)))
    # What was copied stays what it was while a run reads it.
    (tmp_path / "a.jsonl").unlink()
    assert all(streamed.texts[number] == memory.texts[number] for number in map(int, memory.train[seen]))


def test_the_first_line_with_letters_is_the_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n\r\nsource,target\n\na,b\nc,d\n")
    memory, streamed = _both(config_of("seq2seq", {"name": "a.csv", **BOTH}, validation_rows=0), tmp_path)
    assert memory == streamed and memory[0] == ["a", "c"]


@each("name", ["a.parquet", "a.jsonl.gz"])
def test_the_copy_takes_what_is_said(tmp_path: Path, name: str) -> None:
    put(tmp_path / name)
    run = config_of("seq2seq", {"name": str(tmp_path / name), **BOTH}, validation_rows=20)
    said = summarize_data(run)
    run.data.streaming = True
    load_text_rows(run, tmp_path)
    real = sum(path.stat().st_size for path in (tmp_path / ROWS).rglob("*") if path.is_file())
    assert 0.9 * said.bytes_streamed < real < said.bytes_streamed + 2000
