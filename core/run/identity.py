"""What a run trains on and with, as its first training found it and as it is now."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from trainwiz.core.config import RunConfig
from trainwiz.core.config.settings import SETTINGS
from trainwiz.core.data.sources import all_sources, find_files
from trainwiz.core.errors import Finding, TrainwizError, UsageError
from trainwiz.core.export.training_arguments import processes
from trainwiz.core.files import at_home, sampled_digest
from trainwiz.core.language import mark, tr
from trainwiz.core.run.folder import RunFolder, name_for_commands, read_json, write_json_atomic
from trainwiz.core.run.state import read_object
from trainwiz.core.text import object_in

# identity.json: what a run trains on and with, as its first training found it; a resume is compared with it.
#
#     {"format": "trainwiz.identity/1", "time_s": 1795344000.0,
#      "settings": {"data": {"data.sources.0": {"files": 2, "bytes": 81234, "sample": "6f1c..."}, ...},
#                   "model": {...}, "batch": {"sequences of a step": 48, ...}, "processes": {...},
#                   "training": {...}, "engine": {...}},
#      "loaded": {"data": {"rows that train": 10200}, "tokenizer": {"vocabulary and rules ...": "9ab3..."}},
#      "accepted": [{"time_s": ..., "part": "data", "what": "data.sources.0: ... -> ..."}]}
#
# It is written by the first training and not when the folder is prepared: a folder may be carried to
# another machine and its data put beside it there, and rows and tokenizer are known only once they are
# loaded. Every checkpoint has a copy. `settings` can be compared without loading anything, before the
# training starts; `loaded` is compared after the data and the tokenizer are there and before the first
# step.
#
# What trainwiz itself changes to get a run through (a smaller micro-batch with more accumulation) is
# no difference: the batch is recorded as the sequences of one optimizer step.

IDENTITY_JSON = "identity.json"
FORMAT = "trainwiz.identity/1"
Part = Literal["data", "model", "tokenizer", "batch", "processes", "training", "engine"]
PARTS: tuple[Part, ...] = get_args(Part)
"""What a difference is about; each can be accepted by its name."""
CHANGED_S, NAME = "changed_s", "name"
"""When files were last written, and where they are: told, never compared, for a copy or a `touch` is no other data."""
LONGEST_VALUE = 60

Values = Mapping[str, Mapping[str, Any]]
"""Part -> what -> value."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is no longer as recorded."""

    part: str
    text: str
    """ "training.seed: 42 → 7"."""


@dataclass(slots=True)
class Identity:
    """The record of one run."""

    settings: dict[str, dict[str, Any]]
    loaded: dict[str, dict[str, Any]] = field(default_factory=dict)
    time_s: float = field(default_factory=time.time)
    accepted: list[dict[str, Any]] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Raises OSError."""
        write_json_atomic(path, {"format": FORMAT, **asdict(self)})

    @classmethod
    def read(cls, path: Path) -> Identity | None:
        """None where there is none, or nonsense."""
        document = read_json(path) or {}
        return read_object(cls, document) if document.get("format") == FORMAT else None

    def accept(self, differences: Iterable[Difference]) -> None:
        """Note differences that somebody accepted."""
        self.accepted += [{"time_s": time.time(), "part": one.part, "what": one.text} for one in differences]


def recorded_identity(folder: RunFolder, checkpoint: Path | None) -> Identity | None:
    """What a resume has to match: the record of the run, else of the checkpoint."""
    of_run = Identity.read(folder.file(IDENTITY_JSON))
    return of_run or (Identity.read(checkpoint / IDENTITY_JSON) if checkpoint is not None else None)


def compare(recorded: Values, now: Values) -> list[Difference]:
    """What differs, in the order of PARTS. Only what both know is compared: versions may record more or less."""
    found = []
    for part in PARTS:
        before, after = object_in(recorded.get(part)), object_in(now.get(part))
        for what, old in before.items():
            if what in after and _compared(old) != _compared(after[what]):
                found.append(Difference(part, _words(what, old, after[what])))
    return found


def refuse(folder: RunFolder, differences: Collection[Difference], accept: Collection[str]) -> list[Difference]:
    """The differences, where all of them are accepted. Raises UsageError with all the others in one sentence."""
    refused = [one for one in differences if one.part not in accept and "all" not in accept]
    if not refused:
        return list(differences)
    parts = {*accept, *(one.part for one in refused)}
    message = tr(
        "{run} is not resumed because this has changed since it started: {differences}. Restore the original state, "
        "or accept the changes: trainwiz runs resume {typed} --accept {parts}",
        run=folder.path.name,
        differences="; ".join(one.text for one in refused),
        typed=name_for_commands(folder.path),
        parts=",".join(part for part in PARTS if part in parts),
    )
    raise UsageError(Finding("identity_changed", "error", str(folder.path), message))


def _compared(value: Any) -> Any:
    return {key: entry for key, entry in value.items() if key not in (CHANGED_S, NAME)} if _is_files(value) else value


def _is_files(value: Any) -> bool:
    """Whether it is what `files_identity` says of files."""
    return isinstance(value, Mapping) and CHANGED_S in value


def _words(what: str, old: Any, new: Any) -> str:
    if not (_is_files(old) and _is_files(new)):
        return f"{tr(what)}: {_text(old)} → {_text(new)}"
    was, now = (
        tr("{n} file(s), {size} bytes", n=_text(value.get("files")), size=_text(value.get("bytes")))
        for value in (old, new)
    )
    now = now if was != now else tr("the same size with different content")
    return f"{what} ({new.get(NAME)}): {was} → {now}"


def _text(value: Any) -> str:
    text = tr("none") if value is None else f"{value:,}" if type(value) is int and value >= 10_000 else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


# The identity of a run as its settings and files are now.

SEQUENCES = mark("sequences of a step")
MOST_BLOCKS, MOST_BLOCKS_OF_A_FILE = 256, 64
"""Of 64 KiB: of all files of a source together, but at least the first and the last of each looked into."""
MOST_FILES = 512
"""Of more, this many are looked into, evenly spread; of all the names and sizes count."""
_LEARNT = [key for key, entry in SETTINGS.items() if entry.learnt]
COMPARED: Mapping[Part, tuple[str, ...]] = {
    "data": (
        "data.validation_rows", "data.concatenate", "data.min_characters", "data.max_characters", "data.too_long",
    ),
    "model": ("task", "model.init", "peft.method", "peft.rank", "peft.alpha", "peft.targets"),
    "tokenizer": ("model.source_language", "model.target_language", "model.chat_template"),
    "batch": ("batch.sequence_length", "batch.target_length"),
    "training": (
        *(key for key in _LEARNT if key.startswith("training.")),
        "data.group_by_length", "mode.kind", "mode.overfit_batches",
    ),
    "engine": tuple(key for key in _LEARNT if key.startswith("engine.")),
}  # fmt: skip
"""Part -> key paths of the RunConfig."""


def sequences_of_a_step(config: RunConfig, world_size: int) -> int:
    """Micro-batch x accumulation x processes of all nodes: what recovery leaves as it is."""
    batch = config.batch
    return (batch.micro_batch_size or 1) * (batch.gradient_accumulation_steps or 1) * world_size


def settings_now(config: RunConfig, folder: Path, world_size: int | None = None) -> dict[str, dict[str, Any]]:
    """Part -> what -> value. Reads samples of files, 64 MiB of a source at most.

    `world_size`: how many processes there really are, where that is known; the launcher goes by a file of its own.

    Relative paths are from `folder`. Where data lies is not part of it, only what it holds: a source
    that cannot be found is left out, for the reader of the data has the better sentence.
    """
    count = world_size or processes(config)
    architecture = {**(config.model.architecture or {}), **config.model.architecture_overrides}
    settings: dict[str, dict[str, Any]] = {
        part: {key: config.value(key) for key in keys} for part, keys in COMPARED.items()
    }
    settings["data"] |= _sources(config, folder)
    settings["model"] |= {f"model.architecture.{key}": value for key, value in sorted(architecture.items())}
    settings["model"] |= _base_weights(config, folder)
    settings["batch"][SEQUENCES] = sequences_of_a_step(config, count)
    settings["processes"] = {"processes": count}
    return settings


def position_difference(step: int, epoch: float | None, sequences: int, rows: int) -> Difference | None:
    """Whether a checkpoint of `step` would go on at another place in the data than it left, as an older one does after
    another batch was accepted.

    `epoch` is what the checkpoint says, `sequences` those of a step and `rows` those that train, now.
    One step of tolerance: the last window of an epoch may be short.
    """
    steps_of_an_epoch = math.ceil(rows / sequences) if rows > 0 else 0
    if epoch is None or steps_of_an_epoch == 0:
        return None
    whole, rest = divmod(step, steps_of_an_epoch)
    now = whole + min(rest * sequences, rows) / rows
    if abs(now - epoch) <= 1.5 / steps_of_an_epoch:
        return None
    return Difference(
        "batch", tr("position in the data: epoch {then} → epoch {now}", then=f"{epoch:.3f}", now=f"{now:.3f}")
    )


def files_identity(paths: Iterable[Path]) -> dict[str, Any]:
    """How many files, their bytes, and a hash of names, sizes and samples. Raises OSError."""
    files = sorted(paths)
    found = [path.stat() for path in files]
    step = max(1, math.ceil(len(files) / MOST_FILES))
    blocks = max(2, min(MOST_BLOCKS_OF_A_FILE, MOST_BLOCKS // max(1, len(files))))
    digest = hashlib.blake2b(digest_size=16)
    for number, (path, state) in enumerate(zip(files, found, strict=True)):
        digest.update(f"{path.name}:{state.st_size};".encode(errors="surrogateescape"))
        if number % step == 0:
            digest.update(sampled_digest(path, blocks).encode())
    changed_s = max((state.st_mtime for state in found), default=0.0)
    size = sum(state.st_size for state in found)
    return {"files": len(files), "bytes": size, "sample": digest.hexdigest(), CHANGED_S: changed_s}


def _sources(config: RunConfig, folder: Path) -> dict[str, Any]:
    train, held = all_sources(config)
    found: dict[str, Any] = {"data.sources": len(train), "data.validation_sources": len(held)}
    for key, source in (*train, *held):
        found |= {f"{key}.{name}": value for name, value in source.model_dump(exclude={"name"}).items()}
        with suppress(TrainwizError, OSError):
            found[key] = {**files_identity(find_files(source, key, folder, ask=False).files), NAME: source.name}
    return found


def _base_weights(config: RunConfig, folder: Path) -> dict[str, Any]:
    """The base of adapters, which a resume reads again; other models come from the checkpoint alone."""
    path = folder / at_home(Path(config.model.name))
    if config.peft.method == "none" or config.model.init != "pretrained" or not path.is_dir():
        return {}
    weights = [one for one in path.iterdir() if one.suffix in (".safetensors", ".bin") or one.name == "config.json"]
    try:
        return {"model.name": {**files_identity(weights), NAME: config.model.name}}
    except OSError:
        return {}
