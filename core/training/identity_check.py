"""IdentityCheck: refuses to resume a training with other inputs than it began with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.errors import os_reason
from trainwiz.core.language import mark
from trainwiz.core.run.checkpoints import saved_by
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.identity import (
    IDENTITY_JSON,
    SEQUENCES,
    Difference,
    Identity,
    Values,
    compare,
    position_difference,
    recorded_identity,
    refuse,
    settings_now,
)
from trainwiz.core.training.process import rank_of_this_process
from trainwiz.core.training.tasks import TaskParts
from transformers import PreTrainedTokenizerBase

ROWS_THAT_TRAIN, ROWS_HELD_OUT = mark("rows that train"), mark("rows held out")
ORDER = mark("how the rows are shuffled")
CLASSES = mark("classes in the order of their numbers")
VOCABULARY = mark("vocabulary and rules of the tokenizer")
TEMPLATE = mark("chat template")
PROBE_TEXT = "The Quick brown fox (42%) naïve ﬁ café 你好，世界 МИР \t MKTAYIAKQRQISFVK\n"
"""Shows another normaliser, other merges or other rules of splitting where the vocabulary is the same."""


class IdentityCheck:
    """Every process of a run checks alike, and rank 0 keeps the record: see core.run.identity."""

    def __init__(self, folder: RunFolder, config: RunConfig, checkpoint: Path | None, accept: Collection[str]) -> None:
        self._folder = folder
        self._config = config
        self._checkpoint = checkpoint
        self._accept = accept
        self._recorded = recorded_identity(folder, checkpoint)
        self._settings: dict[str, dict[str, Any]] = {}
        self._accepted: list[Difference] = []
        self.identity: Identity | None = None

    def before_loading(self, world_size: int) -> None:
        """Compare settings and files. Raises UsageError with all that differs and is not accepted."""
        self._settings = settings_now(self._config, self._folder.path, world_size)
        recorded: Values = self._recorded.settings if self._recorded else {}
        if self._recorded is None and self._checkpoint is not None and (count := saved_by(self._checkpoint)):
            # All that a checkpoint without a record says.
            recorded = {"processes": {"processes": count}}
        self._accepted = refuse(self._folder, compare(recorded, self._settings), self._accept)

    def after_loading(self, parts: TaskParts) -> None:
        """Compare rows, tokenizer and the place in the data, then write the record. Raises UsageError."""
        loaded: dict[str, dict[str, Any]] = {
            "data": {
                ROWS_THAT_TRAIN: len(parts.sampler),
                ROWS_HELD_OUT: 0 if parts.evaluation is None else len(parts.evaluation),  # type: ignore[arg-type]
                ORDER: parts.sampler.order,
            },
            "tokenizer": {VOCABULARY: tokenizer_digest(parts.tokenizer)},
        }
        if parts.labels is not None:
            loaded["data"][CLASSES] = ", ".join(parts.labels.names)
        if parts.template:
            # Of the text itself: a file may be changed under its name, and TRL's marks come and go with TRL.
            loaded["tokenizer"][TEMPLATE] = hashlib.blake2b(parts.template.encode(), digest_size=16).hexdigest()
        found = compare(self._recorded.loaded, loaded) if self._recorded else []
        position = self._position_difference(len(parts.sampler))
        accepted = refuse(self._folder, [*found, *([position] if position else [])], self._accept)
        self._keep_record(loaded, [*self._accepted, *accepted])

    def copy_to(self, checkpoint: Path) -> None:
        """Let a checkpoint say what it was trained on. Raises OSError."""
        if self.identity is not None:
            self.identity.write(checkpoint / IDENTITY_JSON)

    def _position_difference(self, rows: int) -> Difference | None:
        state = read_json(self._checkpoint / "trainer_state.json") if self._checkpoint is not None else None
        step, epoch = (state or {}).get("global_step"), (state or {}).get("epoch")
        if not isinstance(step, int):
            return None
        sequences = self._settings["batch"][SEQUENCES]
        known_epoch = float(epoch) if isinstance(epoch, int | float) else None
        return position_difference(step, known_epoch, sequences, rows)

    def _keep_record(self, loaded: dict[str, dict[str, Any]], accepted: list[Difference]) -> None:
        identity = self._recorded or Identity(self._settings, loaded)
        identity.accept(accepted)
        if accepted:
            identity.settings, identity.loaded = self._settings, loaded
        self.identity = identity
        path = self._folder.file(IDENTITY_JSON)
        if rank_of_this_process() == 0 and (accepted or not path.exists()):
            for difference in accepted:
                print(f"accepted: {difference.text}", flush=True)
            try:
                identity.write(path)
            except OSError as error:
                print(f"{IDENTITY_JSON} could not be written: {os_reason(error)}", flush=True)


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Hash of vocabulary, special tokens and how a text is cut; the same for every version of the library."""
    special = {name: str(value) for name, value in tokenizer.special_tokens_map.items()}
    try:
        cut = tokenizer(PROBE_TEXT)["input_ids"]
    except (ValueError, KeyError, NotImplementedError):  # A tokenizer without a token for what it does not know.
        cut = None
    document = [sorted(tokenizer.get_vocab().items(), key=lambda entry: (entry[1], entry[0])), special, cut]
    text = json.dumps(document, ensure_ascii=True, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
