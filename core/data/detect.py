"""Columns that nobody named, found by the names and first rows of a file, so that the plan shows them and run.yaml keeps them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from trainwiz.core.catalog.hub import ask_for_piece, ask_hub
from trainwiz.core.config import DataSource, RunConfig
from trainwiz.core.config.values import HAVE_TARGETS, Task
from trainwiz.core.data.chats import is_list_of_turns
from trainwiz.core.data.columns import (
    CHAT_NAMES,
    LIST_PARTS,
    NO_CONTENT,
    SEQUENCE_NAMES,
    TEXT_NAMES,
    chat_columns,
    find_layout,
    pair_of,
)
from trainwiz.core.data.formats import format_of, open_reader
from trainwiz.core.data.labels import LABELLED
from trainwiz.core.data.reader import Column
from trainwiz.core.data.sources import SplitError, find_files, is_of_the_hub, split_files
from trainwiz.core.data.text_store import LETTERS
from trainwiz.core.errors import TrainwizError
from trainwiz.core.language import mark, tr

LOOKED_AT = 32
"""First rows of a file that say whether texts are lists of turns written as JSON."""


@dataclass(frozen=True, slots=True)
class _Look:
    """The beginning of the first file of a source, here or on the hub."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str | None]] | None
    """None where only the columns are known."""
    why: str = ""
    """Said behind a reason: where it is from, if not from here."""

    def cells(self, name: str) -> list[str]:
        """What the looked-at rows hold in a column; not the empty cells."""
        place = [column.name for column in self.columns].index(name)
        return [cell for row in self.rows or () if (cell := row[place]) and cell.strip()]

    def with_written_lists(self) -> Sequence[Column]:
        """The columns, those as lists that hold lists written as text (chats in a CSV file).

        By the names that chats have, and any cell that begins as a list: one that is none is then named when it is read,
        rather than learnt as text. Where no row is known such a name is enough.
        """

        def is_written(column: Column) -> bool:
            if not column.is_text or column.name.lower() not in {*CHAT_NAMES, *LIST_PARTS}:
                return False
            if self.rows is None:
                return column.name.lower() in CHAT_NAMES
            return any(cell.lstrip().startswith(("[{", "[[")) for cell in self.cells(column.name))

        return [replace(column, is_list=True) if is_written(column) else column for column in self.columns]

    def are_turns(self, *names: str) -> bool:
        """Whether all looked-at cells of these columns are lists of turns as JSON."""
        cells = [cell for name in names for cell in self.cells(name)]
        return bool(cells) and all(map(is_list_of_turns, cells))


def detect_columns(config: RunConfig, has_template: Callable[[], bool] = lambda: False) -> RunConfig:
    """A copy with the columns and the layout of each source filled in where the file leaves no doubt.

    A causal-lm source with a prompt and a response column learns the responses: as a chat in the template of the
    model where it `has_template`. Of a data set of the hub that is not here its columns are asked for.
    What cannot be read or decided stays open: summarize_data has the sentence for it. Relative paths are from here.
    """
    if config.row_kind == "proteins":
        return config
    values: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for part in ("sources", "validation_sources"):
        for number, source in enumerate(getattr(config.data, part)):
            key = f"data.{part}.{number}"
            found = _detected(config, source, key, has_template)
            for column, (name, reason) in found.items():
                values[f"{key}.{column}"], reasons[f"{key}.{column}"] = name, reason
    return config.with_values(values, "detected", reasons) if values else config


def _detected(
    config: RunConfig, source: DataSource, key: str, has_template: Callable[[], bool]
) -> dict[str, tuple[Any, str]]:
    """Key of a source -> (value, reason) of what is open and without doubt."""
    named, is_causal = source.text_column is not None, config.task == "causal-lm"
    as_text = source.layout == "chat" and source.target_column is not None and source.json_turns is None
    is_settled = not is_causal or (source.layout is not None and not as_text)
    if named and is_settled and (source.target_column is not None or config.task in ("causal-lm", "masked-lm")):
        return {}
    try:
        look = _look(source, key)
        if look is None:
            return {}
        values, why = _as_chats(look, source, has_template) if is_causal and source.layout != "plain" else ({}, "")
        if not values:
            if len(look.columns) < 2 or (named and is_causal):
                return {}
            has_pair = not named and pair_of(look.columns) is not None
            has_target = config.task in HAVE_TARGETS or source.target_column is not None or has_pair
            has_target = has_target and config.task != "masked-lm"
            wanted = find_layout(look.columns, source, look.name, key, config.row_kind, has_target).wanted
            values = dict(zip(("text_column", "target_column"), (look.columns[i].name for i in wanted), strict=False))
    except TrainwizError:
        return {}
    used = [values.get("text_column"), values.get("target_column"), *values.get("chat_columns", {}).values()]
    left = ", ".join(column.name for column in look.columns if column.name not in used)
    words = mark("detected in {file}; not used: {columns}") if left else mark("detected in {file}")
    by_name = tr(words, file=look.name, columns=left)
    return {
        name: (value, (why if name in ("layout", "json_turns") else by_name) + look.why)
        for name, value in values.items()
        if value and getattr(source, name) in (None, {})
    }


def _as_chats(look: _Look, source: DataSource, has_template: Callable[[], bool]) -> tuple[dict[str, Any], str]:
    """(settings that make the rows of a source chats, why they are); no settings where they are none."""
    columns = look.with_written_lists()
    lists = {column.name for column in columns if column.is_list}
    text, target = source.text_column, source.target_column
    found = None
    if text is None and target is None:
        found = chat_columns(columns)
    elif text is not None and (target is not None or text in lists):
        # Of a source whose columns are named: these, and what else belongs to the chat.
        others = chat_columns(columns, instructions=False) if text in lists else None
        found = text, target, source.chat_columns or (others[2] if others is not None else {})
    if found is None:
        return {}, ""
    text, target, parts = found
    is_pair = target is not None and not lists & {text, target}
    as_json = is_pair and source.json_turns is not False and look.are_turns(str(text), str(target))
    sides = {"text": repr(text), "target": repr(target)}
    if as_json:
        parts = {name: column for name, column in parts.items() if name in ("system", "tools")}
        why = tr("{text} and {target} are lists of turns in JSON", **sides)
    elif text in lists:
        why = tr("{column} is a list of chat turns", column=repr(text))
    elif parts:
        why = tr("an instruction with additional columns: {columns}", columns=", ".join(map(repr, parts.values())))
    elif source.layout == "chat" or has_template():
        words = mark("the model has a chat template: {text} becomes the user turn, {target} the assistant turn")
        why = tr(words, **sides)
    else:
        return {}, ""
    values = {"layout": "chat", "text_column": text, "target_column": target, "chat_columns": parts}
    return {**values, "json_turns": as_json}, why


def _look(source: DataSource, key: str) -> _Look | None:
    try:
        files = find_files(source, key, Path.cwd(), ask=False)
    except TrainwizError:
        return _look_at_the_hub(source) if is_of_the_hub(source.name, Path.cwd()) else None
    path = files.files[0]
    reader = open_reader(path, files.source)
    return _Look(path.name, reader.columns, reader.first_rows(LOOKED_AT))


# The columns of a data set of the hub that is not here: by the beginning or the end of its first file.

PIECE_BYTES = 256 << 10
END_BYTES = 1 << 20
"""A parquet file's columns stand behind what it tells of all its row groups."""


def _look_at_the_hub(source: DataSource) -> _Look | None:
    """At most two questions of three seconds, which are remembered for a minute; none when HF_HUB_OFFLINE is set."""
    answer = ask_hub(source.name, "datasets")
    if answer.state != "there" or answer.closed:
        return None
    try:
        name = split_files(source, list(answer.sizes), answer.card)[0]
    except SplitError:
        return None
    kind = source.format or format_of(Path(name))
    at_the_end = kind == "parquet"
    piece, is_whole = ask_for_piece(
        f"/datasets/{source.name}/resolve/main/{name}", END_BYTES if at_the_end else PIECE_BYTES, at_the_end=at_the_end
    )
    if kind in ("jsonl", "csv", "tsv") and not name.endswith(".gz") and not is_whole:
        # The last line is not whole.
        piece = piece[: piece.rfind(b"\n") + 1]
    with tempfile.TemporaryDirectory() as folder, suppress(TrainwizError):
        path = Path(folder) / Path(name).name
        path.write_bytes(piece)
        reader = open_reader(path, source)
        # The end of a parquet file holds no rows.
        rows = reader.first_rows(LOOKED_AT) if is_whole or not at_the_end else None
        return _Look(path.name, reader.columns, rows, tr("; according to the Hub, not downloaded yet"))
    return None


# What rows are for, where nobody named a task: told by the columns, and only where they leave no doubt.

RowsKind = Literal["chats", "texts", "pairs", "classes", "tags", "proteins"]
TASK_OF: dict[RowsKind, Task] = {
    "chats": "causal-lm", "texts": "causal-lm", "pairs": "seq2seq", "classes": "sequence-classification",
    "tags": "token-classification", "proteins": "masked-lm",
}  # fmt: skip
PAIRS: dict[RowsKind, tuple[set[str], set[str]]] = {
    "chats": ({"prompt", "instruction", "question", "query"}, {"response", "completion", "answer", "reply"}),
    "pairs": ({"source", "src"}, {"target", "tgt", "translation"}),
}
SURE_LABELS = {"label", "labels", "class", "sentiment", "intent", "emotion"}
"""Names that a class has and nothing else; "category" or "topic" beside a text often only say where it is from."""


@dataclass(frozen=True, slots=True)
class RowsTold:
    """What rows are, and the columns that say so. `kind` is None where they leave a doubt."""

    kind: RowsKind | None
    why: str
    columns: tuple[str, ...] = ()


def what_rows_are(source: DataSource) -> RowsTold:
    """By the names and the first rows of the first file. Raises UsageError where the data cannot be found or read."""
    look = _look(source, "data.sources.0")
    if look is None:
        # Of the hub and out of reach; any other reason is said by who looks for the files.
        find_files(source, "data.sources.0", Path.cwd(), ask=False)
        return RowsTold(None, tr("its columns cannot be read from this machine"))
    kind, columns = _kind_of(look, source)
    names = tuple(column.name for column in look.columns)
    if kind is None:
        return RowsTold(None, "", names)
    return RowsTold(kind, tr("from {columns} of {file}", columns=", ".join(map(repr, columns)), file=look.name), names)


def _kind_of(look: _Look, source: DataSource) -> tuple[RowsKind | None, list[str]]:
    """(kind, columns that say so)"""
    columns = look.with_written_lists()
    lower = {column.name.lower(): column for column in reversed(columns)}
    texts = {column.name.lower(): column.name for column in columns if column.is_text}

    def first(names: Iterable[str], among: Iterable[str] = lower) -> str | None:
        return next((lower[name].name for name in names if name in among), None)

    chat = None if source.layout == "plain" else chat_columns(columns, instructions=False)
    if chat is not None:
        return "chats", [str(chat[0])]
    words, tags = map(first, LABELLED["token-classification"])
    if words and tags and (lower[words.lower()].is_list or words.lower() in {"tokens", "words"}):
        return "tags", [words, tags]
    pair = pair_of(columns)
    if pair is not None:
        for kind, sides in PAIRS.items():
            if all(name.lower() in side for name, side in zip(pair, sides, strict=True)):
                return kind, list(pair)
        return None, []
    if [column.name.rpartition(".")[0] for column in columns] == ["translation"] * 2:
        return "pairs", [column.name for column in columns]
    label = first(name for name, column in lower.items() if name in SURE_LABELS and not column.is_list)
    labelled = first((*TEXT_NAMES, *LABELLED["sequence-classification"][0]), texts)
    if label and labelled:
        return "classes", [labelled, label]
    if "sequence" in lower and _are_proteins(look.cells(lower["sequence"].name)):
        return "proteins", [lower["sequence"].name]
    plain = [name for name in texts if name in {*TEXT_NAMES, *SEQUENCE_NAMES}]
    # A text beside other texts may be one side of something; alone, or with what only says whose it is, it is the text.
    alone = texts.keys() <= {*TEXT_NAMES, *SEQUENCE_NAMES, *NO_CONTENT} and not any(
        column.is_list for column in columns
    )
    return ("texts", [texts[plain[0]]]) if plain and alone else (None, [])


def _are_proteins(cells: Sequence[str]) -> bool:
    return bool(cells) and all(set(cell) <= {*LETTERS, "J"} for cell in cells)
