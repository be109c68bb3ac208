"""DataSummary: what the data of a run holds; a glance at its first rows."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from trainwiz.core.config import DataSource, RunConfig
from trainwiz.core.config.values import CLASSIFIES, RowKind
from trainwiz.core.data.chats import contents_of, messages_of
from trainwiz.core.data.columns import find_layout
from trainwiz.core.data.formats import open_reader
from trainwiz.core.data.labels import Labels, classes_in, labels_of, words_of
from trainwiz.core.data.lengths import (
    ESTIMATED,
    EXACT,
    TokenCounter,
    bytes_in,
    held_out_count,
    joins_texts,
    split_rows,
    trains_on_chats,
)
from trainwiz.core.data.reader import Column, RowBatch
from trainwiz.core.data.rows import SourceTally, has_target, read_rows
from trainwiz.core.data.sources import all_sources, find_files, target_findings
from trainwiz.core.data.text_store import SPECIAL_TOKENS
from trainwiz.core.errors import Finding, TrainwizError, UsageError, sort_findings
from trainwiz.core.files import at_home
from trainwiz.core.language import mark

# DataSummary: what a data source holds, as far as planning needs to know.


@dataclass(frozen=True, slots=True)
class DataSummary:
    """Rows and lengths of the training data."""

    rows: int
    """Rows that training would use, after filters; exact where cheap, else estimated. Joined texts count as sequences."""
    rows_exact: bool
    lengths: tuple[int, ...]
    """Unclipped lengths in tokens (special tokens included) of a sample of rows."""
    length_unit: str = "tokens"
    """ "tokens" when counted (letters, or the model's tokenizer), "tokens (estimated)" when guessed from bytes."""
    target_lengths: tuple[int, ...] = ()
    """Likewise of the targets of seq2seq rows."""
    bytes_on_disk: int = 0
    bytes_in_memory: int = 0
    bytes_streamed: int = 0
    """Written beside the run where rows are read while training: their copy, and the tokens of joined texts."""
    columns: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    validation_rows: int = 0
    """Rows of evaluation: held out of the training data (and not counted in `rows`), or of their own sources."""
    texts: int = 0
    """Rows of the training sources before texts are joined, held-out ones included: what data.validation_rows is a share of."""
    left_out: float = 0.0
    """Share of the rows that are longer than the longest input and left out (data.too_long)."""
    labels: Labels | None = None
    """The classes of rows that are classified."""
    chats: Any = None
    """A ChatLook (core/tracing/chats.py) where rows are chats and somebody looked."""


# summarize_data: what the data of a run holds, from footers and a sample of rows.

SAMPLE_ROWS = 20_000
TOKENIZED_ROWS = 2_000
"""Of a source too large to be read whole: cutting texts into tokens is what takes the time."""
TOKENS_OF_A_TURN = 5
"""About what a template adds: marks of its beginning and end, and who speaks."""
BYTES_PER_ROW = 8
"""Offset kept for each row beside its letters."""
TOKEN_BYTES = 4
"""Of texts that are joined: their tokens are written once."""


@dataclass(slots=True)
class _Source:
    tally: SourceTally = field(default_factory=SourceTally)
    lengths: list[np.ndarray] = field(default_factory=list)
    target_lengths: list[np.ndarray] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    """Of rows that are classified."""
    text_bytes: int = 0
    """UTF-8 bytes of the rows that were read, both sides."""

    def mean_bytes(self) -> float:
        """Bytes in memory of one row."""
        sides = 2 if self.target_lengths else 1
        return self.text_bytes / max(sum(map(len, self.lengths)), 1) + sides * BYTES_PER_ROW


Looks = Callable[[RunConfig, Path], Any]
"""What looks at chats as the model will read them: core/tracing/chats.py."""


def summarize_data(config: RunConfig, look: Looks | None = None) -> DataSummary:
    """Rows, lengths and columns of the training data; relative paths are from here.

    Lengths are unclipped, in tokens: exact for proteins and where the model's tokenizer is here,
    else estimated from bytes. A row of a causal model is its prompt and response together. Where
    texts are joined, a row is one sequence of full length. Raises UsageError with all that is wrong
    with any source, and with the warning `data_to_download` alone where all that is missing can be
    downloaded.
    """
    folder, findings = Path.cwd(), target_findings(config)
    counter = None if config.row_kind == "proteins" else TokenCounter(config, folder)
    train, held = (
        [_read(source, key, config, folder, findings, counter) for key, source in sources]
        for sources in all_sources(config)
    )
    if any(finding.severity == "error" or finding.code == "data_to_download" for finding in findings):
        raise UsageError(sort_findings(findings))
    looked = look(config, folder) if look is not None else None
    counted = [source.lengths for source in train]
    # What a template adds is not known without one.
    unit = EXACT if counter is None else ESTIMATED if trains_on_chats(config) else counter.unit
    if looked is not None and not looked.problem:
        unit, counted = EXACT, [[np.array(lengths, np.int64)] for lengths in looked.lengths]
    every = [source.tally.rows for source in train]
    texts = sum(every)
    held_texts = sum(source.tally.rows for source in held) or held_out_count(texts, config.data)
    rows, validation_rows = texts if held else texts - held_texts, held_texts
    lengths, length = _mixed(every, counted), config.batch.sequence_length
    joined = joins_texts(config)
    too_long = 0.0
    if joined:
        mean = float(lengths.mean()) if len(lengths) else 0.0
        rows, validation_rows = (int(count * mean) // length for count in (rows, validation_rows))
        rows = max(rows, 1)
        lengths = np.full(min(rows, SAMPLE_ROWS), length, np.int64)
    elif config.task == "causal-lm" and config.data.too_long == "drop":
        short = lengths <= length
        share = float(short.mean()) if len(lengths) else 1.0
        rows, validation_rows = (math.ceil(count * share) for count in (rows, validation_rows))
        lengths, too_long = lengths[short], 1 - share
    in_memory = int(sum(source.tally.rows * source.mean_bytes() for source in (*train, *held)))
    return DataSummary(
        rows=rows,
        rows_exact=not joined and all(source.tally.exact for source in train),
        validation_rows=max(validation_rows, min(held_texts, 1)),
        texts=texts,
        lengths=tuple(lengths.tolist()),
        length_unit=unit,
        target_lengths=tuple(_mixed(every, [source.target_lengths for source in train]).tolist()),
        bytes_on_disk=sum(source.tally.bytes_on_disk for source in train),
        bytes_in_memory=in_memory,
        bytes_streamed=in_memory + joined * (rows + validation_rows) * length * TOKEN_BYTES,
        columns=train[0].tally.columns,
        findings=sort_findings(findings),
        labels=_labels(config, train, held, held_texts) if config.task in CLASSIFIES else None,
        chats=looked,
        left_out=too_long,
    )


def _labels(config: RunConfig, train: Sequence[_Source], held: Sequence[_Source], held_out: int) -> Labels:
    """Where all rows were read, those that the training holds out (core/data/texts.py) are counted apart."""
    exact = all(source.tally.exact and not source.tally.sampled for source in (*train, *held))
    of_training, apart = ([target for source in part for target in source.targets] for part in (train, held))
    if exact and held_out and not held:
        numbers = split_rows(len(of_training), held_out, config.training.seed)
        of_training, apart = ([of_training[number] for number in part] for part in numbers)
    counts, counts_apart = (Counter(classes_in(part, config.task)) for part in (of_training, apart))
    known = exact or held or not held_out
    return labels_of(config, counts, counts_apart if known else None, exact=exact)


def _read(
    source: DataSource, key: str, config: RunConfig, folder: Path, findings: list[Finding], counter: TokenCounter | None
) -> _Source:
    result = _Source()
    try:
        files = find_files(source, key, folder, task=config.row_kind)
    except UsageError as error:
        findings.extend(error.findings)
        return result
    limit = TOKENIZED_ROWS if counter is not None and counter.tokenizes else SAMPLE_ROWS
    for rows in read_rows(files, result.tally, config.row_kind, limit=limit):
        if counter is None:
            lengths = pc.binary_length(rows.texts).to_numpy(zero_copy_only=False).astype(np.int64) + SPECIAL_TOKENS
            result.lengths.append(lengths)
            # Proteins in memory are cut to the sequence length, texts are kept whole.
            result.text_bytes += int(np.minimum(lengths, config.batch.sequence_length).sum())
        else:
            _count_tokens(rows, config, counter, result, is_chat=source.layout == "chat")
    findings.extend(result.tally.findings)
    return result


def _count_tokens(rows: RowBatch, config: RunConfig, counter: TokenCounter, result: _Source, *, is_chat: bool) -> None:
    sampled, task = result.tally.sampled, config.task
    result.text_bytes += sum(map(bytes_in, rows.sides))
    texts, more = rows.texts, np.zeros(len(rows.texts), np.int64)
    if is_chat:
        chats = texts.to_pylist()
        texts = pa.array(map(contents_of, chats), pa.large_string())
        more = TOKENS_OF_A_TURN * np.array([len(messages_of(chat)[0]) for chat in chats], np.int64)
    elif task == "token-classification":
        texts = pa.array(map(words_of, texts.to_pylist()), pa.large_string())
    lengths = counter.count(texts, sampled=sampled) + more
    if rows.targets is not None and task in CLASSIFIES:
        result.targets += rows.targets.to_pylist()
    elif rows.targets is not None:
        targets = counter.count(rows.targets, special=task == "seq2seq", sampled=sampled)
        if task == "seq2seq":
            result.target_lengths.append(targets)
        else:
            lengths = lengths + targets
    if task == "causal-lm" and counter.unit == EXACT:
        # The end of the text, which tokenizers of causal models leave out.
        lengths = lengths + 1
    result.lengths.append(lengths)


def _mixed(rows: Sequence[int], lengths: Sequence[list[np.ndarray]]) -> np.ndarray:
    """Lengths of several sources, each in proportion to its rows. (n,) int64, n <= SAMPLE_ROWS."""
    parts = [(count, np.concatenate(batches)) for count, batches in zip(rows, lengths, strict=True) if batches]
    total = sum(count for count, _ in parts)
    share = min([1.0, SAMPLE_ROWS / max(total, 1), *(len(part) / max(count, 1) for count, part in parts)])
    taken = [np.empty(0, np.int64)]
    for count, part in parts:
        most = min(len(part), max(1, round(count * share)))
        taken.append(part[np.linspace(0, len(part) - 1, most).round().astype(np.int64)])
    return np.concatenate(taken)


# A glance at a data source: its columns and first rows as the file has them, also where the rows cannot be used yet.

GLANCE_ROWS = 8
LONGEST_CELL = 2_000
"""Characters of a cell; more are on no screen."""
CHAT, ANSWER = mark("chat"), mark("answer")
NAME_LIKE = re.compile(r"[^\W\d][\w ./()-]{0,38}[\w)]|[^\W\d]")
"""A name that can be typed, and that no reader takes for the first row of a file without a header."""


@dataclass(frozen=True, slots=True)
class Glance:
    """What stands at the beginning of the first file of the first source."""

    path: Path
    """The file that was looked into."""
    files: int
    """How many files the source has."""
    columns: tuple[Column, ...]
    rows: tuple[tuple[str | None, ...], ...]
    """One cell for each column, as text; None where the file has no value, "" where it has an empty text."""
    text: int | None = None
    """Position of the column that is learnt from; None where nobody has said and no name tells."""
    target: int | None = None
    """Position of the column to answer with; None where rows have none, or it is not known."""
    has_target: bool = False
    """Whether the rows are to have a target."""
    kind: RowKind = "causal-lm"
    parts: Mapping[int, str] = field(default_factory=dict)
    """Of chats: position of a column -> what it holds of them ("chat", "answer", "context", "system")."""

    def can_take(self, position: int, *, target: bool = False) -> bool:
        """Whether the column can be learnt from, or as `target` be answered with."""
        if target and self.kind == "sequence-classification":
            return self.columns[position].may_hold("classes")
        return self.columns[position].may_hold("lists" if self.kind == "token-classification" else "texts")

    def setting_of(self, position: int) -> str:
        """How text_column or target_column names a column: by its name, by its position where the name may mean another."""
        name = self.columns[position].name
        names = [column.name for column in self.columns]
        return name if names.count(name) == 1 and NAME_LIKE.fullmatch(name) else str(position)


def glance_at(config: RunConfig) -> Glance | None:
    """The beginning of the first training source; relative paths are from here.

    Asks nothing of the hub and raises nothing: None where no file is here or none of it can be read, which
    `summarize_data` explains.
    """
    if not config.data.sources:
        return None
    key, source = all_sources(config)[0][0]
    try:
        found = find_files(source, key, Path.cwd(), task=config.row_kind, ask=False)
        path = found.files[0]
        reader = open_reader(path, found.source)
        first = reader.first_rows(GLANCE_ROWS)
    except (TrainwizError, OSError, IndexError):
        return None
    rows = tuple(tuple(cell and cell[:LONGEST_CELL] for cell in row) for row in first)
    text, target, parts = _mapped(reader.columns, source, config.row_kind)
    kind = config.row_kind
    return Glance(path, len(found.files), reader.columns, rows, text, target, has_target(source, kind), kind, parts)


def stamp_of(config: RunConfig, folder: Path | None = None) -> str:
    """What changes when somebody writes to a source: size and time of its file, or of its folder."""
    stamps = []
    for _, source in (*all_sources(config)[0], *all_sources(config)[1]):
        try:
            state = ((folder or Path.cwd()) / at_home(Path(source.name))).stat()
            stamps.append(f"{state.st_size} {state.st_mtime_ns}")
        except (OSError, RuntimeError, ValueError):
            stamps.append("-")
    return ", ".join(stamps)


def _mapped(
    columns: Sequence[Column], source: DataSource, task: RowKind
) -> tuple[int | None, int | None, dict[int, str]]:
    """Positions of the text and the target column where they can be found, and what each column holds of a chat."""
    try:
        layout = find_layout(columns, source, "", "", task, has_target(source, task))
    except TrainwizError:
        # What is named is shown, whether or not it can be learnt.
        names = [column.name for column in columns]
        places = {**{str(number): number for number in range(len(names))}, **{n: names.index(n) for n in names}}
        target = source.target_column if has_target(source, task) else None
        return places.get(str(source.text_column)), places.get(str(target)), {}
    found, chat = layout.wanted, layout.chat
    parts: dict[int, str] = {}
    if chat is not None:
        parts = {found[place]: part for part, place in chat.parts.items()}
        parts |= {found[0]: CHAT} | ({found[1]: ANSWER} if chat.has_answer else {})
    answered = has_target(source, task) if chat is None else chat.has_answer
    return found[0], found[1] if answered else None, parts
