"""Whether a checkpoint is complete, and holds what was saved in it."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from trainwiz.core.files import bytes_below
from trainwiz.core.run.checkpoints import (
    FILES_JSON,
    inspect_checkpoint,
    list_checkpoints,
    newest_complete,
    seal,
    set_aside,
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
)
from tests.each import each

Break = Callable[[Path], object]
TORN: dict[str, Break] = {
    "trainer_state.json is missing": lambda path: (path / "trainer_state.json").unlink(),
    "trainer_state.json is incomplete": lambda path: cut(path / "trainer_state.json"),
    "trainer_state.json is incompl": lambda path: (path / "trainer_state.json").write_text('{"global_step": true}'),
    "model.safetensors is incomplete": lambda path: cut(path / "model.safetensors", 0.95),
    "model.safetensors is incompl": lambda path: cut(path / "model.safetensors", 0.3),
    "model.safetensors is in": lambda path: (path / "model.safetensors").write_bytes(b""),
    "the weights are missing": lambda path: (path / "model.safetensors").unlink(),
    "optimizer.pt is incomplete": lambda path: cut(path / "optimizer.pt", 0.9),
    "the optimizer state is missing": lambda path: (path / "optimizer.pt").unlink(),
    "scheduler.pt is missing": lambda path: (path / "scheduler.pt").unlink(),
    "config.json is missing": lambda path: (path / "config.json").unlink(),
    "config.json is incomplete": lambda path: (path / "config.json").write_text("[]"),
}
TORN_ADAPTER: dict[str, Break] = {
    "the weights are missing": lambda path: (path / "adapter_model.safetensors").unlink(),
    "adapter_config.json is incomplete": lambda path: cut(path / "adapter_config.json"),
}
STATES = "global_step7/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"
TORN_DEEPSPEED: dict[str, Break] = {
    "folder 'global_step7' is": lambda path: (path / "global_step7/mp_rank_00_model_states.pt").unlink(),
    "mp_rank_00_model_states.pt is incomplete": lambda path: cut(path / "global_step7/mp_rank_00_model_states.pt"),
    "'global_step7' is missing": lambda path: shutil.rmtree(path / "global_step7"),
    "'../../etc' is missing": lambda path: (path / "latest").write_text("../../etc"),
}


def sealed(root: Path, number: int) -> Path:
    path = write_checkpoint(root, number)
    assert seal(path) == bytes_below(path) - (path / FILES_JSON).stat().st_size
    return path


def sealed_by_two(root: Path, number: int) -> Path:
    path = write_deepspeed(root, number)
    seal(path)
    return path


def spoil(path: Path, place: int, with_bytes: bytes) -> None:
    """Other content, the same size."""
    with path.open("r+b") as file:
        file.seek(place if place >= 0 else path.stat().st_size + place)
        file.write(with_bytes)


SPOILT: dict[str, Break] = {
    "the content of optimizer.pt is not what was saved": lambda path: spoil(path / "optimizer.pt", 2000, b"\0" * 100),
    "the content of model.safetensors is not what was saved": lambda path: spoil(
        path / "model.safetensors", -4, b"\0" * 4
    ),
    "rng_state.pth is missing": lambda path: (path / "rng_state.pth").unlink(),
    "the content of config.json": lambda path: (path / "config.json").write_text("{}"),
}
SPOILT_STATES: dict[str, Break] = {
    "rank_0_mp_rank_00_optim_states.pt is not what was saved": lambda path: spoil(path / STATES, 300, b"\0" * 64)
}
SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


def in_shards(root: Path, number: int) -> Path:
    path = write_checkpoint(root, number)
    (path / "model.safetensors").unlink()
    for shard in SHARDS:
        write_safetensors(path / shard)
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": SHARDS[0], "b": SHARDS[1]}}))
    return path


TORN_SHARDS: dict[str, Break] = {
    f"{SHARDS[1]} is incomplete": lambda path: cut(path / SHARDS[1], 0.95),
    f"{SHARDS[1]} is missing": lambda path: (path / SHARDS[1]).unlink(),
}


def by_ranks(make: Callable[[Path, int], Path], count: int) -> Callable[[Path, int], Path]:
    def write(root: Path, number: int) -> Path:
        path = make(root, number)
        saved_by(path, count)
        return path

    return write


# The rank that is not first writes its random state after the record: a kill in between leaves a gap at the end.
LAST_STATES = "global_step7/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
TABLE = [
    *((write_checkpoint, spoiling, problem) for problem, spoiling in TORN.items()),
    *((write_adapter, spoiling, problem) for problem, spoiling in TORN_ADAPTER.items()),
    *((write_deepspeed, spoiling, problem) for problem, spoiling in TORN_DEEPSPEED.items()),
    *((sealed, spoiling, problem) for problem, spoiling in SPOILT.items()),
    *((sealed_by_two, spoiling, problem) for problem, spoiling in SPOILT_STATES.items()),
    *((in_shards, spoiling, problem) for problem, spoiling in TORN_SHARDS.items()),
    (by_ranks(write_checkpoint, 1), lambda path: (path / "rng_state.pth").unlink(), "the RNG state of a rank"),
    (by_ranks(write_checkpoint, 2), lambda path: (path / "rng_state_1.pth").unlink(), "the RNG state of a rank"),
    (by_ranks(write_deepspeed, 2), lambda path: (path / LAST_STATES).unlink(), "optimizer states of a rank"),
]


@each(("make", "spoiling", "problem"), TABLE)
def test_what_is_not_whole_or_not_as_it_was_saved_is_named(
    tmp_path: Path, make: Callable[[Path, int], Path], spoiling: Break, problem: str
) -> None:
    path = make(tmp_path, 7)
    assert inspect_checkpoint(path).problem is None
    spoiling(path)
    found = inspect_checkpoint(path)
    assert problem in (found.problem or "") and found.step == 7


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
    steps = {"checkpoint-99": 3, **{f"checkpoint-{step}": step for step in (10, 20, 30, 40)}}
    assert [(found.path.name, found.step) for found in list_checkpoints(run)] == list(steps.items())


def test_a_file_or_a_dead_link_in_the_place_of_a_checkpoint_is_set_aside(tmp_path: Path) -> None:
    """A save would fail on it, and with it the training."""
    run = RunFolder(tmp_path)
    good = write_checkpoint(tmp_path, 4)
    (tmp_path / "checkpoint-8").symlink_to(tmp_path / "nowhere")
    (tmp_path / "broken-checkpoint-8").symlink_to(tmp_path / "nowhere")
    (tmp_path / "checkpoint-12").write_text("no folder")
    chosen, said = choose_checkpoint(run, "auto")
    assert chosen.path == good
    assert len(said) == 2 and "it was renamed to broken-checkpoint-8-2" in said[0]
    assert not any(os.path.lexists(tmp_path / f"checkpoint-{step}") for step in (8, 12))
    assert (tmp_path / "broken-checkpoint-12").read_text() == "no folder"
    # Nothing that was set aside is lost to the next.
    assert set_aside(inspect_checkpoint(write_checkpoint(tmp_path, 12)), "broken").name == "broken-checkpoint-12-2"


def test_a_seal_that_is_nonsense_is_none(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 5)
    (path / FILES_JSON).write_text('{"files": 3}')
    assert inspect_checkpoint(path).problem is None
