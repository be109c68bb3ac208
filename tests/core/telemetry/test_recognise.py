"""What a path is to a monitor; and that a path that is nothing gets one sentence."""

from __future__ import annotations

import os
from pathlib import Path

from trainwiz.core.telemetry.discovery import recognise
from trainwiz.core.telemetry.target import Target

from tests.core.telemetry.event_writers import write_points
from tests.core.telemetry.test_trainer_source import with_arguments
from tests.core.telemetry.test_trainer_state import checkpoint, state
from tests.each import each

LOSSES = [(1, 2.0), (2, 1.0)]
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"


def kind_of(path: Path) -> str:
    found = recognise(path)
    assert isinstance(found, Target), found
    return found.kind


def refusal_of(path: Path) -> str:
    found = recognise(path)
    assert isinstance(found, str), found
    assert "\n" not in found
    assert str(path) in found
    return found


def test_outputs_of_a_trainer(tmp_path: Path) -> None:
    inner = checkpoint(tmp_path / "out", 20)
    assert kind_of(tmp_path / "out") == "trainer"
    assert kind_of(inner.parent) == "trainer"
    assert kind_of(inner) == "trainer"
    found = recognise(inner.parent)
    assert isinstance(found, Target)
    assert found.name == "out/checkpoint-20"


def test_the_only_output_below_is_meant(tmp_path: Path) -> None:
    checkpoint(tmp_path / "work" / "out", 20)
    (tmp_path / "work" / "data").mkdir()
    for path in (tmp_path, tmp_path / "work"):
        found = recognise(path)
        assert isinstance(found, Target)
        assert (found.kind, found.path) == ("trainer", tmp_path / "work" / "out")


def test_several_outputs_below_are_named(tmp_path: Path) -> None:
    for name in "abcdef":
        checkpoint(tmp_path / name, 20)
    sentence = refusal_of(tmp_path)
    assert "6 outputs" in sentence
    assert "a, b, c, d and 2 more" in sentence


def test_a_folder_of_events_is_a_trainers_where_its_arguments_are_in_them(tmp_path: Path) -> None:
    file = write_points(tmp_path / "runs" / "now", {"train/loss": LOSSES})
    assert kind_of(tmp_path) == "tensorboard"
    with_arguments(file, {"max_steps": 100})
    assert kind_of(tmp_path) == "trainer"
    assert kind_of(tmp_path / "runs") == "tensorboard"
    assert kind_of(file) == "tensorboard"


def test_a_log_with_printed_metrics(tmp_path: Path) -> None:
    (tmp_path / "nohup.out").write_text("starting\n{'loss': 2.1, 'epoch': 0.1}\n")
    assert kind_of(tmp_path) == "trainer"
    assert kind_of(tmp_path / "nohup.out") == "trainer"


def test_tables_of_lightning(tmp_path: Path) -> None:
    (tmp_path / "version_0").mkdir()
    (tmp_path / "version_0" / "metrics.csv").write_text("epoch,step,loss\n0,1,2.0\n")
    assert kind_of(tmp_path) == "tensorboard"
    assert kind_of(tmp_path / "version_0" / "metrics.csv") == "tensorboard"


@each(
    ("name", "content", "words"),
    [
        ("events.out.tfevents.1.h.1.0", POINTER, "Git LFS pointer"),
        ("trainer_state.json", POINTER, "Git LFS pointer"),
        ("events.out.tfevents.1.h.1.0", b"not at all" * 9, "not a TensorBoard event file"),
        ("trainer_state.json", state(10).encode()[:-9], "not whole JSON"),
        ("config.json", b"{}", "not the state of a Trainer"),
        ("notes.txt", b"hello", "nothing to watch"),
        ("empty.log", b"", "is empty"),
        ("picture.png", bytes(range(256)) * 9, "nothing to watch"),
    ],
)
def test_files_that_are_nothing(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    assert words in refusal_of(file)


def test_folders_that_are_nothing(tmp_path: Path) -> None:
    assert "is empty" in refusal_of(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert "holds nothing to watch" in refusal_of(tmp_path)
    assert "does not exist" in refusal_of(tmp_path / "nowhere")


def test_a_folder_whose_only_files_are_broken_says_how(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text(state(10)[:-9])
    found = recognise(tmp_path)
    assert isinstance(found, str)
    assert "not whole JSON" in found
    (tmp_path / "tb").mkdir()
    (tmp_path / "tb" / "events.out.tfevents.1.h.1.0").write_bytes(POINTER)
    found = recognise(tmp_path / "tb")
    assert isinstance(found, str)
    assert "Git LFS pointer" in found


def test_a_pipe_or_broken_link_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    assert "neither a file nor a folder" in refusal_of(tmp_path / "pipe")
    assert "neither a file nor a folder" in refusal_of(tmp_path / "link")


def test_everything_real_is_recognised(shared_data: Path) -> None:
    wild = shared_data / "wild"
    assert {kind_of(folder) for folder in (wild / "trainer").iterdir()} == {"trainer"}
    files = list((wild / "tfevents").rglob("*tfevents.*"))
    assert {kind_of(path) for path in [*files, *(file.parent for file in files)]} == {"tensorboard"}
    for config in (wild / "configs").glob("*.json"):
        assert "not the state of a Trainer" in refusal_of(config) or "not whole JSON" in refusal_of(config)
