"""Checkpoints by their content: which are complete, which is the newest."""

from __future__ import annotations

import os
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.errors import os_reason
from trainwiz.core.files import open_file, read_small, sampled_digest
from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder, free_path, read_json, write_json_atomic
from trainwiz.core.text import object_in, parse_json, whole_in

# files.json of a checkpoint: what was in each of its files when the save was over.
#
#     {"format": "trainwiz.files/1", "files": {"model.safetensors": {"bytes": 30123456, "sample": "6f1c..."}}}
#
# It is written last, after all other files have reached the disk. A checkpoint that has one is compared
# with it: a file that is missing, shorter, filled with zeros by a loss of power, or otherwise another
# one than was saved shows. What does not show: a change of a file above 1 MiB that keeps its size and
# lies between the blocks that `sampled_digest` reads.

FILES_JSON = "files.json"
FORMAT = "trainwiz.files/1"


def seal(checkpoint: Path) -> int:
    """Bring every file of a finished save to the disk, then write files.json; the bytes of all files.

    Raises OSError. Without it the folder is judged by its files alone.
    """
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(path for path in checkpoint.rglob("*") if path.is_file() and path.name != FILES_JSON):
        _to_disk(path)
        name = path.relative_to(checkpoint).as_posix()
        files[name] = {"bytes": path.stat().st_size, "sample": sampled_digest(path)}
    write_json_atomic(checkpoint / FILES_JSON, {"format": FORMAT, "files": files})
    for path in (checkpoint / FILES_JSON, *{(checkpoint / name).parent for name in files}, checkpoint.parent):
        _to_disk(path)
    return sum(entry["bytes"] for entry in files.values())


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _changed_since_seal(checkpoint: Path) -> str | None:
    """One sentence about the first file that is not as it was saved; None where all are, or nothing was noted."""
    for name, saved in object_in((read_json(checkpoint / FILES_JSON) or {}).get("files")).items():
        if not (checkpoint / name).is_file():
            return tr("{name} is missing", name=name)
        # Its size is part of the digest.
        if sampled_digest(checkpoint / name) != object_in(saved).get("sample"):
            return tr("the content of {name} is not what was saved", name=name)
    return None


# Files of a save that was interrupted: each must prove by its own record that it is whole.

LONGEST_SAFETENSORS_HEADER_BYTES = 100_000_000


def _is_safetensors(path: Path) -> bool:
    """Whether the file is as long as its own header says.

    Format: 8 bytes little-endian length of the header, the header as JSON, the tensors
    (https://huggingface.co/docs/safetensors).
    """
    with open_file(path) as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            header = parse_json(file.read(min(length, LONGEST_SAFETENSORS_HEADER_BYTES)))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
            return bool(path.stat().st_size == 8 + length + max(ends, default=0))
        except (ValueError, LookupError, TypeError, AttributeError):
            return False


def _is_torch_file(path: Path) -> bool:
    """torch.save writes an uncompressed zip whose directory comes last: a file that was cut off has none."""
    try:
        with zipfile.ZipFile(path) as archive:
            ends = [entry.header_offset + entry.compress_size for entry in archive.infolist()]
            return 0 < max(ends, default=0) <= path.stat().st_size
    except (zipfile.BadZipFile, ValueError, struct.error, EOFError, NotImplementedError):
        return False


def _is_json_object(path: Path) -> bool:
    return read_json(path) is not None


_IS_WHOLE: dict[str, Callable[[Path], bool]] = {
    ".safetensors": _is_safetensors,
    # What model or adapter the weights belong to, and what their shards are: without it they cannot be loaded back.
    "config.json": _is_json_object,
    ".index.json": _is_json_object,
    **dict.fromkeys((".pt", ".pth", "_model.bin", "optimizer.bin"), _is_torch_file),
}
"""Ending of a name -> whether such a file is whole. Raises OSError."""


# Checkpoints by their content: which ones are complete, which is the newest, which are to be set aside.

CHECKPOINT_NAME = re.compile(r"checkpoint-(\d+)")
SHARDED = r"latest|pytorch_model_fsdp[^/]*"
"""What DeepSpeed and FSDP leave instead of weights in one piece."""
PROGRESS_JSON = "progress.json"
"""What the training writes into each checkpoint: its counts, and by how many processes it was saved."""
TRAINER_STATE = "trainer_state.json"
MOST_STATE_BYTES = 512 * 2**20


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint folder. `problem` is None when it is complete, else one sentence."""

    path: Path
    step: int
    """Global step that it holds by its own record; by its name where there is none."""
    modified_s: float
    problem: str | None = None


def list_checkpoints(folder: RunFolder) -> list[Checkpoint]:
    """Every `checkpoint-N` of the run, oldest step first, each looked into.

    A file or a link to nothing under such a name counts, as broken: it stands where a save will want to write.
    """
    named = [path for path in folder.path.glob("checkpoint-*") if CHECKPOINT_NAME.fullmatch(path.name)]
    return sorted(map(inspect_checkpoint, named), key=lambda found: (found.step, found.modified_s))


def newest_complete(folder: RunFolder) -> Path | None:
    """The complete checkpoint with the highest step; None when there is none."""
    complete = complete_checkpoints(folder)
    return complete[-1].path if complete else None


def complete_checkpoints(folder: RunFolder) -> list[Checkpoint]:
    """Those that a training can go on from, oldest step first."""
    return [found for found in list_checkpoints(folder) if found.problem is None]


def inspect_checkpoint(path: Path) -> Checkpoint:
    """Reads headers, sizes and a sample of each file, never all of a large one: milliseconds for any size.

    A save is not atomic (files go straight into `checkpoint-N`): trainer_state.json must name the step, each file be
    whole by its own record, all be there that a resume reads, and what trainwiz saved be as its files.json says.
    A checkpoint of adapters alone is complete without the weights of their base.
    """
    named = CHECKPOINT_NAME.fullmatch(path.name)
    step, modified_s = int(named[1]) if named else -1, 0.0
    problem: str | None = tr("{name} is incomplete", name=TRAINER_STATE)
    try:
        modified_s = path.stat().st_mtime
        open_file(path / TRAINER_STATE).close()
        held = (read_json(path / TRAINER_STATE, MOST_STATE_BYTES) or {}).get("global_step")
        if type(held) is int and held >= 0:
            step, problem = held, _changed_since_seal(path) or _problem(path)
    except (FileNotFoundError, NotADirectoryError):
        problem = tr("{name} is missing: the save was interrupted", name=TRAINER_STATE)
    except OSError as error:
        problem = tr("it cannot be read: {reason}", reason=os_reason(error))
    return Checkpoint(path, step, modified_s, problem)


def set_aside(checkpoint: Checkpoint, prefix: str) -> Path:
    """Rename `checkpoint-N` to `<prefix>-checkpoint-N`, with -2, -3, ... where that exists. Deletes nothing."""
    return checkpoint.path.rename(free_path(checkpoint.path.with_name(f"{prefix}-{checkpoint.path.name}")))


def _problem(path: Path) -> str | None:
    """One sentence about the first file that is torn or missing. Raises OSError."""
    names = sorted(found.relative_to(path).as_posix() for found in path.rglob("*"))
    for name in names:
        checks = (is_whole for ending, is_whole in _IS_WHOLE.items() if name.endswith(ending))
        if not all(is_whole(path / name) for is_whole in checks):
            return tr("{name} is incomplete", name=name)
        if name.endswith(".index.json"):
            shards = object_in((read_json(path / name) or {}).get("weight_map")).values()
            missing = sorted({*map(str, shards)}.difference(names))
            if missing:
                return tr("{name} is missing", name=missing[0])
    for problem, pattern, least in _needed(path, names):
        if sum(re.fullmatch(pattern, name) is not None for name in names) < least:
            return problem
    return None


def _needed(path: Path, names: list[str]) -> Iterator[tuple[str, str, int]]:
    """What a resume reads: the sentence where there is too little of it, a pattern of names, and how many of them."""
    saved_by = whole_in((read_json(path / PROGRESS_JSON) or {}).get("world_size")) or 0
    adapter = any(name.startswith("adapter_") for name in names)
    description = "adapter_config.json" if adapter else "config.json"
    weights = r"adapter_model\..*" if adapter else r"[^/]*\.safetensors|pytorch_model\.bin"
    yield tr("the weights are missing"), f"{weights}|{SHARDED}", 1
    yield tr("{name} is missing", name=description), f"{re.escape(description)}|{SHARDED}", 1
    yield tr("the RNG state of a rank is missing"), r"rng_state(_\d+)?\.pth", saved_by
    if "latest" not in names:
        yield tr("the optimizer state is missing"), r"optimizer.*", 1
        yield tr("{name} is missing", name="scheduler.pt"), r"scheduler\.pt", 1
        return
    tag = read_small(path / "latest").decode(errors="replace").strip()
    states = re.escape(f"{tag}/")
    yield tr("the DeepSpeed folder {name} is missing", name=repr(tag)), rf"{states}.*model_states\.pt", 1
    lacks = tr("the optimizer states of a rank in {name} are missing", name=tag)
    yield lacks, rf"{states}.*optim_states.*", max(1, saved_by)
