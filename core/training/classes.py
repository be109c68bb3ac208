"""Classifying: texts and words with their classes as tokens, and accuracy, F1, precision and recall of what is predicted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from trainwiz.core.config import RunConfig
from trainwiz.core.data.labels import Labels, classes_in, label_problems, labels_of
from trainwiz.core.data.texts import TextRows
from trainwiz.core.errors import Finding, UsageError
from trainwiz.core.training.batches import IGNORED
from trainwiz.core.training.evaluation import means
from trainwiz.core.training.tokens import CutTexts, TokenRow, check_words
from transformers import PreTrainedTokenizerBase

# The classes of all rows. A plan may have seen a sample of them.


def labels_of_rows(config: RunConfig, rows: TextRows) -> Labels:
    """Counted apart in the rows that train and in those that are held out. Raises UsageError with what is wrong."""
    targets = rows.targets
    assert targets is not None
    train, held_out = (
        Counter(classes_in((target for batch in targets.batches(part) for target in batch), config.task))
        for part in (rows.train, rows.held_out)
    )
    labels = labels_of(config, train, held_out)
    errors = [
        Finding(code, severity, where, message)
        for code, severity, where, message, _ in label_problems(labels, config)
        if severity == "error" and (labels.problem or not config.forced)
    ]
    if errors:
        raise UsageError(errors)
    shown = ", ".join(f"{number} {name[:40]} ({count:,})" for number, (name, count) in enumerate(labels.train.items()))
    print(f"classes: {shown[:2000]}", flush=True)
    return labels


def class_weights(labels: Labels, config: RunConfig) -> torch.Tensor | None:
    """(classes,) float32: what is counted, divided by the classes and by what is counted of the class, as scikit-learn's
    "balanced" has it; None where all count alike."""
    if config.training.class_weights == "none":
        return None
    counts = np.array([*labels.train.values()], np.float64)
    # A class without a row has no part in the loss.
    weights = counts.sum() / max(1, np.count_nonzero(counts)) / np.maximum(counts, 1)
    return torch.tensor(weights, dtype=torch.float32)


# Rows as tokens.


class ClassEncoder(CutTexts):
    """A text cut to `length` tokens, and the number of its class."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, length: int, labels: Labels) -> None:
        super().__init__(tokenizer, length)
        self._numbers = labels.numbers

    def row(self, text: str, target: str) -> TokenRow:
        """(n,) tokens and one label."""
        return np.array(self.encoded(text)["input_ids"], np.int64), np.array([self._numbers[target]], np.int64)


class TagEncoder(ClassEncoder):
    """Words and their tags: the first token of each word has its tag, the others have none (Devlin et al. 2019)."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, length: int, labels: Labels) -> None:
        """Raises UsageError for a tokenizer that does not say of which word a token is."""
        check_words(tokenizer)
        super().__init__(tokenizer, length, labels)

    def row(self, text: str, target: str) -> TokenRow:
        """(tokens, labels), (n,) both."""
        words, tags = json.loads(text), json.loads(target)
        encoded = self._tokenizer(words, is_split_into_words=True, truncation=True, max_length=self._length)
        tokens = np.array(encoded["input_ids"], np.int64)
        labels = np.full(len(tokens), IGNORED, np.int64)
        for place, (before, word) in enumerate(pairwise([None, *encoded.word_ids()])):
            if word is not None and word != before:
                labels[place] = self._numbers[tags[word]]
        return tokens, labels

    def lengths(self, texts: list[str], targets: list[str] | None) -> list[int]:
        encoded = self._tokenizer([json.loads(text) for text in texts], is_split_into_words=True, verbose=False)
        return [min(len(tokens), self._length) for tokens in encoded["input_ids"]]


# What an evaluation measures: `size` sums over the batches of all processes, and the metrics that follow from them. `logits`
# are (rows, classes) or (rows, length, classes), labels as they come in batches.


def _labelled(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(loss, predictions, labels) of what is labelled: the summed cross entropy in nats, (n,), (n,)."""
    where = labels.flatten() != IGNORED
    rows, targets = logits.reshape(-1, logits.shape[-1])[where].float(), labels.flatten()[where]
    return cross_entropy(rows, targets, reduction="sum"), rows.argmax(dim=-1), targets


class ClassScores:
    """Loss, accuracy, and F1 as the mean over the classes (macro): scikit-learn's f1_score(average="macro")."""

    def __init__(self, classes: int) -> None:
        self.size = 1 + 3 * classes
        self._classes = classes

    def sums(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss, and for each class how often it is right, predicted and meant."""
        loss, predicted, targets = _labelled(logits, labels)
        parts = (targets[predicted == targets], predicted, targets)
        # On the CPU, which has numbers of 64 bits everywhere.
        counts = [torch.bincount(part.cpu(), minlength=self._classes).double() for part in parts]
        return torch.cat([loss.cpu().double()[None], *counts])

    def metrics(self, sums: torch.Tensor, prefix: str) -> dict[str, Any]:
        right, predicted, meant = sums[1:].cpu().numpy().reshape(3, self._classes)
        count, seen = float(meant.sum()), predicted + meant > 0
        f1 = 2 * right[seen] / (predicted + meant)[seen]
        of_classes = {f"{prefix}_f1": float(f1.mean()) if count else float("nan")}
        return means(prefix, float(sums[0]), float(right.sum()), count) | of_classes


class EntityScores:
    """Loss, accuracy of the tags, and precision, recall and F1 of whole entities, all of them together: seqeval's."""

    size = 6

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def sums(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss, right tags, tags; right entities, those that are predicted and those that are meant."""
        loss, predicted, targets = _labelled(logits, labels)
        counts = np.zeros(3)
        guesses = logits.argmax(dim=-1).cpu().numpy()
        for guessed, meant in zip(guesses, labels.cpu().numpy(), strict=True):
            of_row = meant != IGNORED
            found, true = (entities([self._names[tag] for tag in tags[of_row]]) for tags in (guessed, meant))
            counts += len(found & true), len(found), len(true)
        right = (predicted == targets).sum()
        numbers = [float(loss), float(right), float(len(targets)), *counts.tolist()]
        return torch.tensor(numbers, dtype=torch.float64)

    def metrics(self, sums: torch.Tensor, prefix: str) -> dict[str, Any]:
        loss, right, count, found_right, found, meant = sums.tolist()
        precision, recall = (found_right / total if total else 0.0 for total in (found, meant))
        return means(prefix, loss, right, count) | {
            f"{prefix}_precision": precision,
            f"{prefix}_recall": recall,
            f"{prefix}_f1": 2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        }


Scores = ClassScores | EntityScores


def scores_of(config: RunConfig, labels: Labels) -> Scores:
    """Entities where all tags are those of entities; else each tag is a class, as parts of speech are."""
    marks_entities = all(name == "O" or name[:2] in OF_ENTITIES for name in labels.names)
    if config.task == "token-classification" and marks_entities:
        return EntityScores(labels.names)
    return ClassScores(len(labels.names))


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
