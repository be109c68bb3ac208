"""What a checkpoint holds is compared with what was saved in it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from trainwiz.core.files import bytes_below
from trainwiz.core.run.checkpoints import (
    FILES_JSON,
    changed_file,
    inspect_checkpoint,
    safetensors_problem,
    seal,
    zip_problem,
)

from tests.core.run.checkpoint_files import write_checkpoint, write_deepspeed, write_zip


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


@pytest.mark.parametrize("problem", SPOILS)
def test_a_sealed_checkpoint_shows_each_change(tmp_path: Path, problem: str) -> None:
    path = write_checkpoint(tmp_path, 5)
    assert seal(path) == bytes_below(path) - (path / FILES_JSON).stat().st_size
    assert inspect_checkpoint(path).problem is None
    SPOILS[problem](path)
    assert problem in (inspect_checkpoint(path).problem or "")


def test_files_of_every_rank_are_sealed(tmp_path: Path) -> None:
    path = write_deepspeed(tmp_path, 5)
    seal(path)
    assert inspect_checkpoint(path).problem is None
    spoil(path / "global_step5" / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", 300, b"\0" * 64)
    assert "rank_1_mp_rank_00_optim_states.pt does not hold" in (inspect_checkpoint(path).problem or "")


def test_a_seal_that_is_nonsense_is_none(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 5)
    for text in ("", "[]", '{"files": 3}'):
        (path / FILES_JSON).write_text(text)
        assert changed_file(path) is None
        assert inspect_checkpoint(path).problem is None


@pytest.mark.parametrize(
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
