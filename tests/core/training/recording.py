"""A training process that also notes which rows each optimizer step sees, in the run folder.

samples-rank<N>.jsonl, which `samples` reads: {"step", "rows": a fingerprint for each row that counts, "labels": of the whole window, all ranks}.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from trainwiz.core.training.batches import IGNORED, ROW_ENDS
from trainwiz.core.training.trainer import RunTrainer


def rows_of(batch: dict[str, Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(tokens, labels) of each row, without padding."""
    if ROW_ENDS[0] in batch:
        sides = (batch[name][0].split(batch[ROW_ENDS[0]].diff().tolist()) for name in ("input_ids", "labels"))
        return list(zip(*sides, strict=True))
    masks = batch["attention_mask"].bool()
    return [
        (tokens[mask], labels[mask])
        for tokens, mask, labels in zip(batch["input_ids"], masks, batch["labels"], strict=True)
    ]


def fingerprints(batch: dict[str, Any]) -> list[str]:
    """Of the tokens, and of the labels with their places: the same row with another mask is another one."""
    found = []
    for tokens, labels in rows_of(batch):
        if (labels != IGNORED).any():
            row = [tokens.tolist(), labels.tolist()]
            found.append(hashlib.sha1(json.dumps(row).encode()).hexdigest()[:12])
    return found


def note_samples() -> None:
    original = RunTrainer.get_batch_samples

    def noted(self: RunTrainer, *args: Any, **kwargs: Any) -> Any:
        window, count = original(self, *args, **kwargs)
        line = {
            "step": self.state.global_step + 1,
            "rows": [row for batch in window for row in fingerprints(batch)],
            "labels": None if count is None else int(count),
            "micro_batches": len(window),
        }
        if window:
            with Path(f"samples-rank{os.environ.get('RANK', '0')}.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
        return window, count

    RunTrainer.get_batch_samples = noted  # type: ignore[method-assign]


def samples(folder: Path) -> dict[int, dict[str, Any]]:
    """Step -> rows of all ranks (sorted), labels, micro-batches, as the step was done at last."""
    steps: dict[int, dict[str, Any]] = {}
    files = sorted(folder.glob("samples-rank*.jsonl"))
    for file in files:
        last = {line["step"]: line for line in map(json.loads, file.read_text().splitlines())}
        for step, line in last.items():
            found = steps.setdefault(step, {"rows": [], "labels": line["labels"]})
            assert found["labels"] == line["labels"]
            found["rows"] += line["rows"]
    return {step: {**found, "rows": sorted(found["rows"])} for step, found in steps.items()}
