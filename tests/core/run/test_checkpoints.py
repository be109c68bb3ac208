"""Whether a checkpoint is complete, and holds what was saved in it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from trainwiz.core.files import bytes_below
from trainwiz.core.run.checkpoints import (
    FILES_JSON,
    changed_file,
    inspect_checkpoint,
    list_checkpoints,
    newest_complete,
    safetensors_problem,
    seal,
    set_aside,
    zip_problem,
)
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.supervise.attempt import choose_checkpoint

from tests.core.run.checkpoint_files import (
    cut,
    saved_by,
    write_adapter,
    write_checkpoint,
    write_deepspeed,
    write_safetensors,
    write_zip,
)
from tests.each import each

BREAKS: dict[str, Callable[[Path], object]] = {
    "trainer_state.json is missing": lambda path: (path / "trainer_state.json").unlink(),
    "trainer_state.json is not whole": lambda path: cut(path / "trainer_state.json"),
    "names no step": lambda path: (path / "trainer_state.json").write_text("[1]"),
    "model.safetensors has": lambda path: cut(path / "model.safetensors", 0.95),
    "model.safetensors is cut off": lambda path: cut(path / "model.safetensors", 0.3),
    "model.safetensors is empty": lambda path: (path / "model.safetensors").write_bytes(b""),
    "the weights are missing": lambda path: (path / "model.safetensors").unlink(),
    "optimizer.pt is cut off": lambda path: cut(path / "optimizer.pt", 0.9),
    "the state of the optimizer is missing": lambda path: (path / "optimizer.pt").unlink(),
    "scheduler.pt is cut off": lambda path: (path / "scheduler.pt").write_bytes(b""),
    "scheduler.pt is missing": lambda path: (path / "scheduler.pt").unlink(),
    "rng_state.pth is cut off": lambda path: cut(path / "rng_state.pth"),
    "config.json is missing": lambda path: (path / "config.json").unlink(),
    "config.json is not whole": lambda path: cut(path / "config.json"),
    "config.json holds no settings": lambda path: (path / "config.json").write_text("[]"),
}


@each("problem", BREAKS)
def test_each_broken_file_is_named(tmp_path: Path, problem: str) -> None:
    path = write_checkpoint(tmp_path, 5)
    assert inspect_checkpoint(path).problem is None
    BREAKS[problem](path)
    assert problem in (inspect_checkpoint(path).problem or "")


def test_the_newest_complete_one_goes_by_its_content(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert newest_complete(run) is None
    write_checkpoint(tmp_path, 10)
    good = write_checkpoint(tmp_path, 20)
    cut(write_checkpoint(tmp_path, 30) / "optimizer.pt")
    # A folder with a high number that holds an early step.
    write_checkpoint(tmp_path, 99, step=3)
    (tmp_path / "checkpoint-40").write_text("a file")
    (tmp_path / "broken-checkpoint-50").mkdir()
    assert newest_complete(run) == good
    assert [(found.path.name, found.step) for found in list_checkpoints(run)] == [
        ("checkpoint-99", 3),
        ("checkpoint-10", 10),
        ("checkpoint-20", 20),
        ("checkpoint-30", 30),
        ("checkpoint-40", 40),
    ]


def test_shards_are_checked_against_their_index(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 1)
    (path / "model.safetensors").unlink()
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for shard in shards:
        write_safetensors(path / shard)
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shards[0], "b": shards[1]}}))
    assert inspect_checkpoint(path).problem is None
    cut(path / shards[1], 0.95)
    assert shards[1] in (inspect_checkpoint(path).problem or "")
    (path / shards[1]).unlink()
    assert "1 of 2 parts" in (inspect_checkpoint(path).problem or "")


def test_deepspeed_needs_the_states_of_every_rank(tmp_path: Path) -> None:
    path = write_deepspeed(tmp_path, 7)
    assert inspect_checkpoint(path).problem is None
    states = path / "global_step7"
    (states / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt").unlink()
    assert "optimizer's states of a rank" in (inspect_checkpoint(path).problem or "")
    write_zip(states / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt")
    cut(states / "mp_rank_00_model_states.pt")
    assert "mp_rank_00_model_states.pt is cut off" in (inspect_checkpoint(path).problem or "")
    shutil.rmtree(states)
    assert "'global_step7' is missing" in (inspect_checkpoint(path).problem or "")
    (path / "latest").write_text("../../etc")
    assert "is missing" in (inspect_checkpoint(path).problem or "")


ADAPTER_BREAKS: dict[str, Callable[[Path], object]] = {
    "the weights of the adapter are missing": lambda path: (path / "adapter_model.safetensors").unlink(),
    "adapter_model.safetensors has": lambda path: cut(path / "adapter_model.safetensors", 0.95),
    "adapter_config.json is missing": lambda path: (path / "adapter_config.json").unlink(),
    "adapter_config.json is not whole": lambda path: cut(path / "adapter_config.json"),
    "optimizer.pt is cut off": lambda path: cut(path / "optimizer.pt"),
}


@each("problem", ADAPTER_BREAKS)
def test_a_checkpoint_of_adapters_alone(tmp_path: Path, problem: str) -> None:
    path = write_adapter(tmp_path, 5)
    assert inspect_checkpoint(path).problem is None
    ADAPTER_BREAKS[problem](path)
    assert problem in (inspect_checkpoint(path).problem or "")


def test_the_number_of_processes_that_saved_it_is_its_own_word(tmp_path: Path) -> None:
    """The rank that is not first writes its random state after the record: a kill in between leaves a gap at the end."""
    alone = write_checkpoint(tmp_path / "a", 3)
    saved_by(alone, 1)
    assert inspect_checkpoint(alone).problem is None
    (alone / "rng_state.pth").unlink()
    assert inspect_checkpoint(alone).problem == "the random state is missing"
    two = write_checkpoint(tmp_path / "b", 3)
    saved_by(two, 2)
    assert inspect_checkpoint(two).problem is None
    (two / "rng_state_1.pth").unlink()
    assert inspect_checkpoint(two).problem == "the random state of a rank is missing"
    sharded = write_deepspeed(tmp_path / "c", 3)
    saved_by(sharded, 2)
    assert inspect_checkpoint(sharded).problem is None
    (sharded / "global_step3" / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    assert "optimizer's states of a rank" in (inspect_checkpoint(sharded).problem or "")


@each("step", ["true", "-1", "null"])
def test_a_step_that_is_none_is_no_step(tmp_path: Path, step: str) -> None:
    path = write_checkpoint(tmp_path, 5)
    (path / "trainer_state.json").write_text(f'{{"global_step": {step}}}')
    found = inspect_checkpoint(path)
    assert "names no step" in (found.problem or "") and found.step == 5


def test_setting_aside_loses_nothing(tmp_path: Path) -> None:
    first = inspect_checkpoint(write_checkpoint(tmp_path, 4))
    assert set_aside(first, "broken").name == "broken-checkpoint-4"
    second = inspect_checkpoint(write_checkpoint(tmp_path, 4))
    assert set_aside(second, "broken").name == "broken-checkpoint-4-2"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken-checkpoint-4", "broken-checkpoint-4-2"]
    assert (tmp_path / "broken-checkpoint-4" / "model.safetensors").exists()


def test_a_file_or_a_dead_link_in_the_place_of_a_checkpoint_is_set_aside(tmp_path: Path) -> None:
    """A save would fail on it, and with it the training."""
    run = RunFolder(tmp_path)
    good = write_checkpoint(tmp_path, 4)
    (tmp_path / "checkpoint-8").symlink_to(tmp_path / "nowhere")
    (tmp_path / "broken-checkpoint-8").symlink_to(tmp_path / "nowhere")
    (tmp_path / "checkpoint-12").write_text("no folder")
    chosen, said = choose_checkpoint(run, "auto")
    assert chosen.path == good
    assert len(said) == 2 and "it is now broken-checkpoint-8-2" in said[0]
    assert not any(os.path.lexists(tmp_path / f"checkpoint-{step}") for step in (8, 12))
    assert (tmp_path / "broken-checkpoint-12").read_text() == "no folder"


# What a checkpoint holds is compared with what was saved in it.


def write_tensors(path: Path, tensors: dict[str, tuple[str, list[int], list[int]]], content: bytes) -> None:
    """safetensors: name -> (type, shape, [begin, end])."""
    entries = {
        name: {"dtype": kind, "shape": shape, "data_offsets": place} for name, (kind, shape, place) in tensors.items()
    }
    header = json.dumps(entries).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + content)


def spoil(path: Path, place: int, with_bytes: bytes) -> None:
    """Other content, the same size."""
    with path.open("r+b") as file:
        file.seek(place if place >= 0 else path.stat().st_size + place)
        file.write(with_bytes)


SPOILS: dict[str, Callable[[Path], object]] = {
    "optimizer.pt does not hold what was saved": lambda path: spoil(path / "optimizer.pt", 2000, b"\0" * 100),
    "model.safetensors does not hold what was saved": lambda path: spoil(path / "model.safetensors", -4, b"\0" * 4),
    "rng_state.pth is missing": lambda path: (path / "rng_state.pth").unlink(),
    "config.json has": lambda path: (path / "config.json").write_text("{}"),
}


@each("problem", SPOILS)
def test_a_sealed_checkpoint_shows_each_change(tmp_path: Path, problem: str) -> None:
    path = write_checkpoint(tmp_path, 5)
    assert seal(path) == bytes_below(path) - (path / FILES_JSON).stat().st_size
    assert inspect_checkpoint(path).problem is None
    SPOILS[problem](path)
    assert problem in (inspect_checkpoint(path).problem or "")


def test_files_of_every_rank_are_sealed_and_a_seal_that_is_nonsense_is_none(tmp_path: Path) -> None:
    path = write_deepspeed(tmp_path / "ranks", 5)
    seal(path)
    assert inspect_checkpoint(path).problem is None
    spoil(path / "global_step5" / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", 300, b"\0" * 64)
    assert "rank_1_mp_rank_00_optim_states.pt does not hold" in (inspect_checkpoint(path).problem or "")
    path = write_checkpoint(tmp_path, 5)
    for text in ("", "[]", '{"files": 3}'):
        (path / FILES_JSON).write_text(text)
        assert changed_file(path) is None
        assert inspect_checkpoint(path).problem is None


@each(
    ("tensors", "size"),
    [
        ({"a": ("F32", [4], [0, 16]), "b": ("F32", [4], [8, 24])}, 24),
        ({"a": ("F32", [4], [0, 16]), "b": ("F32", [4], [20, 36])}, 36),
        ({"a": ("F32", [5], [0, 16])}, 16),
    ],
)
def test_tensors_lie_end_to_end(
    tmp_path: Path, tensors: dict[str, tuple[str, list[int], list[int]]], size: int
) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(path, tensors, b"\1" * size)
    assert "overlap or do not fit" in (safetensors_problem(path) or "")


def test_a_second_half_of_zeros_is_what_a_loss_of_power_leaves(tmp_path: Path) -> None:
    path, count = tmp_path / "model.safetensors", 250_000
    tensors = {"a": ("F32", [count], [0, 4 * count])}
    write_tensors(path, tensors, os.urandom(4 * count))
    assert safetensors_problem(path) is None
    spoil(path, -2 * count - 100, b"\0" * (2 * count + 100))
    assert "only zeros" in (safetensors_problem(path) or "")


def test_small_archives_are_checked_byte_by_byte(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.pt"
    write_zip(path)
    assert zip_problem(path, path.name) is None
    spoil(path, 1000, b"y")
    assert "does not match its checksums" in (zip_problem(path, path.name) or "")
