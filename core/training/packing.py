"""Rows end to end in one sequence, each seeing itself alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from trainwiz.core.errors import usage_error
from trainwiz.core.language import tr
from trainwiz.core.training.batches import FILLER_TOKENS, IGNORED, FillerRow
from trainwiz.core.training.datasets import TaskParts
from trainwiz.core.training.packed_attention import ROW_ENDS, ROW_LENGTHS, attend_in_rows, scale_in_rows
from trainwiz.core.training.phases import multiplies_in_tf32
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

if TYPE_CHECKING:
    from trainwiz.core.training.trainer import RunTrainer


# Rows end to end: a micro-batch without padding, whose rows see nothing of each other.


class PackedBatch:
    """Lays inputs and labels end to end. Rows that only fill up are left out where there is another."""

    def __call__(self, rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
        """input_ids, labels and position_ids (1, tokens) int64, positions counted from each row's beginning;
        ROW_LENGTHS, a list; ROW_ENDS (rows + 1,) int32. No mask: there is nothing to hide.
        """
        kept = [row for row in rows if not isinstance(row, FillerRow)]
        fills_up = not kept
        inputs, labels = zip(*(kept or rows[:1]), strict=True)
        lengths = [len(tokens) for tokens in inputs]
        batch: dict[str, Any] = {
            "input_ids": torch.from_numpy(np.concatenate(inputs))[None],
            "labels": torch.from_numpy(np.concatenate(labels))[None],
            "position_ids": torch.from_numpy(np.concatenate([np.arange(length) for length in lengths]))[None],
            ROW_LENGTHS: lengths,
            ROW_ENDS: torch.from_numpy(np.cumsum([0, *lengths], dtype=np.int32)),
        }
        return {**batch, FILLER_TOKENS: torch.tensor(lengths[0])} if fills_up else batch


def first_rows(batch: dict[str, Any], count: int) -> dict[str, Any]:
    """A packed batch of the first `count` rows of `batch`."""
    lengths = batch[ROW_LENGTHS][:count]
    tokens = sum(lengths)
    cut = {name: batch[name][:, :tokens] for name in ("input_ids", "labels", "position_ids")}
    return {**batch, **cut, ROW_LENGTHS: lengths, ROW_ENDS: batch[ROW_ENDS][: count + 1]}


def for_attention(batch: dict[str, Any]) -> dict[str, Any]:
    """`batch` with all that attention asks for rows end to end; a padded batch as it is."""
    if ROW_LENGTHS not in batch:
        return batch
    longest = max(batch[ROW_LENGTHS])
    return {**batch, "cu_seq_lens_k": batch[ROW_ENDS], "max_length_q": longest, "max_length_k": longest}


def with_packing(parts: TaskParts) -> TaskParts:
    """`parts` whose training batches are packed. Its model is changed in place, for packed batches alone."""
    attend_in_rows(parts.model)
    scale_in_rows(parts.model)
    return replace(parts, train_collate=PackedBatch())


# PackingCheck: before the first step, rows end to end must give what the same rows give padded.

Row = tuple[np.ndarray, np.ndarray]
"""(tokens, labels), (n,) int64 each."""
LONGEST = (160, 97, 5, 33)
"""Rows of the check are cut at these lengths: more than one block of a kernel together, the shortest between others."""
TOLERANCES = {"fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2, "bf16-true": 5e-2}
"""Largest relative difference of logits and of the loss that another order of adding up explains. Seen on a CPU: 4e-7 in
fp32, 5e-3 in bf16 (ESM-2 tiny)."""
SEPARATE = 1e-6
"""Of the logits of a row while other rows of the same packed batch change: nothing but the same numbers added up again."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Relative differences, 0 for equal."""

    logits: float
    """Packed against padded: the difference's length by the padded logits' own, without the mean over the vocabulary."""
    loss: float
    neighbours: float
    """Packed against packed with other rows in every second place: of the rows that stayed."""

    def problem(self, precision: str) -> str | None:
        """What is wrong, in a sentence; None where all is equal. A number that is none is never equal."""
        tolerance = TOLERANCES[precision]
        if not self.neighbours <= SEPARATE:
            return tr(
                "A row of this model changes when its neighbours do (logits by {share:.1e} of their size): "
                "rows end to end are not separate.",
                share=self.neighbours,
            )
        if not (self.logits <= tolerance and self.loss <= tolerance):
            return tr(
                "Rows end to end do not give what padded rows give: logits differ by {logits:.1e} and the loss by {loss:.1e} "
                "of their size, and {precision} explains {tolerance:.0e}.",
                logits=self.logits,
                loss=self.loss,
                precision=precision,
                tolerance=tolerance,
            )
        return None


class PackingCheck(TrainerCallback):
    """Compares on the run's own model, rows, device and precision, once it is wrapped. Raises UsageError.

    A run that cannot pack ends here rather than going on with padding: that takes another time and
    more memory than its plan said, which is for a person to decide.
    """

    def __init__(self, trainer: RunTrainer, precision: str) -> None:
        self._trainer = trainer
        self._precision = precision

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        found = compared(self._trainer)
        # Of a run in fp32, too, the plan lets a card that can take its products in TF32.
        coarse = self._precision == "fp32" and multiplies_in_tf32(args.device)
        problem = found.problem("tf32" if coarse else self._precision)
        if problem is not None:
            raise refused(problem)
        if state.is_world_process_zero:
            print(
                f"packing: rows end to end equal padded rows (logits {found.logits:.1e}, loss {found.loss:.1e}, "
                f"neighbours {found.neighbours:.1e})",
                flush=True,
            )


def refused(problem: str) -> Exception:
    next_step = tr("Leave packing off: --set data.packing=false.")
    return usage_error("packing_differs", "data.packing", f"{problem} {next_step}")


def compared(trainer: RunTrainer) -> Comparison:
    """On a few real rows, without dropout. Raises UsageError where the model cannot take rows end to end at all."""
    parts = trainer.parts
    rows = _rows(parts.train)
    others = [_like(rows[0], row) if place % 2 else row for place, row in enumerate(rows)]
    stayed = np.concatenate([np.full(len(row[0]), place % 2 == 0) for place, row in enumerate(rows)])
    model: Any = trainer.model
    training = model.training
    model.eval()
    try:
        padded = parts.collate(rows)
        real = padded["attention_mask"].bool()
        expected, labels = _logits(trainer, padded)[real], padded["labels"][real]
        try:
            packed, changed = (_logits(trainer, PackedBatch()(one))[0] for one in (rows, others))
        except (ValueError, TypeError, RuntimeError, NotImplementedError) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            reason = " ".join(str(error).split())[:300].rstrip(".")
            raise refused(tr("This model does not take rows end to end: {reason}.", reason=reason)) from error
    finally:
        model.train(training)
    mask = torch.from_numpy(stayed)
    losses = [float(_loss(logits, labels)) for logits in (expected, packed)]
    return Comparison(
        logits=_apart(packed, expected),
        loss=abs(losses[1] - losses[0]) / max(abs(losses[0]), 1e-12),
        neighbours=_apart(changed[mask], packed[mask]),
    )


def _rows(train: Any) -> list[Row]:
    """The first rows that train, cut to different lengths."""
    count = len(train)
    rows = []
    for place, most in enumerate(LONGEST):
        tokens, labels = train[(0, place % count)]
        rows.append((tokens[:most], labels[:most]))
    return rows


def _like(other: Row, row: Row) -> Row:
    """A row of other tokens, as long as `row`."""
    return np.resize(other[0][::-1], len(row[0])), np.resize(other[1][::-1], len(row[1]))


def _logits(trainer: RunTrainer, batch: dict[str, Any]) -> torch.Tensor:
    """(rows, tokens, vocabulary) float32 on the CPU."""
    inputs = trainer.parts.inputs(for_attention(trainer._prepare_inputs(batch)), trainer.model)
    inputs.pop("labels")
    model: Any = trainer.model
    with torch.no_grad(), trainer.compute_loss_context_manager():
        logits: torch.Tensor = model(**inputs).logits
    return logits.float().cpu()


def _apart(some: torch.Tensor, reference: torch.Tensor) -> float:
    """Both (tokens, vocabulary). The mean over the vocabulary, which no probability depends on, is left out."""
    centred = reference - reference.mean(-1, keepdim=True)
    difference = some - reference
    difference = difference - difference.mean(-1, keepdim=True)
    return float(difference.norm() / centred.norm().clamp(min=1e-12))


def _loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Token mean; over all tokens where the rows of the check have no label."""
    if not bool((labels != IGNORED).any()):
        return logits.logsumexp(-1).mean()
    return cross_entropy(logits, labels, ignore_index=IGNORED)
