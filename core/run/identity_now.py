"""The identity of a run as its settings and files are now: see core.run.identity."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.data.sources import all_sources, find_files
from trainwiz.core.errors import TrainwizError
from trainwiz.core.export.solved import processes
from trainwiz.core.language import mark
from trainwiz.core.run.identity import CHANGED_S, NAME, Difference
from trainwiz.core.run.sampled import sampled_digest
from trainwiz.core.telemetry.paths import at_home

SEQUENCES = mark("sequences of a step")
POSITION = mark("place in the data")
MOST_BLOCKS, MOST_BLOCKS_OF_A_FILE = 256, 64
"""Of 64 KiB: of all files of a source together, but at least the first and the last of each looked into."""
MOST_FILES = 512
"""Of more, this many are looked into, evenly spread; of all the names and sizes count."""
OF_TRAINING = (
    "training.seed", "training.max_steps", "training.epochs", "training.learning_rate", "training.schedule",
    "training.final_learning_rate", "training.warmup", "training.weight_decay", "training.adam_beta1",
    "training.adam_beta2", "training.adam_epsilon", "training.max_grad_norm", "training.label_smoothing",
    "training.mask_probability", "training.loss_mean", "data.group_by_length", "mode.kind", "mode.overfit_batches",
)  # fmt: skip
OF_ENGINE = ("engine.optimizer", "engine.precision", "engine.strategy")
OF_DATA = ("data.validation_rows", "data.concatenate", "data.min_characters", "data.max_characters")
OF_MODEL = ("task", "model.init", "peft.method", "peft.rank", "peft.alpha", "peft.targets")
OF_TOKENIZER = ("model.source_language", "model.target_language")
OF_SOURCE = (
    "format",
    "split",
    "subset",
    "text_column",
    "target_column",
    "max_rows",
    "min_characters",
    "max_characters",
)


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
    return {
        "data": {**_of(config, OF_DATA), **_sources(config, folder)},
        "model": {
            **_of(config, OF_MODEL),
            **{f"model.architecture.{key}": value for key, value in sorted(architecture.items())},
            **_base_weights(config, folder),
        },
        "tokenizer": _of(config, OF_TOKENIZER),
        "batch": {
            SEQUENCES: sequences_of_a_step(config, count),
            **_of(config, ("batch.sequence_length", "batch.target_length")),
        },
        "processes": {"processes": count},
        "training": _of(config, OF_TRAINING),
        "engine": _of(config, OF_ENGINE),
    }


def position_difference(
    step: int, epoch: float | None, sequences: int, rows: int, recorded_sequences: int | None
) -> Difference | None:
    """Whether a checkpoint of `step` would go on at another place in the data than it left.

    `epoch` is what the checkpoint says, `sequences` those of a step and `rows` those that train, now.
    One step of tolerance: the last window of an epoch may be short.
    """
    if recorded_sequences not in (None, sequences):
        return Difference("batch", POSITION, f"{step * (recorded_sequences or 0):,}", f"{step * sequences:,}")
    steps_of_an_epoch = math.ceil(rows / sequences) if rows > 0 else 0
    if epoch is None or steps_of_an_epoch == 0:
        return None
    whole, rest = divmod(step, steps_of_an_epoch)
    now = whole + min(rest * sequences, rows) / rows
    if abs(now - epoch) <= 1.5 / steps_of_an_epoch:
        return None
    return Difference("batch", POSITION, f"epoch {epoch:.3f}", f"epoch {now:.3f}")


def files_identity(paths: Iterable[Path]) -> dict[str, Any]:
    """How many files, their bytes, and a hash of names, sizes and samples. Raises OSError."""
    files = sorted(paths)
    sizes = [path.stat().st_size for path in files]
    step = max(1, math.ceil(len(files) / MOST_FILES))
    blocks = max(2, min(MOST_BLOCKS_OF_A_FILE, MOST_BLOCKS // max(1, len(files))))
    digest = hashlib.blake2b(digest_size=16)
    for number, (path, size) in enumerate(zip(files, sizes, strict=True)):
        digest.update(f"{path.name}:{size};".encode(errors="surrogateescape"))
        if number % step == 0:
            digest.update(sampled_digest(path, blocks).encode())
    changed_s = max((path.stat().st_mtime for path in files), default=0.0)
    return {"files": len(files), "bytes": sum(sizes), "sample": digest.hexdigest(), CHANGED_S: changed_s}


def _of(config: RunConfig, keys: Iterable[str]) -> dict[str, Any]:
    return {key: config.value(key) for key in keys}


def _sources(config: RunConfig, folder: Path) -> dict[str, Any]:
    train, held = all_sources(config)
    found: dict[str, Any] = {"data.sources": len(train), "data.validation_sources": len(held)}
    for key, source in (*train, *held):
        found |= {f"{key}.{name}": getattr(source, name) for name in OF_SOURCE}
        try:
            found[key] = {**files_identity(find_files(source, key, folder, ask=False).files), NAME: source.name}
        except (TrainwizError, OSError):
            continue
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
