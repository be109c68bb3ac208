"""Checkpoint room: whether the disk lasts for the checkpoints that a run still writes, with those that it deletes counted."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Saves:
    """What a run has saved and will save."""

    checkpoint_bytes: int
    """Of one checkpoint."""
    present: int
    """Complete ones that lie there now."""
    kept: int | None
    """Most that lie there between two saves; None where all stay."""
    every_steps: int
    step: int
    max_steps: int
    model_bytes: int = 0
    """Written once more at the end."""

    @property
    def to_come(self) -> int:
        """Checkpoints that are still written; the last step saves in any case."""
        done = self.step // self.every_steps * self.every_steps
        return math.ceil(max(0, self.max_steps - done) / self.every_steps)

    @property
    def needed_bytes(self) -> int:
        """Most of the disk that the run will take beyond what it has now. A new checkpoint is whole before an old one goes."""
        checkpoints = self.to_come
        if self.kept is not None:
            checkpoints = min(checkpoints, max(0, self.kept + 1 - self.present))
        # At the end the checkpoint that was too many is gone, and the model takes its place.
        at_end = min(self.to_come, max(0, self.kept - self.present)) if self.kept is not None else self.to_come
        return max(checkpoints * self.checkpoint_bytes, at_end * self.checkpoint_bytes + self.model_bytes)

    def fails_at_step(self, free_bytes: int) -> int | None:
        """The step whose save (of the end: whose model) no longer fits into `free_bytes`; None where all fit."""
        if self.needed_bytes <= free_bytes:
            return None
        fitting = free_bytes // max(1, self.checkpoint_bytes)
        next_save = (self.step // self.every_steps + 1) * self.every_steps
        return min(self.max_steps, next_save + fitting * self.every_steps)

    @property
    def grows(self) -> bool:
        """Whether the next save leaves more on the disk than was there: until as many lie there as are kept."""
        return self.to_come > 0 and (self.kept is None or self.present < self.kept)
