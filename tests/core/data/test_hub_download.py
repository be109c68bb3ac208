"""Hub data sets that are not here: one short question while planning, the download when the run starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainwiz.core.data.hub import HubSplit, hub_files
from trainwiz.core.errors import Finding, UsageError

from tests.core.data.builders import parquet
from tests.core.data.hub_stand_in import HubStandIn, hub_server

LOAD = """
import sys
from pathlib import Path
from trainwiz.core.config import RunConfig
from trainwiz.core.data.texts import load_text_rows
source = {"name": "some/pairs", "subset": "zh-en", "text_column": "translation.zh", "target_column": "translation.en"}
config = RunConfig.model_validate({"task": "seq2seq", "data": {"sources": [source], "validation_rows": 1}})
rows = load_text_rows(config, Path(sys.argv[1]))
print(sorted(rows.texts), sorted(rows.targets))
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubStandIn]:
    pairs = [{"zh": "你好", "en": "Hello"}, {"zh": "再见", "en": "Bye"}]
    one = parquet(tmp_path / "1.parquet", translation=pairs[:1]).read_bytes()
    two = parquet(tmp_path / "2.parquet", translation=pairs[1:]).read_bytes()
    names = ("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001")
    files = {
        f"{subset}/{name}.parquet": data
        for subset in ("zh-en", "de-en")
        for name, data in zip(names, (one, two, two), strict=True)
    }
    stand_in = HubStandIn(
        files={
            "some/pairs": {"README.md": b"# Pairs", **files},
            "some/script": {"README.md": b"", "script.py": b"raise SystemExit"},
            "some/gated": {"data/train.jsonl": b"{}"},
            "some/tars": {"a.tar": b"", "b.tar": b""},
        },
        gated={"some/gated"},
    )
    with hub_server(stand_in):
        yield stand_in


def _environment(hub: HubStandIn, cache: Path) -> dict[str, str]:
    return {"HF_ENDPOINT": hub.endpoint, "HF_HUB_CACHE": str(cache), "HF_TOKEN_PATH": str(cache / "none")}


def _finding(hub: HubStandIn, cache: Path, wanted: HubSplit) -> Finding:
    with pytest.raises(UsageError) as caught:
        hub_files(wanted, _environment(hub, cache))
    (finding,) = caught.value.findings
    assert "\n" not in finding.message
    return finding


def test_planning_warns_with_number_and_size_of_the_files(hub: HubStandIn, tmp_path: Path) -> None:
    finding = _finding(hub, tmp_path / "c", HubSplit("some/pairs", subset="zh-en"))
    assert (finding.code, finding.severity) == ("data_to_download", "warning")
    assert "2 files, 0.1 MB, are downloaded when the run starts" in finding.message
    assert hub.asked == ["GET /api/datasets/some/pairs"]
    _finding(hub, tmp_path / "c", HubSplit("some/pairs", subset="zh-en"))
    assert len(hub.asked) == 1, "the hub is not asked again at each key press"


def test_the_snapshot_that_main_names_comes_before_a_newer_one(tmp_path: Path) -> None:
    root = tmp_path / "datasets--some--pairs"
    for number, name in enumerate(("old", "main", "new")):
        (root / "snapshots" / name).mkdir(parents=True)
        parquet(root / "snapshots" / name / "train.parquet", text=[name])
        os.utime(root / "snapshots" / name, (number, number))
    environment = {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    (newest,) = hub_files(HubSplit("some/pairs"), environment)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("main\n")
    (named,) = hub_files(HubSplit("some/pairs"), environment)
    assert (newest.parent.name, named.parent.name) == ("new", "main")


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (HubSplit("some/pairs", subset="zh-en", split="dev"), "no split 'dev' of 'zh-en'"),
        (HubSplit("some/pairs"), "has several subsets; choose one: de-en, zh-en. Set data.sources.0.subset."),
        (HubSplit("some/script"), "loading script, which is code and is not run"),
        (HubSplit("some/gated"), "is gated; accept its terms"),
        (HubSplit("some/tars"), "has no data file that can be read (.tar)"),
        (HubSplit("some/nothing"), "no public data set 'some/nothing'"),
    ],
)
def test_what_the_hub_does_not_have_is_an_error_at_once(
    hub: HubStandIn, tmp_path: Path, wanted: HubSplit, words: str
) -> None:
    finding = _finding(hub, tmp_path / "c", wanted)
    assert finding.severity == "error" and words in finding.message


def test_a_split_that_is_only_partly_here_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    snapshot = tmp_path / "datasets--some--pairs" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    parquet(snapshot / "train-00001-of-00003.parquet", text=["a"])
    environment = {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    with pytest.raises(UsageError, match="only partly in the local cache: 2 files of split 'train' are missing"):
        hub_files(HubSplit("some/pairs"), environment)


def test_a_script_in_the_cache_is_never_run_and_the_parquet_copy_is_taken(tmp_path: Path) -> None:
    snapshots = tmp_path / "datasets--some--script" / "snapshots"
    (snapshots / "abc").mkdir(parents=True)
    (snapshots / "abc" / "script.py").write_text("raise SystemExit")
    environment = {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    with pytest.raises(UsageError, match="--revision refs/convert/parquet"):
        hub_files(HubSplit("some/script"), environment)
    (snapshots / "def" / "default" / "train").mkdir(parents=True)
    parquet(snapshots / "def" / "default" / "train" / "0000.parquet", text=["a"])
    assert [path.name for path in hub_files(HubSplit("some/script"), environment)] == ["0000.parquet"]


def test_two_processes_download_when_the_run_starts(hub: HubStandIn, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    environment |= _environment(hub, tmp_path / "cache") | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    command = [sys.executable, "-c", LOAD, str(tmp_path)]
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0].strip() for process in both]
    assert outputs == ["['你好', '再见'] ['Bye', 'Hello']"] * 2
    fetched = {line for line in hub.asked if line.startswith("GET /datasets")}
    assert all("zh-en/train" in line or "README" in line for line in fetched), "only the files of the split"
    offline = environment | {"HF_HUB_OFFLINE": "1"}
    again = subprocess.run(command, env=offline, capture_output=True, text=True, check=True, timeout=60)
    assert again.stdout.strip() == outputs[0]
