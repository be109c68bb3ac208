"""Which columns of a file hold the text and the target."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainwiz.core.config import DataSource
from trainwiz.core.config.values import CLASSIFIES, RowKind
from trainwiz.core.data.chats import ChatColumns
from trainwiz.core.data.labels import LABELLED
from trainwiz.core.data.reader import Column, Holds, listed
from trainwiz.core.errors import Finding, Remedy, UsageError, usage_error
from trainwiz.core.language import tr

SEQUENCE_NAMES = ("sequence", "text")
TEXT_NAMES = ("text", "content", "document", "story", "sentence")
"""Plain text, of which a language model learns every token."""
SOURCE_NAMES = ("prompt", "instruction", "question", "query", "input", "inputs", "source", "src")
"""`source` late: in sets of questions it often says where a row comes from."""
TARGET_NAMES = (
    "target", "response", "completion", "output", "outputs", "answer", "translation", "tgt", "reply", "summary",
)  # fmt: skip
CHAT_NAMES = ("messages", "conversations", "conversation", "chat", "dialog", "dialogue", "turns")
"""Names of columns that hold the turns of a chat."""
PARTS_OF_A_CHAT: dict[str, tuple[str, ...]] = {
    "system": ("system", "system_prompt"), "context": ("input", "context", "passage", "background"),
    "history": ("history",), "tools": ("tools",),
}  # fmt: skip
"""Part of a chat -> names of the column that holds it beside the turns, or beside an instruction."""
LIST_PARTS = frozenset({"history", "tools"})
"""Parts of a chat that are lists."""
TREE_NAMES = frozenset({"message_id", "parent_id", "role", "text"})
"""Columns of OpenAssistant's messages: each row is one turn of a tree of chats."""
OF_THE_PROMPT = ("input", "context", "system", "history", "passage", "background")
"""Text columns that stand beside an instruction or a question and belong to it (Alpaca, Dolly, SQuAD)."""
NO_CONTENT = frozenset({
    "id", "uuid", "guid", "hash", "md5", "sha1", "sha256", "url", "uri", "link", "source", "split", "label", "labels",
    "lang", "language", "category", "license", "date", "timestamp", "role", "author", "user", "model", "index", "key",
})  # fmt: skip
"""Names of columns that say something of a row; alone among lists and numbers none of them is what is learnt."""
CONVERT = "docs/data.md#rows-that-need-converting"
SHOWN_COLUMNS, LONGEST_NAME = 20, 40
"""A file without a header has sentences for names."""


def chooses_by_position(source: DataSource) -> bool:
    """Whether all columns that the source names are positions, so that its files may have no header."""
    named = [column for column in (source.text_column, source.target_column) if column is not None]
    return bool(named) and all(isinstance(column, int) or column.isdecimal() for column in named)


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns of a file are read, and how its rows come of them."""

    wanted: tuple[int, ...]
    """Positions in the file."""
    chat: ChatColumns | None = None
    """Each row is a chat; else the wanted columns are its text and perhaps its target."""


def find_layout(
    columns: Sequence[Column], source: DataSource, file: str, key: str, task: RowKind, has_target: bool
) -> Layout:
    """See `find_columns`; of a source of chats the columns of their turns, or of what is asked and answered."""
    if source.layout != "chat":
        return Layout(tuple(find_columns(columns, source, file, key, task, has_target)))
    found = chat_columns(columns)
    if source.text_column is not None:
        found = source.text_column, source.target_column, source.chat_columns
    if found is None:
        problem = tr("does not indicate which column contains the chat")
        raise _missing(columns, file, f"{key}.text_column", problem)
    text, target, parts = found
    named = [("text_column", text), ("target_column", target), *(("chat_columns", name) for name in parts.values())]
    wanted = [
        find_column(columns, name, file, f"{key}.{setting}", holds="lists")
        for setting, name in named
        if name is not None
    ]
    places = {part: len(wanted) - len(parts) + number for number, part in enumerate(parts)}
    lists = frozenset(place for place, position in enumerate(wanted) if columns[position].is_list)
    return Layout(tuple(wanted), ChatColumns(target is not None, lists, places, bool(source.json_turns)))


ChatNames = tuple[str | int, str | int | None, Mapping[Any, str]]
"""Columns of the turns or the prompt, of the answer, and those of PARTS_OF_A_CHAT."""


def chat_columns(columns: Sequence[Column], *, instructions: bool = True) -> ChatNames | None:
    """The columns that make chats of the rows, where their names leave no doubt; else None.

    `instructions`: an instruction and its answer are a chat as well, with what belongs to them in other columns.
    """
    lower = {column.name.lower(): column for column in reversed(columns)}

    def first(names: Sequence[str], *, is_list: bool) -> str | None:
        return next((lower[name].name for name in names if name in lower and lower[name].is_list == is_list), None)

    found = {part: first(names, is_list=part in LIST_PARTS) for part, names in PARTS_OF_A_CHAT.items()}
    parts = {part: name for part, name in found.items() if name is not None}
    beside = {part: name for part, name in parts.items() if part in ("system", "tools")}
    turns = first(CHAT_NAMES, is_list=True)
    if turns is not None:
        return turns, None, beside
    # Two lists that are one chat, of which the second is learnt (TRL).
    prompt, answer = first(("prompt",), is_list=True), first(("completion", "response"), is_list=True)
    if prompt is not None and answer is not None and not _are_preferences(columns):
        return prompt, answer, beside
    pair = pair_of(columns) if instructions else None
    if pair is None or any(column.is_list and column.name not in parts.values() for column in columns):
        return None
    return (*pair, {part: name for part, name in parts.items() if name not in pair})


def find_columns(
    columns: Sequence[Column], source: DataSource, file: str, key: str, task: RowKind, has_target: bool
) -> list[int]:
    """Positions of the text column and, with `has_target`, of the target column.

    A column that the source names is taken; else one of the usual names, else the only text
    column. `key` is the key path of the source, for sentences. Raises UsageError that lists the
    columns which the file has.
    """
    if not columns:
        raise usage_error("empty_data", key, tr("{file} has no rows.", file=file))
    open_column = source.text_column is None or (has_target and source.target_column is None)
    if open_column and task not in ("proteins", *CLASSIFIES):
        _refuse_structured(columns, file, key, task)
    if source.text_column is None and task == "causal-lm" and not has_target:
        _refuse_unnamed_pairs(columns, file, key)
    of_task = {"proteins": SEQUENCE_NAMES, "seq2seq": SOURCE_NAMES}
    usual = of_task.get(task, (*TEXT_NAMES, *SEQUENCE_NAMES))
    if not has_target:
        return [find_column(columns, source.text_column, file, f"{key}.text_column", usual)]
    usual, targets = LABELLED.get(task, ((*SOURCE_NAMES, *TEXT_NAMES), TARGET_NAMES))
    labels = task == "sequence-classification"
    holds: Holds = "lists" if task == "token-classification" else "texts"
    positions: dict[str, int] = {}
    unclear: list[Finding] = []
    # A target that is named is taken first: the text is then the other column.
    first = source.target_column is not None or (labels and any(column.name.lower() in targets for column in columns))
    for side in ("target", "text") if first else ("text", "target"):
        where, named = f"{key}.{side}_column", getattr(source, f"{side}_column")
        names, may_hold = (targets, "classes" if labels else holds) if side == "target" else (usual, holds)
        try:
            taken = next(iter(positions.values()), None)
            positions[side] = find_column(columns, named, file, where, names, taken, holds=may_hold)
        except UsageError as error:
            unclear += error.findings
    if unclear:
        raise UsageError(unclear)
    text, target = positions["text"], positions["target"]
    if target == text:
        message = tr(
            "{file}: {key}.text_column and {key}.target_column are the same column {name}; specify two of its "
                "columns: {columns}.",
            file=file, key=key, name=repr(columns[text].name), columns=described(columns),
        )  # fmt: skip
        raise usage_error("same_column", f"{key}.target_column", message)
    return [text, target]


def find_column(
    columns: Sequence[Column],
    wanted: str | int | None,
    file: str,
    key: str,
    usual: Sequence[str] = SEQUENCE_NAMES,
    taken: int | None = None,
    *,
    holds: Holds = "texts",
) -> int:
    """The position of the wanted column; with None the first of the `usual` names, or the only text column.

    `key` is the setting that chooses it, for the sentence; `taken` is the position of a column that
    is in use already. Raises UsageError that lists the columns which the file has.
    """
    names = [column.name for column in columns]
    if isinstance(wanted, str) and wanted not in names and wanted.isdecimal():
        wanted = int(wanted)
    if isinstance(wanted, int):
        if not 0 <= wanted < len(columns):
            raise _missing(columns, file, key, tr("has no column at position {wanted} (zero-based)", wanted=wanted))
        index = wanted
    elif wanted is not None:
        if wanted not in names:
            near = difflib.get_close_matches(wanted, names, n=1)
            if near:
                problem = tr("has no column {wanted}; did you mean {near}?", wanted=repr(wanted), near=repr(near[0]))
            else:
                problem = tr("has no column {wanted}", wanted=repr(wanted))
            raise _missing(columns, file, key, problem)
        if names.count(wanted) > 1:
            count = names.count(wanted)
            problem = tr("has {count} columns named {wanted}; choose by position", count=count, wanted=repr(wanted))
            raise _missing(columns, file, key, problem)
        index = names.index(wanted)
    else:
        index = _guess(columns, usual, taken, file, key, holds)
    if not columns[index].may_hold(holds):
        raise _not_text(columns, index, file, key)
    return index


def pair_of(columns: Sequence[Column]) -> tuple[str, str] | None:
    """Names of a prompt and a response column, where a file has both under usual names and no plain text column."""
    lower = {column.name.lower(): column.name for column in columns if column.is_text}
    source = next((lower[name] for name in SOURCE_NAMES if name in lower), None)
    target = next((lower[name] for name in TARGET_NAMES if name in lower), None)
    if source is None or target is None or any(name in lower for name in TEXT_NAMES) or _are_preferences(columns):
        return None
    return source, target


def _are_preferences(columns: Sequence[Column]) -> bool:
    """Whether rows hold answers that are not to be learnt, too: a worse one, or a label that is not text (KTO)."""
    others = {column.name.lower() for column in columns if column.name.lower() != "label" or not column.is_text}
    return others >= {"chosen", "rejected"} or others >= {"prompt", "completion", "label"}


def described(columns: Sequence[Column]) -> str:
    """The columns of a file for a sentence; the type of one that holds no text."""
    names = [_short(column.name) + ("" if column.is_text else f" ({_short(column.type_name)})") for column in columns]
    return listed(names, SHOWN_COLUMNS)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}\u2026"


def _refuse_unnamed_pairs(columns: Sequence[Column], file: str, key: str) -> None:
    pair = pair_of(columns)
    if pair is None:
        return
    prompt, response = map(repr, pair)
    message = tr(
        "{file} has columns {prompt} and {response}; set {key}.text_column and {key}.target_column to train on the "
            "responses, or only {key}.text_column to train on one column as plain text.",
        file=file, prompt=prompt, response=response, key=key,
    )  # fmt: skip
    changes = dict(zip((f"{key}.text_column", f"{key}.target_column"), pair, strict=True))
    remedy = Remedy(
        tr("train on {response}, with {prompt} as the prompt", response=response, prompt=prompt), changes=changes
    )
    raise UsageError(Finding("unnamed_pair", "error", f"{key}.target_column", message, (remedy,)))


def unused_prompt_columns(columns: Sequence[str], text: str | None, target: str | None) -> list[str]:
    """Of the columns of a source those that belong to the prompt and are not learnt from, where it has a target."""
    if target is None:
        return []
    return [name for name in columns if name.lower() in OF_THE_PROMPT and name not in (text, target)]


def _refuse_structured(columns: Sequence[Column], file: str, key: str, task: RowKind) -> None:
    """Lists and trees are what such rows are about: a text column next to them is never guessed."""
    chats = (column for column in columns if column.is_list and column.name.lower().rpartition(".")[2] in CHAT_NAMES)
    chat = next(chats, None)
    remedy = Remedy(tr("convert it to a prompt column and a response column: {place}", place=CONVERT))
    if chat is not None and task == "causal-lm":
        message = tr(
            "{file}: {column} is a list of chat turns. Set {key}.layout to chat to train on its answers.",
            file=file, column=repr(_short(chat.name)), key=key,
        )  # fmt: skip
        changes = {f"{key}.layout": "chat", f"{key}.text_column": chat.name}
        remedy = Remedy(tr("train on the answers of the chats"), changes=changes)
    elif chat is not None:
        message = tr(
            "{file}: {column} is a list of chat turns; only causal language models train on chats.",
            file=file,
            column=repr(_short(chat.name)),
        )
    elif _are_preferences(columns):
        message = tr(
            "{file} is preference data: it has answers that are not to be learnt. This version does not support "
            "preference training; keep only the good answers.",
            file=file,
        )
    elif {column.name.lower() for column in columns} >= TREE_NAMES:
        message = tr(
            "{file} contains chat trees (OpenAssistant): each row is one turn, and parent_id names the turn it "
            "replies to.",
            file=file,
        )
    elif (column := next((column for column in columns if column.is_list), None)) is not None:
        message = tr(
            "{file}: {column} is a list, so the text column is not guessed. Set {key}.text_column.",
            file=file, column=repr(_short(column.name)), key=key,
        )  # fmt: skip
    else:
        return
    raise UsageError(Finding("structured_columns", "error", f"{key}.text_column", message, (remedy,)))


def _guess(
    columns: Sequence[Column], usual: Sequence[str], taken: int | None, file: str, key: str, holds: Holds
) -> int:
    free = [index for index, column in enumerate(columns) if index != taken and column.may_hold(holds)]
    lower = {columns[index].name.lower(): index for index in reversed(free)}
    for name in usual:
        if name in lower:
            return lower[name]
    named = {column.name.lower(): index for index, column in enumerate(columns) if not column.is_text}
    holds_no_text = next((named[name] for name in usual if name in named), None)
    if holds_no_text is not None:
        raise _not_text(columns, holds_no_text, file, key)
    if len(free) == 1 and columns[free[0]].name.lower() not in NO_CONTENT:
        return free[0]
    if key.endswith("target_column"):
        problem = tr("does not indicate which column contains the target") if free else tr("has no target column")
    else:
        problem = tr("does not indicate which column contains the text") if free else tr("has no text column")
    raise _missing(columns, file, key, problem)


def _not_text(columns: Sequence[Column], index: int, file: str, key: str) -> UsageError:
    column = columns[index]
    message = tr(
        "{file}: column {name} contains {kind}, not text (its columns: {columns}); choose another with {key}.",
        file=file, name=repr(_short(column.name)), kind=_short(column.type_name), columns=described(columns), key=key,
    )  # fmt: skip
    return usage_error("not_text", key, message)


def _missing(columns: Sequence[Column], file: str, key: str, problem: str) -> UsageError:
    message = tr(
        "{file} {problem}; its columns: {columns}. Set {key} to a name or a zero-based position.",
        file=file, problem=problem, columns=described(columns) or tr("none"), key=key,
    )  # fmt: skip
    return usage_error("missing_column", key, message)
