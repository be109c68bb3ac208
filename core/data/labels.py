"""Classes: the words of a row with their tags, what the data holds of each class, and how a model numbers them."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.data.reader import listed
from trainwiz.core.errors import Severity
from trainwiz.core.language import tr

LABELLED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "sequence-classification": (
        ("text", "content", "document", "story", "sentence", "review", "comment", "sequence", "prompt", "question"),
        ("label", "labels", "class", "category", "sentiment", "intent", "topic", "emotion", "target", "stars", "rating"),
    ),
    "token-classification": (("tokens", "words", "text"), ("ner_tags", "tags", "labels", "ner", "pos_tags", "label")),
}  # fmt: skip
"""Task -> names of the columns with texts or words, and with their classes."""

# Words with their tags: two lists, kept as JSON. Files hold them as lists, as lists written as text, or as words with
# blanks between them.


def tagged_words(cells: Sequence[str | None]) -> tuple[str | None, ...]:
    """(words, tags) of a row -> the same as JSON lists of texts, of one length; None without words. Raises ValueError."""
    words, tags = map(_listed, cells)
    if len(words) != len(tags):
        raise ValueError(tr("the row has {words} words and {tags} tags.", words=len(words), tags=len(tags)))
    return tuple(json.dumps(items, ensure_ascii=False) if items else None for items in (words, tags))


def words_of(row: str) -> str:
    """The text of a row of words."""
    return " ".join(json.loads(row))


def _listed(cell: str | None) -> list[str]:
    text = (cell or "").strip()
    if not text.startswith("["):
        return text.split()
    try:
        items = json.loads(text)
    except ValueError:
        try:
            # As pandas writes lists into a CSV file.
            items = ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            items = None
    if not isinstance(items, list) or not all(isinstance(item, str | int) for item in items):
        raise ValueError(tr("{text} is not a list of words or tags.", text=repr(text[:40])))
    return [str(item) for item in items]


# The classes of a run, in the order of their numbers in the model.

Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Labels:
    """How often each class comes; of token-classification words are counted, else rows."""

    train: Counts
    """In the order of the model's numbers."""
    held_out: Counts | None = None
    """None where it is not known which rows are held out."""
    exact: bool = True
    """All rows were counted, not a sample of them."""
    note: str = ""
    """How the data's classes are those of the model, where it writes its numbers."""
    problem: str = ""
    """Why the classes cannot be those of the model."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.train)

    @property
    def numbers(self) -> dict[str, int]:
        """Class as the data writes it -> its number."""
        return {str(number) if self.note else name: number for number, name in enumerate(self.train)}

    @property
    def head(self) -> dict[str, Any]:
        """Keys of the model's config."""
        return {"id2label": dict(enumerate(self.names)), "label2id": {name: n for n, name in enumerate(self.names)}}

    def to_json(self) -> dict[str, Any]:
        held_out = None if self.held_out is None else dict(self.held_out)
        return {"counts": dict(self.train), "held_out": held_out, "exact": self.exact}


def classes_in(targets: Iterable[str], task: str) -> Iterator[str]:
    """The class of each row, or of each word of each row."""
    for target in targets:
        if task == "token-classification":
            yield from json.loads(target)
        else:
            yield target


def labels_of(config: RunConfig, train: Counter[str], held_out: Counter[str] | None, *, exact: bool = True) -> Labels:
    """The classes of the data with their numbers: sorted, or as the model has them that was trained for them before.

    Classes named by the model's own numbers (0, 1, ...) are those of the model.
    """
    found = {*train, *(held_out or ())}
    own, note, problem = _own_classes(config), "", ""
    numbers = {name: str(number) for number, name in enumerate(own)}
    written = {name: name for name in _sorted(found)}
    if own and found <= set(own):
        written = {name: name for name in own}
    elif own and found <= set(numbers.values()):
        written = numbers
        pairs = listed([f"{number} = {name}" for name, number in numbers.items()])
        note = tr("The labels are interpreted as the model's class indices: {pairs}.", pairs=pairs)
    elif own:
        problem = tr(
            "{model} was trained on different classes ({own}) than the data has ({found}).",
            model=config.model.name, own=shown_names(own), found=shown_names([*written]),
        )  # fmt: skip
    apart = held_out and {name: held_out[key] for name, key in written.items()}
    return Labels({name: train[key] for name, key in written.items()}, apart, exact, note, problem)


def _sorted(names: Iterable[str]) -> Sequence[str]:
    """Numbers by their size, other names by their letters."""
    every = list(names)
    return sorted(every, key=int if all(name.isdecimal() for name in every) else None)


def _own_classes(config: RunConfig) -> tuple[str, ...]:
    """The classes that the model was trained for already; none for a model without a head of the task."""
    values = {**(config.model.architecture or {}), **config.model.architecture_overrides}
    kind = "ForSequenceClassification" if config.task == "sequence-classification" else "ForTokenClassification"
    has_head = any(kind in str(one) for one in values.get("architectures") or ())
    named = values.get("id2label")
    if config.model.init != "pretrained" or config.model.new_head or not has_head or not isinstance(named, dict):
        return ()
    try:
        numbered = sorted((int(number), str(name)) for number, name in named.items())
    except (TypeError, ValueError):
        return ()
    often = Counter(name for _, name in numbered)
    # Which of two classes with one name is meant, only a number can say.
    return tuple(name if often[name] == 1 else f"{name} ({number})" for number, name in numbered)


# What is wrong with the classes of a run.

FEW_VALUES, MANY_VALUES = 20, 0.5
"""More different labels than so many, and than this share of the rows: hardly classes."""
IMBALANCE = 10
"""Times as many rows of one class as of another."""
TARGET, WEIGHTS = "data.sources.0.target_column", "training.class_weights"
Problem = tuple[str, Severity, str, str, tuple[tuple[str, dict[str, Any]], ...]]
"""Code, severity, key, sentence, and ways out: (words, changes)."""


def label_problems(labels: Labels, config: RunConfig) -> Iterator[Problem]:
    """Errors first. Nothing is said of the balance of tags: most words are none of what is looked for."""
    held_out = labels.held_out or {}
    counts = {name: count + held_out.get(name, 0) for name, count in labels.train.items()}
    counts = {name: count for name, count in counts.items() if count}
    if labels.problem:
        fresh = tr("start with a new head"), {"model.new_head": True}
        yield "other_classes", "error", TARGET, labels.problem, (fresh,)
    if labels.note:
        yield "classes_by_number", "warning", TARGET, labels.note, ()
    if len(counts) == 1:
        message = tr("All labels are {name}: there is only one class.", name=shown_names([*counts]))
        yield "one_class", "error", TARGET, message, ()
        return
    rows = sum(counts.values())
    if len(counts) > FEW_VALUES and (len(counts) > MANY_VALUES * rows or _are_quantities(counts)):
        message = tr(
            "The label column has {values} different values in {rows} rows ({names}): IDs, quantities or free text, not "
                "classes. Choose another column.",
            values=f"{len(counts):,}", rows=f"{rows:,}", names=shown_names([*counts]),
        )  # fmt: skip
        yield "labels_are_ids", "error", TARGET, message, ()
        return
    unseen = [name for name in counts if not labels.train[name]]
    if unseen:
        message = tr(
            "No training row has {names}: the model cannot learn these classes of the held-out rows.",
            names=shown_names(unseen),
        )
        yield "class_not_trained", "warning", "data.validation_rows", message, ()
    most, least = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    if config.task == "sequence-classification" and counts[most] >= IMBALANCE * counts[least]:
        message = tr(
            "The classes are imbalanced: {most_rows} rows of {most}, {least_rows} of {least}. Accuracy means little "
                "here; use eval_f1.",
            most_rows=f"{counts[most]:,}", most=shown_names([most]),
            least_rows=f"{counts[least]:,}", least=shown_names([least]),
        )  # fmt: skip
        balanced = tr("weight rare classes more in the loss"), {WEIGHTS: "balanced"}
        severity: Severity = "warning" if config.training.class_weights == "none" else "note"
        yield "unbalanced_classes", severity, WEIGHTS, message, (balanced,)


def _are_quantities(names: Iterable[str]) -> bool:
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return False
    return any(number % 1 for number in numbers)


def shown_names(names: Sequence[str]) -> str:
    return listed([repr(name[:40]) for name in names])


def shown_counts(labels: Labels) -> str:
    """The classes with their counts on one line, the most frequent first: `positive 1,020, negative 980`."""
    ranked = sorted(labels.train.items(), key=lambda entry: -entry[1])
    shown = listed([f"{name[:40]} {count:,}" for name, count in ranked])
    return shown if labels.exact else tr("from a sample: {classes}", classes=shown)
