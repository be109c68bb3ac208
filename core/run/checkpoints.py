"""Checkpoints by their content: which are complete, which is the newest."""

from __future__ import annotations

import os
import re
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.errors import os_reason
from trainwiz.core.files import MOST_BYTES, open_file, read_small, sampled_digest
from trainwiz.core.language import mark, tr
from trainwiz.core.run.folder import RunFolder, read_json, write_json_atomic
from trainwiz.core.text import parse_json

# Files that hold tensors: are they whole, by their own record of what they hold?

LONGEST_SAFETENSORS_HEADER_BYTES = 100_000_000


def safetensors_problem(path: Path) -> str | None:
    """One sentence when the file is not as long as its own header says; None when it is whole.

    Format: 8 bytes little-endian length of the header, the header as JSON, the tensors
    (https://huggingface.co/docs/safetensors).
    """
    size = path.stat().st_size
    with open_file(path) as file:
        start = file.read(8)
        if len(start) < 8:
            return tr("{name} is empty or truncated", name=path.name)
        (length,) = struct.unpack("<Q", start)
        if length > min(size - 8, LONGEST_SAFETENSORS_HEADER_BYTES):
            return tr("{name} is truncated", name=path.name)
        try:
            tensors = [entry for name, entry in parse_json(file.read(length)).items() if name != "__metadata__"]
            expected = 8 + length + max((int(entry["data_offsets"][1]) for entry in tensors), default=0)
        except (ValueError, LookupError, TypeError, AttributeError):
            return tr("{name} has no readable header", name=path.name)
    if size == expected:
        return None
    return tr(
        "{name} has {size} bytes instead of {expected}", name=path.name, size=f"{size:,}", expected=f"{expected:,}"
    )


def zip_problem(path: Path, name: str) -> str | None:
    """One sentence when what torch.save wrote is not whole; `name` is what it is called in it.

    It writes an uncompressed zip whose directory comes last: a file that was cut off has none.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            end = max((entry.header_offset + entry.compress_size for entry in archive.infolist()), default=0)
            return tr("{name} is truncated", name=name) if end == 0 or end > path.stat().st_size else None
    except (zipfile.BadZipFile, ValueError, struct.error, EOFError, NotImplementedError):
        return tr("{name} is truncated", name=name)


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

    Raises OSError. Without it the folder is judged by its headers alone.
    """
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(path for path in checkpoint.rglob("*") if path.is_file() and path.name != FILES_JSON):
        _to_disk(path)
        name = path.relative_to(checkpoint).as_posix()
        files[name] = {"bytes": path.stat().st_size, "sample": sampled_digest(path)}
    write_json_atomic(checkpoint / FILES_JSON, {"format": FORMAT, "files": files})
    _to_disk(checkpoint / FILES_JSON)
    for folder in (*{(checkpoint / name).parent for name in files}, checkpoint, checkpoint.parent):
        _to_disk(folder)
    return sum(entry["bytes"] for entry in files.values())


def changed_file(checkpoint: Path) -> str | None:
    """One sentence about the first file that is not as it was saved; None where all are, or nothing was noted.

    Raises OSError.
    """
    files = (read_json(checkpoint / FILES_JSON) or {}).get("files")
    if not isinstance(files, dict):
        return None
    for name, saved in files.items():
        path, size = checkpoint / name, saved.get("bytes") if isinstance(saved, dict) else None
        if not path.is_file():
            return tr("{name} is missing", name=name)
        now = path.stat().st_size
        if now != size:
            return tr("{name} has {size} bytes instead of {expected}", name=name, size=f"{now:,}", expected=size)
        if sampled_digest(path) != saved.get("sample"):
            return tr("the content of {name} is not what was saved", name=name)
    return None


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Checkpoints by their content: which ones are complete, which is the newest, which are to be set aside.

CHECKPOINT_NAME = re.compile(r"checkpoint-(\d+)")
ADAPTER_WEIGHTS = frozenset({"adapter_model.safetensors", "adapter_model.bin"})
PICKLED_WEIGHTS = frozenset({"pytorch_model.bin", "adapter_model.bin"})
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
    paths = folder.path.iterdir() if folder.path.is_dir() else ()
    named = [path for path in paths if CHECKPOINT_NAME.fullmatch(path.name)]
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

    A save is not atomic (files go straight into `checkpoint-N`), so each file must prove itself:
    trainer_state.json parses, safetensors files are as long as their headers say, every shard of an
    index is there, the description of the model or adapter parses, torch files are whole zip archives,
    the random state of each process is there, and DeepSpeed's `latest` names a folder with the states
    of all ranks. A checkpoint of adapters alone is complete without the weights of their base. What
    was saved by trainwiz is compared with its files.json as well (see above for what
    that sees).
    """
    named = CHECKPOINT_NAME.fullmatch(path.name)
    step = int(named.group(1)) if named else -1
    try:
        modified_s = path.stat().st_mtime
        held = _step_of(path)
        if isinstance(held, str):
            return Checkpoint(path, step, modified_s, held)
        return Checkpoint(path, held, modified_s, _problem(path))
    except OSError as error:
        return Checkpoint(path, step, 0.0, tr("it cannot be read: {reason}", reason=os_reason(error)))


def set_aside(checkpoint: Checkpoint, prefix: str) -> Path:
    """Rename `checkpoint-N` to `<prefix>-checkpoint-N`, with -2, -3, ... where that exists. Deletes nothing."""
    target = checkpoint.path.with_name(f"{prefix}-{checkpoint.path.name}")
    number = 2
    while os.path.lexists(target):
        target = checkpoint.path.with_name(f"{prefix}-{checkpoint.path.name}-{number}")
        number += 1
    return checkpoint.path.rename(target)


def _object_in(path: Path, missing: str, other: str, most: int = MOST_BYTES) -> dict[str, Any] | str:
    """The JSON object of a file, or one sentence: `missing`, or `other` for what is no object. Raises OSError."""
    try:
        document = parse_json(read_small(path, most))
    except FileNotFoundError:
        return tr(missing, name=path.name)
    except ValueError:
        return tr("{name} is incomplete", name=path.name)
    return document if isinstance(document, dict) else tr(other, name=path.name)


def _step_of(path: Path) -> int | str:
    """The step that a checkpoint holds, or one sentence."""
    names_no_step = mark("{name} contains no step")
    missing = mark("{name} is missing: the save was interrupted")
    try:
        document = _object_in(path / TRAINER_STATE, missing, names_no_step, MOST_STATE_BYTES)
    except OSError as error:
        return tr("{name} cannot be read: {reason}", name=TRAINER_STATE, reason=os_reason(error))
    if isinstance(document, str):
        return document
    step = document.get("global_step")
    return step if type(step) is int and step >= 0 else tr(names_no_step, name=TRAINER_STATE)


def _problem(path: Path) -> str | None:
    names = {entry.name for entry in path.iterdir()}
    checks = (_weights_problem, _description_problem, _torch_files_problem, _random_state_problem, _optimizer_problem)
    return changed_file(path) or next((found for check in checks if (found := check(path, names))), None)


def _optimizer_problem(path: Path, names: set[str]) -> str | None:
    if "latest" in names:
        return _deepspeed_problem(path)
    if not any(name.startswith("optimizer") for name in names):
        return tr("the optimizer state is missing")
    return None if "scheduler.pt" in names else tr("{name} is missing", name="scheduler.pt")


def _weights_problem(path: Path, names: set[str]) -> str | None:
    for name in sorted(names):
        check = next((check for ending, check in _CHECKS.items() if name.endswith(ending)), None)
        if check and (found := check(path / name)):
            return found
    if "adapter_config.json" in names and not names & ADAPTER_WEIGHTS:
        return tr("the adapter weights are missing")
    weights = [name for name in names if name.endswith(".safetensors") or name in PICKLED_WEIGHTS]
    folders = any(name.startswith("pytorch_model_fsdp") for name in names)
    if not weights and not folders and "latest" not in names:
        return tr("the weights are missing")
    return None


def _description_problem(path: Path, names: set[str]) -> str | None:
    """The JSON that says which model or adapter the weights belong to: without it they cannot be loaded back."""
    if not any(name.endswith(".safetensors") or name in PICKLED_WEIGHTS for name in names):
        return None
    description = path / ("adapter_config.json" if names & ADAPTER_WEIGHTS else "config.json")
    found = _object_in(description, mark("{name} is missing"), mark("{name} contains no settings"))
    return found if isinstance(found, str) else None


def _missing_shards(path: Path) -> str | None:
    try:
        shards = set(parse_json(read_small(path))["weight_map"].values())
    except (ValueError, LookupError, TypeError, AttributeError):
        return tr("{name} is incomplete", name=path.name)
    missing = sorted(str(shard) for shard in shards if not (path.parent / str(shard)).is_file())
    if not missing:
        return None
    return tr("{name} is missing ({n} of {of} parts)", name=missing[0], n=len(missing), of=len(shards))


_CHECKS = {".safetensors": safetensors_problem, ".index.json": _missing_shards}


def _torch_files_problem(path: Path, names: set[str]) -> str | None:
    torch_files = (n for n in sorted(names) if n.endswith((".pt", ".pth")) or n in (*PICKLED_WEIGHTS, "optimizer.bin"))
    return next((found for name in torch_files if (found := zip_problem(path / name, name))), None)


def _random_state_problem(path: Path, names: set[str]) -> str | None:
    ranks = sorted(int(name[10:-4]) for name in names if re.fullmatch(r"rng_state_\d+\.pth", name))
    count = saved_by(path)
    if count == 1 and "rng_state.pth" not in names:
        return tr("the RNG state is missing")
    if (ranks or count > 1) and ranks != list(range(count or len(ranks))):
        return tr("the RNG state of a rank is missing")
    return None


def saved_by(path: Path) -> int:
    """By how many processes a checkpoint was saved, as it says itself; 0 where it does not say."""
    count = (read_json(path / PROGRESS_JSON) or {}).get("world_size")
    return count if isinstance(count, int) and count > 0 else 0


def _deepspeed_problem(path: Path) -> str | None:
    tag = read_small(path / "latest").decode(errors="replace").strip()
    folder = path / tag
    if not tag or Path(tag).name != tag or not folder.is_dir():
        return tr("the DeepSpeed folder {name} is missing", name=repr(tag))
    files = sorted(entry.name for entry in folder.iterdir())
    for name in files:
        if name.endswith(".pt") and (found := zip_problem(folder / name, f"{tag}/{name}")):
            return found
    if not any(name.endswith("model_states.pt") for name in files):
        return tr("the model states in {name} are missing", name=tag)
    ranks = sorted({int(rank) for name in files for rank in re.findall(r"rank_(\d+)_mp_rank_\d+_optim_states", name)})
    if not any("optim_states" in name for name in files) or ranks != list(range(saved_by(path) or len(ranks))):
        return tr("the optimizer states of a rank in {name} are missing", name=tag)
    return None
