"""Data sets of the hub: the cache first, one short question while planning, the download when the run starts."""

from __future__ import annotations

import gzip
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.catalog.models import card_of
from trainwiz.core.config import DataSource, RunConfig
from trainwiz.core.data.chats import messages_of
from trainwiz.core.data.detect import detect_columns
from trainwiz.core.data.sources import SplitError, hub_files, split_files
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.errors import Finding, UsageError
from trainwiz.core.plan.gather import gather_data

from tests.core.data.builders import config_of, parquet, refused
from tests.core.data.hub_stand_in import HubStandIn, hub_server
from tests.each import each


def cached(root: Path, snapshot: str, *names: str) -> None:
    for name in names:
        path = root / "datasets--some--set" / "snapshots" / snapshot / name
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet(path, text=["a"])


def files_of(name: str, **source: str) -> list[Path]:
    return hub_files(DataSource.model_validate({"name": name, **source}), "data.sources.0")


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.usefixtures("offline")
def test_the_cache(tmp_path: Path) -> None:
    root = tmp_path / "datasets--some--set"
    cached(tmp_path, "old", *(f"data/{split}-00000-of-00001.parquet" for split in ("train", "test")))
    for split in ("train", "test"):
        assert [path.name[: len(split)] for path in files_of("some/set", split=split)] == [split]
    with pytest.raises(UsageError, match="no split 'nothing'"):
        files_of("some/set", split="nothing")
    for number, name in enumerate(("main", "new"), 1):
        cached(tmp_path, name, "train.parquet")
        os.utime(root / "snapshots" / name, (time.time() + number, time.time() + number))
    (newest,) = files_of("some/set")
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("main\n")
    (named,) = files_of("some/set")
    assert (newest.parent.name, named.parent.name) == ("new", "main")


@pytest.mark.usefixtures("offline")
def test_the_samples_that_are_named_are_those_of_the_task() -> None:
    for name in ("no/such-set", "no-such-file.csv"):
        (said,) = refused(config_of("seq2seq", {"name": name}))
        assert "sample-pairs" in said and "sample-proteins" not in said


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubStandIn]:
    """A reachable hub, an empty cache, no account."""
    pairs = [{"zh": "你好", "en": "Hello"}, {"zh": "再见", "en": "Bye"}]
    one = parquet(tmp_path / "1.parquet", translation=pairs[:1]).read_bytes()
    two = parquet(tmp_path / "2.parquet", translation=pairs[1:]).read_bytes()
    names = ("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001")
    parts = list(zip(names, (one, two, two), strict=True))
    files = {f"{subset}/{name}.parquet": data for subset in ("zh-en", "de-en") for name, data in parts}
    sets = {
        "some/pairs": {"README.md": b"# Pairs", **files},
        "some/script": {"README.md": b"", "script.py": b"raise SystemExit"},
        "some/gated": {"data/train.jsonl": b"{}"},
        "some/tars": {"a.tar": b"", "b.tar": b""},
    }
    with hub_server(HubStandIn(files=sets, gated={"some/gated"})) as stand_in:
        for name, value in (("ENDPOINT", stand_in.endpoint), ("HUB_CACHE", tmp_path / "cache"), ("TOKEN_PATH", "none")):
            monkeypatch.setenv(f"HF_{name}", str(value))
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        yield stand_in


def _finding(name: str, **source: str) -> Finding:
    with pytest.raises(UsageError) as caught:
        files_of(name, **source)
    (finding,) = caught.value.findings
    assert "\n" not in finding.message
    return finding


@pytest.mark.usefixtures("hub")
def test_what_the_hub_does_not_have_is_an_error_at_once() -> None:
    for source, words in (
        ({"name": "some/pairs"}, "has several subsets; set `subset` to one of de-en, zh-en."),
        ({"name": "some/script"}, "loading script, which is code and is not run"),
        ({"name": "some/gated"}, "is gated; accept its terms"),
        ({"name": "some/tars"}, "has no data file in a supported format (.tar)"),
        ({"name": "some/nothing"}, "Hub dataset some/nothing does not exist or is not public"),
    ):
        finding = _finding(**source)
        assert finding.severity == "error" and words in finding.message


@pytest.mark.usefixtures("offline")
def test_a_script_in_the_cache_is_never_run_and_the_parquet_copy_is_taken_when_it_is_whole(tmp_path: Path) -> None:
    script = tmp_path / "datasets--some--set" / "snapshots" / "abc" / "script.py"
    script.parent.mkdir(parents=True)
    script.write_text("raise SystemExit")
    with pytest.raises(UsageError, match="--revision refs/convert/parquet"):
        files_of("some/set")
    script.unlink()
    cached(tmp_path, "abc", "train-00001-of-00003.parquet")
    with pytest.raises(UsageError, match="only partly in the local cache: split 'train' lacks 2 files"):
        files_of("some/set")
    cached(tmp_path, "def", "default/train/0000.parquet")
    assert [path.name for path in files_of("some/set")] == ["0000.parquet"]


TURNS = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}]


def test_the_files_of_the_split_are_told_and_then_downloaded(hub: HubStandIn, tmp_path: Path) -> None:
    columns = {"text_column": "translation.zh", "target_column": "translation.en"}
    config = config_of("seq2seq", {"name": "some/pairs", "subset": "zh-en", **columns}, validation_rows=1)
    finding = _finding("some/pairs", subset="zh-en")
    assert (finding.code, finding.severity) == ("data_to_download", "warning")
    assert "2 files (0.1 MB) will be downloaded when the run starts" in finding.message
    rows = load_text_rows(config, tmp_path)
    assert (list(rows.texts), list(rows.targets or ())) == (["你好", "再见"], ["Hello", "Bye"])
    fetched = {line for line in hub.asked if line.startswith("GET /datasets")}
    assert all("zh-en/train" in line or "README" in line for line in fetched)
    here = hub_files(DataSource(name="some/pairs", subset="zh-en"), "", ask=False)
    assert [path.name[:11] for path in here] == ["train-00000", "train-00001"]


def planned(name: str) -> tuple[RunConfig, str]:
    """What is found out of a data set before it is here, and what the plan says of it."""
    config = detect_columns(config_of("causal-lm", {"name": name}, validation_rows=0))
    (finding,) = gather_data(config)[1]
    assert finding.code == "data_to_download"
    return config, finding.message


def test_chats_are_known_before_the_download_and_read_after_it(hub: HubStandIn, tmp_path: Path) -> None:
    row = json.dumps({"id": "1", "messages": TURNS}) + "\n"
    cells = json.dumps(TURNS[:1]).replace('"', '""'), json.dumps(TURNS[1:]).replace('"', '""')
    noise = [random.Random(n).randbytes(60).hex() for n in range(20_000)]
    table = parquet(tmp_path / "a.parquet", 1000, id=noise, messages=[TURNS] * 20_000)
    written = parquet(tmp_path / "b.parquet", 1000, id=noise, messages=[json.dumps(TURNS)] * 20_000)
    hub.files = {
        "some/table": {"data/train.parquet": table.read_bytes()},
        "some/written": {"data/train.parquet": written.read_bytes()},
        "some/lines": {"train.jsonl": row.encode() * 9_000},
        "some/csv": {"train.csv": f'prompt,completion\n"{cells[0]}","{cells[1]}"\n'.encode()},
    }
    for name in hub.files:
        config, _ = planned(name)
        source = config.data.sources[0]
        assert source.layout == "chat" and source.json_turns == (True if name == "some/csv" else None)
        assert "according to the Hub, not downloaded yet" in config.origin("data.sources.0.layout").reason
        assert messages_of(load_text_rows(config, tmp_path).texts[0]) == (TURNS, None)
    assert hub.asked.count("GET /datasets/some/table/resolve/main/data/train.parquet") == 1


def test_where_the_hub_does_not_tell_the_start_says_so(hub: HubStandIn, tmp_path: Path) -> None:
    row = json.dumps({"id": "1", "messages": TURNS}) + "\n"
    noise = "".join(f"{n * 7919 % 1_000_003:x}" for n in range(300_000))
    packed = gzip.compress((json.dumps({"messages": TURNS, "noise": noise}) + "\n" + row).encode())
    hub.files = {"some/packed": {"train.jsonl.gz": packed}}
    config, _ = planned("some/packed")
    assert config.data.sources[0].layout is None
    with pytest.raises(UsageError, match=r"messages' is a list of chat turns.*Set data.sources.0.layout to chat"):
        load_text_rows(config, tmp_path)
    again = detect_columns(config_of("causal-lm", {"name": "some/packed"}, validation_rows=0))
    assert again.data.sources[0].layout == "chat"
    assert [messages_of(text) for text in load_text_rows(again, tmp_path).texts] == [(TURNS, None)] * 2


PARTS = [f"zh-en/train-{n:05d}-of-00003.parquet" for n in range(3)]
WMT = ["README.md", *PARTS, "zh-en/validation-00000-of-00001.parquet", "de-en/train-00000-of-00001.parquet"]
WMT_CARD = card_of(
    "---\nlanguage: [zh, en]\nconfigs:\n"
    "- config_name: de-en\n  data_files:\n  - split: train\n    path: de-en/train-*\n"
    "- config_name: zh-en\n  data_files:\n  - split: train\n    path: zh-en/train-*\n"
    "  - split: validation\n    path: zh-en/validation-*\n---\n# WMT\n"
)
SMALL = {"config_name": "small", "data_files": "a.csv", "data_dir": "s"}
LARGE = {"config_name": "large", "data_files": "a.csv", "data_dir": "l", "default": True}
LINES = ["data/a.jsonl", "other.jsonl"]
NOTES = ["training_notes.jsonl", "data/train-00000-of-00001.jsonl", "constraint/test.jsonl"]


def split(names: list[str], card: dict[str, Any], **source: str | None) -> tuple[str, ...]:
    return split_files(DataSource.model_validate({"name": "a/b", **source}), names, card)


@each(("names", "card", "source", "expected"), [
    *((WMT, card, {"subset": "zh-en"}, PARTS) for card in (WMT_CARD, {})),
    *((WMT, card, {"subset": "zh-en", "split": "validation"}, [WMT[4]]) for card in (WMT_CARD, {})),
    (LINES, "data/a.jsonl", {}, LINES[:1]),
    (LINES, {"train": ["data/*.jsonl"], "test": "x"}, {}, LINES[:1]),
    (LINES, [{"split": "train", "path": ["./data/a.jsonl"]}], {}, LINES[:1]),
    (["l/a.csv", "s/a.csv"], {"configs": [SMALL, LARGE]}, {}, ["l/a.csv"]),
    (["l/a.csv", "s/a.csv"], {"configs": [SMALL, LARGE]}, {"subset": "small"}, ["s/a.csv"]),
    # Words inside words are no splits.
    (NOTES, {}, {}, [NOTES[1]]),
])  # fmt: skip
def test_the_files_of_a_split(names: list[str], card: Any, source: dict[str, str], expected: list[str]) -> None:
    if not isinstance(card, dict) or "train" in card:
        card = {"configs": [{"config_name": "default", "data_files": card}]}
    assert list(split(names, card, **source)) == expected


def test_splits_and_subsets_that_are_not_there() -> None:
    for card, source, words in (
        *((card, {}, "several subsets; set `subset` to one of de-en, zh-en") for card in (WMT_CARD, {})),
        *((card, {"subset": "zh-en", "split": "test"}, "no split 'test'") for card in (WMT_CARD, {})),
        (WMT_CARD, {"subset": "zh_en"}, "no subset 'zh_en' (its subsets: de-en, zh-en)"),
        ({}, {"subset": "zh_en"}, "no split 'train' ('zh_en')"),
    ):
        with pytest.raises(SplitError) as caught:
            split(WMT, card, **source)
        assert words in str(caught.value)
    assert card_of("---\na: !!python/object/apply:os.getcwd []\n---\n") == {}, "a card never makes Python objects"
