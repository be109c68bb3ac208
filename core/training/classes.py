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
from trainwiz.core.training.tokens import CutTexts, TokenRow
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
    """Words and their tags: the first token of each word has its tag, the others have none (Devlin et al. 2019).

    For a tokenizer that says of which word a token is.
    """

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


# What an evaluation measures.


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
