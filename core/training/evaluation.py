"""The loss of a step, and when and how held-out rows are measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from trainwiz.core.config import RunConfig
from trainwiz.core.config.values import LossMean
from trainwiz.core.estimate.activations import evaluation_slice
from trainwiz.core.training.batches import IGNORED
from trainwiz.core.training.callbacks import Moment, RunCallback
from trainwiz.core.training.chunked_logits import READER, VocabularyProduct, sliced_loss
from transformers import TrainerState

if TYPE_CHECKING:
    # With pyarrow, which a trace need not load.
    from trainwiz.core.data.labels import Labels

# The loss: a mean over all labelled tokens of one optimizer step, over every process, or of the means of its micro-batches.

Positions = Callable[[torch.Tensor], torch.Tensor]
"""labels of any shape -> (n,) int64, the places in the flattened labels that are labelled."""


def labelled_positions(labels: torch.Tensor) -> torch.Tensor:
    """(n,) int64: the places of the labels that are not -100, in order."""
    return (labels != IGNORED).flatten().nonzero().squeeze(1)


@dataclass(frozen=True, slots=True)
class StepLoss:
    """`compute_loss_func` of the Trainer, and what the model must be called with for it.

        outputs = model(**inputs, **loss.keywords(labels))
        loss(outputs, labels, num_items_in_batch)

    With `chunk` it is computed inside the model's forward pass in slices of that many positions (the model needs
    let_logits_be_read of core.training.chunked_logits first). `positions` is the one step that depends on the values of the
    labels: a trace, whose tensors have none, brings its own.
    """

    smoothing: float
    chunk: int | None
    positions: Positions = labelled_positions
    mean: LossMean = "tokens"
    weights: torch.Tensor | None = None
    """(classes,) float32: how much each counts; the mean is over their number, not over their weights."""

    @classmethod
    def of(cls, config: RunConfig, weights: torch.Tensor | None = None) -> StepLoss:
        """As the run asks for; a file from before there was a choice of the mean has token means."""
        training = config.training
        return cls(training.label_smoothing, training.loss_chunk, mean=training.loss_mean or "tokens", weights=weights)

    def keywords(self, labels: torch.Tensor) -> dict[str, Any]:
        """Keyword arguments of the model beside the batch."""
        return {} if self.chunk is None else {READER: lambda logits: self.summed(logits, labels)}

    def __call__(
        self, outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """Mean over `num_items_in_batch`, the labels of the whole accumulation window over all processes.

        So the gradient does not depend on how a window is cut into micro-batches. Without it, the mean over the labels
        of this micro-batch: the Trainer then divides by the micro-batches of the window.
        """
        total = self.summed(outputs.logits, labels) if self.chunk is None else outputs.loss
        count = num_items_in_batch if num_items_in_batch is not None else (labels != IGNORED).sum()
        # A window of prompts that were cut to nothing but themselves has no label: a loss of 0, not 0 / 0.
        return total / max(count, 1) if isinstance(count, int) else total / count.clamp(min=1)

    def summed(self, logits: torch.Tensor | VocabularyProduct, labels: torch.Tensor) -> torch.Tensor:
        """Summed cross entropy in nats over the labelled positions, in float32, with label smoothing."""
        positions = self.positions(labels)
        targets = labels.flatten()
        if isinstance(logits, VocabularyProduct):
            return sliced_loss(logits, positions, targets[positions], self.smoothing)
        rows = logits.reshape(-1, logits.shape[-1])
        if 2 * len(positions) <= len(rows):
            rows, targets = rows[positions], targets[positions]
        # Most are labelled: a copy of those that are would cost more than the ones that are not.
        weights = None if self.weights is None else self.weights.to(rows.device)
        return cross_entropy(
            rows.float(), targets, weights, reduction="sum", label_smoothing=self.smoothing, ignore_index=IGNORED
        )


# When held-out rows are measured.


def ends_epoch(state: TrainerState) -> bool:
    """Whether the step that was just done is the last of its epoch: the Trainer's epoch is a whole number then."""
    return state.epoch is not None and float(state.epoch).is_integer()


@dataclass(eq=False)
class EvaluationSchedule(RunCallback):
    """Evaluates in place of the Trainer's own rule, which knows steps or epochs but not both: after the last step too.

    Always at the end of a step and before its save, so that the checkpoint holds the score, and
    never twice at one step. It also tells the sampler which epoch begins, in the first run and in a resumed one.
    """

    config: RunConfig
    start_epoch: Callable[[int], None]
    evaluates: bool = False
    """Where rows are held out."""
    with_saves: bool = False
    """At each save too, so that every checkpoint has a score."""

    def epoch_begin(self, now: Moment) -> None:
        self.start_epoch(int(now.state.epoch or 0))

    def step_end(self, now: Moment) -> None:
        now.control.should_evaluate = self.evaluates and self.due(now.state, saves=now.control.should_save)

    def due(self, state: TrainerState, *, saves: bool) -> bool:
        wanted, step = self.config.evaluation, state.global_step
        every = wanted.every_steps or (None if wanted.every_epoch else self.config.checkpoint.every_steps)
        return (
            (every is not None and step % every == 0)
            or (wanted.every_epoch and ends_epoch(state))
            or (self.with_saves and saves)
            or step >= state.max_steps
        )

    def epoch_end(self, now: Moment) -> None:
        now.control.should_evaluate = False


# Loss, accuracy and perplexity of held-out rows.

SUMS = 3


def token_sums(
    logits: torch.Tensor | VocabularyProduct, labels: torch.Tensor, positions: Positions = labelled_positions
) -> torch.Tensor:
    """(3,): summed loss in nats, right tokens, labelled tokens.

    `logits` (rows, length, vocabulary) belong to `labels` (rows, length) at the place that predicts them. Beside `logits` no
    more than one slice exists at a time.
    """
    where = positions(labels)
    targets = labels.flatten()[where]
    if isinstance(logits, VocabularyProduct):
        product, rows = logits, logits.rows()[where]
        return product.read(rows, lambda rows: _sums(rows, product.chunk, product.logits_of, targets))
    flat, step = logits.reshape(-1, logits.shape[-1]), evaluation_slice(logits.shape[-1])
    return _sums(where, step, lambda places: flat[places], targets)


def batch_sums(
    model: Any, inputs: dict[str, Any], labels: torch.Tensor, sums_of: Callable[..., torch.Tensor] = token_sums
) -> torch.Tensor:
    """`sums_of` the logits of one batch and their labels, inside the model's forward pass (see core.training.chunked_logits)."""
    sums: torch.Tensor = model(**inputs, **{READER: lambda logits: sums_of(logits, labels)}).loss
    return sums


def _sums(
    rows: torch.Tensor, step: int, logits_of: Callable[[torch.Tensor], torch.Tensor], targets: torch.Tensor
) -> torch.Tensor:
    """`token_sums` of the logits of `rows`, `step` of them after the other."""
    loss = torch.zeros((), dtype=torch.float32, device=targets.device)
    right = torch.zeros((), dtype=torch.int64, device=targets.device)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        some = logits_of(rows[part])
        loss += cross_entropy(some.float(), targets[part], reduction="none").sum()
        right += (some.argmax(dim=-1) == targets[part]).sum()
    return torch.stack([loss, right, torch.tensor(len(targets), device=targets.device)])


def token_metrics(sums: torch.Tensor, prefix: str) -> dict[str, Any]:
    """Means over all labelled tokens of all processes, from the sums of `token_sums`.

    `loss` is in nats, `perplexity` exp(loss) (Jelinek et al. 1977).
    """
    metrics = means(prefix, *(float(value) for value in sums))
    mean = metrics[f"{prefix}_loss"]
    # No float is larger than exp(709).
    metrics[f"{prefix}_perplexity"] = math.inf if mean >= 700 else math.exp(mean)
    return metrics


def means(prefix: str, loss: float, right: float, count: float) -> dict[str, Any]:
    """Of what is labelled, `count` times."""
    return {
        f"{prefix}_loss": loss / count if count else math.nan,
        f"{prefix}_accuracy": right / count if count else math.nan,
        f"{prefix}_labelled_tokens": int(count),
    }


# What is measured of classes.


def class_weights(labels: Labels, config: RunConfig) -> torch.Tensor | None:
    """(classes,) float32: what is counted, divided by the classes and by what is counted of the class, as scikit-learn's
    "balanced" has it; None where all count alike."""
    if config.training.class_weights == "none":
        return None
    counts = np.array([*labels.train.values()], np.float64)
    # A class without a row has no part in the loss.
    weights = counts.sum() / max(1, np.count_nonzero(counts)) / np.maximum(counts, 1)
    return torch.tensor(weights, dtype=torch.float32)


class Scores:
    """Loss and accuracy; F1 of classes as the mean over them (macro: scikit-learn's), or precision, recall and F1 of whole
    entities, all of them together (seqeval's)."""

    def __init__(self, names: Sequence[str], *, of_entities: bool) -> None:
        self.size = 3 + 3 * (1 if of_entities else len(names))
        self._names = names
        self._of_entities = of_entities

    def sums(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """(size,) float64, to be added up over batches and processes: the loss in nats, how many are right, how many there
        are; of each class, or of entities, how often it is right, predicted and meant.

        `logits` are (rows, classes) or (rows, length, classes), labels as they come in batches.
        """
        where = labels.flatten() != IGNORED
        rows, targets = logits.reshape(-1, logits.shape[-1])[where].float(), labels.flatten()[where]
        predicted = rows.argmax(dim=-1)
        right = predicted == targets
        if self._of_entities:
            counts = self._entities(logits.argmax(dim=-1).tolist(), labels.tolist())
        else:
            # On the CPU, which has numbers of 64 bits everywhere.
            parts = (part.cpu() for part in (targets[right], predicted, targets))
            counts = torch.cat([torch.bincount(part, minlength=len(self._names)) for part in parts])
        whole = torch.stack([cross_entropy(rows, targets, reduction="sum"), right.sum(), where.sum()])
        return torch.cat([whole.cpu().double(), counts.double()])

    def _entities(self, guesses: list[list[int]], labels: list[list[int]]) -> torch.Tensor:
        counts = torch.zeros(3)
        for guessed, meant in zip(guesses, labels, strict=True):
            places = [place for place, label in enumerate(meant) if label != IGNORED]
            found, true = (entities([self._names[tags[place]] for place in places]) for tags in (guessed, meant))
            counts += torch.tensor([len(found & true), len(found), len(true)])
        return counts

    def metrics(self, sums: torch.Tensor, prefix: str) -> dict[str, Any]:
        loss, correct, count, *counts = sums.tolist()
        right, found, meant = np.reshape(counts, (3, -1))
        scores = {f"{prefix}_f1": _mean_share(2 * right, found + meant)}
        if self._of_entities:
            scores |= {f"{prefix}_precision": _mean_share(right, found), f"{prefix}_recall": _mean_share(right, meant)}
        return means(prefix, loss, correct, count) | scores


def _mean_share(part: np.ndarray, whole: np.ndarray) -> float:
    """Of those that there are; 0 where there are none."""
    there = whole > 0
    return float(np.mean(part[there] / whole[there])) if there.any() else 0.0


def scores_of(config: RunConfig, labels: Labels) -> Scores:
    """Entities where all tags are those of entities; else each tag is a class, as parts of speech are."""
    marks_entities = all(name == "O" or name[:2] in OF_ENTITIES for name in labels.names)
    return Scores(labels.names, of_entities=config.task == "token-classification" and marks_entities)


OF_ENTITIES = frozenset({"B-", "I-", "E-", "S-"})
"""Beginning, inside, end, single (IOB1, IOB2, IOE, IOBES)."""


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """(kind, first, last) of each entity of a sentence, by the rules of conlleval, as seqeval has them: one begins with
    another kind, with B and S, and with any tag after E, S or O."""
    found, start, before = set(), 0, ("O", "")
    for place, tag in enumerate([*tags, "O"]):
        mark, _, kind = tag.partition("-")
        goes_on = mark in "IE" and before[0] in "BI" and kind == before[1]
        if before[0] != "O" and not goes_on:
            found.add((before[1], start, place - 1))
        if not goes_on:
            start = place
        before = mark, kind
    return found
