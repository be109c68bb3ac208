"""Checkpoints by their content: which ones are complete, which is the newest, which are to be set aside."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.errors import os_reason
from trainwiz.core.json_text import parse_json
from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.saved_files import changed_file
from trainwiz.core.run.tensor_files import safetensors_problem, zip_problem
from trainwiz.core.small_file import read_small

CHECKPOINT_NAME = re.compile(r"checkpoint-(\d+)")
ADAPTER_WEIGHTS = frozenset({"adapter_model.safetensors", "adapter_model.bin"})
PICKLED_WEIGHTS = frozenset({"pytorch_model.bin", "adapter_model.bin"})
PROGRESS_JSON = "progress.json"
"""What the training writes into each checkpoint: its counts, and by how many processes it was saved."""
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
    if not folder.path.is_dir():
        return []
    paths = [path for path in folder.path.iterdir() if CHECKPOINT_NAME.fullmatch(path.name)]
    return sorted((inspect_checkpoint(path) for path in paths), key=lambda found: (found.step, found.modified_s))


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
    was saved by trainwiz is compared with its files.json as well (see `core.run.saved_files` for what
    that sees); without one, large files are only looked into for halves of nothing but zeros.
    """
    named = CHECKPOINT_NAME.fullmatch(path.name)
    step = int(named.group(1)) if named else -1
    try:
        modified_s = path.stat().st_mtime
        document = _trainer_state(path / "trainer_state.json")
        if isinstance(document, str):
            return Checkpoint(path, step, modified_s, document)
        step = document["global_step"]
        return Checkpoint(path, step, modified_s, _problem(path))
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


def _trainer_state(path: Path) -> dict[str, Any] | str:
    try:
        document = parse_json(read_small(path, MOST_STATE_BYTES))
    except FileNotFoundError:
        return tr("{name} is missing: the save was cut short", name="trainer_state.json")
    except OSError as error:
        return tr("{name} cannot be read: {reason}", name="trainer_state.json", reason=os_reason(error))
    except ValueError:
        return tr("{name} is not whole", name="trainer_state.json")
    step = document.get("global_step") if isinstance(document, dict) else None
    if not isinstance(document, dict) or isinstance(step, bool) or not isinstance(step, int) or step < 0:
        return tr("{name} names no step", name="trainer_state.json")
    return document


def _problem(path: Path) -> str | None:
    changed = changed_file(path)
    if changed:
        return changed
    names = {entry.name for entry in path.iterdir()}
    deepspeed = "latest" in names
    for check in (_weights_problem, _description_problem, _torch_files_problem, _random_state_problem):
        problem = check(path, names)
        if problem:
            return problem
    if deepspeed:
        return _deepspeed_problem(path)
    if not any(name.startswith("optimizer") for name in names):
        return tr("the state of the optimizer is missing")
    if "scheduler.pt" not in names:
        return tr("{name} is missing", name="scheduler.pt")
    return None


def _weights_problem(path: Path, names: set[str]) -> str | None:
    for name in sorted(names):
        if name.endswith(".safetensors"):
            problem = safetensors_problem(path / name)
            if problem:
                return problem
        if name.endswith(".index.json"):
            missing = _missing_shards(path / name)
            if missing:
                return missing
    if "adapter_config.json" in names and not names & ADAPTER_WEIGHTS:
        return tr("the weights of the adapter are missing")
    weights = [name for name in names if name.endswith(".safetensors") or name in PICKLED_WEIGHTS]
    folders = any(name.startswith("pytorch_model_fsdp") for name in names)
    if not weights and not folders and "latest" not in names:
        return tr("the weights are missing")
    return None


def _description_problem(path: Path, names: set[str]) -> str | None:
    """The JSON that says which model or adapter the weights belong to: without it they cannot be loaded back."""
    if not any(name.endswith(".safetensors") or name in PICKLED_WEIGHTS for name in names):
        return None
    description = "adapter_config.json" if names & ADAPTER_WEIGHTS else "config.json"
    try:
        document = parse_json(read_small(path / description))
    except FileNotFoundError:
        return tr("{name} is missing", name=description)
    except ValueError:
        return tr("{name} is not whole", name=description)
    return None if isinstance(document, dict) else tr("{name} holds no settings", name=description)


def _missing_shards(path: Path) -> str | None:
    try:
        shards = set(parse_json(read_small(path))["weight_map"].values())
    except (ValueError, LookupError, TypeError, AttributeError):
        return tr("{name} is not whole", name=path.name)
    missing = sorted(str(shard) for shard in shards if not (path.parent / str(shard)).is_file())
    if not missing:
        return None
    return tr("{name} is missing ({n} of {of} parts)", name=missing[0], n=len(missing), of=len(shards))


def _torch_files_problem(path: Path, names: set[str]) -> str | None:
    for name in sorted(names):
        if name.endswith((".pt", ".pth")) or name in (*PICKLED_WEIGHTS, "optimizer.bin"):
            problem = zip_problem(path / name, name)
            if problem:
                return problem
    return None


def _random_state_problem(path: Path, names: set[str]) -> str | None:
    ranks = sorted(int(name[10:-4]) for name in names if re.fullmatch(r"rng_state_\d+\.pth", name))
    count = saved_by(path)
    if count == 1 and "rng_state.pth" not in names:
        return tr("the random state is missing")
    if (ranks or count > 1) and ranks != list(range(count or len(ranks))):
        return tr("the random state of a rank is missing")
    return None


def saved_by(path: Path) -> int:
    """By how many processes a checkpoint was saved, as it says itself; 0 where it does not say."""
    try:
        document = parse_json(read_small(path / PROGRESS_JSON))
    except (OSError, ValueError):
        return 0
    count = document.get("world_size") if isinstance(document, dict) else None
    return count if isinstance(count, int) and count > 0 else 0


def _deepspeed_problem(path: Path) -> str | None:
    tag = read_small(path / "latest").decode(errors="replace").strip()
    folder = path / tag
    if not tag or Path(tag).name != tag or not folder.is_dir():
        return tr("DeepSpeed's folder {name} is missing", name=repr(tag))
    files = sorted(entry.name for entry in folder.iterdir())
    for name in files:
        problem = zip_problem(folder / name, f"{tag}/{name}") if name.endswith(".pt") else None
        if problem:
            return problem
    if not any(name.endswith("model_states.pt") for name in files):
        return tr("the model's states in {name} are missing", name=tag)
    ranks = sorted({int(rank) for name in files for rank in re.findall(r"rank_(\d+)_mp_rank_\d+_optim_states", name)})
    if not any("optim_states" in name for name in files) or ranks != list(range(saved_by(path) or len(ranks))):
        return tr("the optimizer's states of a rank in {name} are missing", name=tag)
    return None
