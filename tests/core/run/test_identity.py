"""A resume goes on with what the run began with, or says what has changed."""

import os
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.run.attempts import Recovery, changes_now, write_recoveries
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.identity import (
    IDENTITY_JSON,
    Identity,
    compare,
    files_identity,
    position_difference,
    refuse,
    sequences_of_a_step,
    settings_now,
)

from tests.core.training.runs import tiny_config
from tests.each import each


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "rows.fasta"
    path.write_text("".join(f">{row}\nMKTAYIAKQR{'A' * row}\n" for row in range(40)))
    return path


def settings(data: Path, folder: Path, **changes: Any) -> dict[str, dict[str, Any]]:
    return settings_now(tiny_config(data__sources=[{"name": os.path.relpath(data, folder)}], **changes), folder)


def texts(recorded: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> list[str]:
    return [difference.text for difference in compare(recorded, now)]


def test_the_same_is_no_difference_and_a_touch_is_only_told(data: Path, tmp_path: Path) -> None:
    before = settings(data, tmp_path)
    os.utime(data, (1, 1))
    after = settings(data, tmp_path)
    assert texts(before, after) == []
    # Of a large file and of many only samples are read: their names and sizes count all the same.
    for number in range(600):
        (tmp_path / f"part-{number:03d}").write_bytes(b"x" * 10)
    many = files_identity(tmp_path.glob("part-*"))
    (tmp_path / "part-501").write_bytes(b"x" * 11)
    assert (many["files"], many["bytes"]) == (600, 6000)
    assert files_identity(tmp_path.glob("part-*"))["sample"] != many["sample"]
    # Where it lies is not what it is.
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    data.rename(moved / data.name)
    assert texts(before, settings(moved / data.name, tmp_path)) == []
    # A pipe in its place is not waited for.
    os.mkfifo(data)
    assert "data.sources.0" in before["data"] and "data.sources.0" not in settings(data, tmp_path)["data"]


@each(("changes", "part", "text"), [
    ({"batch__micro_batch_size": 2}, "batch", "sequences of a step: 8 → 4"),
    ({"training__seed": 7}, "training", "training.seed: 42 → 7"),
    ({"data__validation_rows": 5}, "data", "data.validation_rows: 13 → 5"),
    # The rows of an epoch would come twice or never.
    ({"data__group_by_length": True}, "training", "data.group_by_length: False → True"),
    ({"engine__optimizer": "sgd"}, "engine", "engine.optimizer: adamw_torch → sgd"),
    ({"model__architecture_overrides": {"num_hidden_layers": 3}}, "model", "num_hidden_layers: 2 → 3"),
])  # fmt: skip
def test_each_setting_is_named(data: Path, tmp_path: Path, changes: dict[str, Any], part: str, text: str) -> None:
    found = compare(settings(data, tmp_path), settings(data, tmp_path, **changes))
    assert any(one.part == part and text in one.text for one in found), found


def test_what_recovery_changes_is_no_difference(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    config = tiny_config(batch__micro_batch_size=6, batch__gradient_accumulation_steps=8)
    before = settings_now(config, tmp_path)
    changes = {"batch.micro_batch_size": 3, "batch.gradient_accumulation_steps": 16, "data.workers": 1}
    write_recoveries(run, [Recovery(2, "cuda_oom", 5, 0.0, changes)])
    changed = config.with_values(changes_now(run), "solved")
    assert changed.batch.micro_batch_size == 3
    assert sequences_of_a_step(changed, 1) == sequences_of_a_step(config, 1) == 48
    assert compare(before, settings_now(changed, tmp_path)) == []


def test_all_differences_stand_in_one_refusal_with_the_way_out(data: Path, tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    before = settings(data, tmp_path)
    content = data.read_text()
    data.write_text(content.replace("MKTA", "MKTW", 1))
    (same_size,) = texts(before, settings(data, tmp_path))
    assert same_size.startswith("data.sources.0 (rows.fasta): 1 file(s)") and "different content" in same_size
    data.write_text(">1\nMKV\n")
    (shorter,) = texts(before, settings(data, tmp_path))
    assert "→ 1 file(s)" in shorter
    found = compare(before, settings(data, tmp_path, training__seed=7, batch__micro_batch_size=2))
    with pytest.raises(UsageError) as refused:
        refuse(run, found, ["data"])
    (finding,) = refused.value.findings
    assert "sequences of a step: 8 → 4" in finding.message and "training.seed: 42 → 7" in finding.message
    assert "--accept data,batch,training" in finding.message
    assert "rows.fasta" not in finding.message
    assert refuse(run, found, ["data", "batch", "training"]) == found == refuse(run, found, ["all"])


def test_a_record_survives_its_file_and_remembers_what_was_accepted(data: Path, tmp_path: Path) -> None:
    path = tmp_path / IDENTITY_JSON
    first = Identity(settings(data, tmp_path), {"data": {"rows that train": 27}})
    first.write(path)
    read = Identity.read(path)
    assert read.settings == first.settings and read.loaded == first.loaded
    now = settings(data, tmp_path, training__seed=7)
    read.accept(compare(read.settings, now))
    read.settings = now
    assert read.accepted[0]["what"] == "training.seed: 42 → 7"
    for nonsense in ("{", "[]", '{"format": "trainwiz.identity/1"}', '{"format": 1, "settings": {"data": {}}}'):
        path.write_text(nonsense)
        assert Identity.read(path) is None


def test_the_place_in_the_data() -> None:
    assert position_difference(6, 12 / 27, 8, 107) is position_difference(14, 1.0, 8, 107) is None
    assert position_difference(10, None, 16, 107) is None
    found = position_difference(10, 20 / 27, 16, 107)
    assert found is not None and found.text == "position in the data: epoch 0.741 → epoch 1.449"


def test_processes_differ_where_the_batch_does_not_and_the_launchers_number_counts(data: Path, tmp_path: Path) -> None:
    """The launcher goes by accelerate.yaml: half the processes are half the batch, whatever run.yaml says."""
    two = settings(data, tmp_path, engine__processes=2, batch__gradient_accumulation_steps=1, engine__strategy="ddp")
    assert {one.part for one in compare(settings(data, tmp_path), two)} == {"processes", "engine"}
    config = tiny_config(engine__processes=2, batch__micro_batch_size=6, batch__gradient_accumulation_steps=4)
    planned = settings_now(config, tmp_path)
    assert compare(planned, settings_now(config, tmp_path, 2)) == []
    found = {one.part: one.text for one in compare(planned, settings_now(config, tmp_path, 1))}
    assert found["processes"] == "processes: 2 → 1" and "48 → 24" in found["batch"]
