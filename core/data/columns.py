"""Which columns of a file hold the text and the target."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainwiz.core.config import DataSource
from trainwiz.core.config.keys import did_you_mean
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
NO_CONTENT = frozenset({
    "id", "uuid", "guid", "hash", "md5", "sha1", "sha256", "url", "uri", "link", "source", "split", "label", "labels",
    "lang", "language", "category", "license", "date", "timestamp", "role", "author", "user", "model", "index", "key",
})  # fmt: skip
"""Names of columns that say something of a row; alone among lists and numbers none of them is what is learnt."""
CONVERT = "docs/data.md#rows-that-need-converting"
SHOWN_COLUMNS, LONGEST_NAME = 20, 40
"""A file without a header has sentences for names."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns of a file are read, and how its rows come of them."""

    wanted: tuple[int, ...]
    """Positions in the file."""
    chat: ChatColumns | None = None
    """Each row is a chat; else the wanted columns are its text and perhaps its target."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a file, for a source with the key path `key`."""

    all: Sequence[Column]
    file: str
    key: str

    def refused(self, side: str, problem: str, code: str = "missing_column", near: Sequence[str] = ()) -> UsageError:
        """`side`: which setting of the source chooses a column."""
        key = f"{self.key}.{side}"
        names = [
            _short(column.name) + ("" if column.is_text else f" ({_short(column.type_name)})") for column in self.all
        ]
        message = tr(
            "{file} {problem}; its columns: {columns}. Set {key} to a name or a zero-based position.",
            file=self.file, problem=problem, columns=listed(names, SHOWN_COLUMNS) or tr("none"), key=key,
        )  # fmt: skip
        return usage_error(code, key, message + did_you_mean([*map(repr, near)]))

    def find(
        self,
        side: str,
        wanted: str | int | None,
        usual: Sequence[str] = (),
        taken: int | None = None,
        *,
        holds: Holds = "texts",
    ) -> int:
        """The position of the wanted column; with None the first of the `usual` names, or the only text column.

        `taken` is the position of a column that is in use already. Raises UsageError that lists the columns.
        """
        names = [column.name for column in self.all]
        if isinstance(wanted, str) and wanted not in names and wanted.isdecimal():
            wanted = int(wanted)
        if wanted is None:
            index = self._guess(side, usual, taken, holds)
        elif isinstance(wanted, int):
            if not 0 <= wanted < len(names):
                raise self.refused(side, tr("has no column at position {wanted} (zero-based)", wanted=wanted))
            index = wanted
        elif (count := names.count(wanted)) == 1:
            index = names.index(wanted)
        elif count:
            problem = tr("has {count} columns named {wanted}; choose by position", count=count, wanted=repr(wanted))
            raise self.refused(side, problem)
        else:
            near = difflib.get_close_matches(wanted, names, n=1)
            raise self.refused(side, tr("has no column {wanted}", wanted=repr(wanted)), near=near)
        return self._checked(side, index, holds)

    def _guess(self, side: str, usual: Sequence[str], taken: int | None, holds: Holds) -> int:
        free = [index for index, column in enumerate(self.all) if index != taken and column.may_hold(holds)]
        # One that holds something else is refused by its name.
        others = [index for index, column in enumerate(self.all) if not column.is_text]
        for places in (free, others):
            lower = {self.all[index].name.lower(): index for index in reversed(places)}
            for name in usual:
                if name in lower:
                    return lower[name]
        if len(free) == 1 and self.all[free[0]].name.lower() not in NO_CONTENT:
            return free[0]
        if side == "target_column":
            problem = tr("does not indicate which column contains the target") if free else tr("has no target column")
        else:
            problem = tr("does not indicate which column contains the text") if free else tr("has no text column")
        raise self.refused(side, problem)

    def _checked(self, side: str, index: int, holds: Holds) -> int:
        column = self.all[index]
        if not column.may_hold(holds):
            kind = _short(column.type_name)
            problem = tr("contains {kind}, not text, in column {name}", name=repr(_short(column.name)), kind=kind)
            raise self.refused(side, problem, "not_text")
        return index


def find_layout(
    columns: Sequence[Column], source: DataSource, file: str, key: str, task: RowKind, has_target: bool
) -> Layout:
    """The text column and, with `has_target`, the target column; of a source of chats the columns of their turns, or of
    what is asked and answered.

    A column that the source names is taken; else one of the usual names, else the only text column. `key` is the key path
    of the source, for sentences. Raises UsageError that lists the columns which the file has.
    """
    found = Columns(columns, file, key)
    if source.layout == "chat":
        return _chat_layout(found, source)
    if not columns:
        raise usage_error("empty_data", key, tr("{file} has no rows.", file=file))
    if task not in ("proteins", *CLASSIFIES):
        _refuse_unclear(found, source, task, has_target)
    of_task = {"proteins": SEQUENCE_NAMES, "seq2seq": SOURCE_NAMES}
    usual = of_task.get(task, (*TEXT_NAMES, *SEQUENCE_NAMES))
    if not has_target:
        return Layout((found.find("text_column", source.text_column, usual),))
    usual, targets = LABELLED.get(task, ((*SOURCE_NAMES, *TEXT_NAMES), TARGET_NAMES))
    labels = task == "sequence-classification"
    holds: Holds = "lists" if task == "token-classification" else "texts"
    sides: dict[str, tuple[str | int | None, Sequence[str], Holds]] = {
        "text_column": (source.text_column, usual, holds),
        "target_column": (source.target_column, targets, "classes" if labels else holds),
    }
    # A target that is named is taken first: the text is then the other column.
    first = source.target_column is not None or (labels and any(column.name.lower() in targets for column in columns))
    positions: dict[str, int] = {}
    unclear: list[Finding] = []
    for side in reversed(sides) if first else sides:
        wanted, names, may_hold = sides[side]
        try:
            positions[side] = found.find(side, wanted, names, next(iter(positions.values()), None), holds=may_hold)
        except UsageError as error:
            unclear += error.findings
    if unclear:
        raise UsageError(unclear)
    text, target = (positions[side] for side in sides)
    if target == text:
        problem = tr("has the same column {name} for text and target", name=repr(columns[text].name))
        raise found.refused("target_column", problem, "same_column")
    return Layout((text, target))


def _chat_layout(columns: Columns, source: DataSource) -> Layout:
    found = chat_columns(columns.all)
    if source.text_column is not None:
        found = source.text_column, source.target_column, source.chat_columns
    if found is None:
        raise columns.refused("text_column", tr("does not indicate which column contains the chat"))
    text, target, parts = found
    wanted = [columns.find("text_column", text, holds="lists")]
    if target is not None:
        wanted.append(columns.find("target_column", target, holds="lists"))
    places = {part: len(wanted) + number for number, part in enumerate(parts)}
    wanted += [columns.find("chat_columns", name, holds="lists") for name in parts.values()]
    lists = frozenset(place for place, position in enumerate(wanted) if columns.all[position].is_list)
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


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}\u2026"


def unused_prompt_columns(columns: Sequence[str], text: str | None, target: str | None) -> list[str]:
    """Of the columns of a source those that belong to the prompt and are not learnt from, where it has a target."""
    if target is None:
        return []
    of_the_prompt = {name for names in PARTS_OF_A_CHAT.values() for name in names}
    return [name for name in columns if name.lower() in of_the_prompt and name not in (text, target)]


def _refuse_unclear(columns: Columns, source: DataSource, task: RowKind, has_target: bool) -> None:
    """Lists, trees and pairs are what such rows are about: a text column next to them is never guessed."""
    if source.text_column is not None and (not has_target or source.target_column is not None):
        return
    every, file, key = columns.all, columns.file, columns.key
    code, side = "structured_columns", "text_column"
    remedy = Remedy(tr("convert it to a prompt column and a response column: {place}", place=CONVERT))
    a_list = next((column for column in every if column.is_list), None)
    chats = (column.name for column in every if column.is_list and column.name.lower().rpartition(".")[2] in CHAT_NAMES)
    chat = next(chats, None)
    if chat is not None and task == "causal-lm":
        message = tr(
            "{file}: {column} is a list of chat turns. Set {key}.layout to chat to train on its answers.",
            file=file, column=repr(_short(chat)), key=key,
        )  # fmt: skip
        changes: dict[str, Any] = {f"{key}.layout": "chat", f"{key}.text_column": chat}
        remedy = Remedy(tr("train on the answers of the chats"), changes=changes)
    elif chat is not None:
        message = tr(
            "{file}: {column} is a list of chat turns; only causal language models train on chats.",
            file=file,
            column=repr(_short(chat)),
        )
    elif _are_preferences(every):
        message = tr(
            "{file} is preference data: it has answers that are not to be learnt. This version does not support "
            "preference training; keep only the good answers.",
            file=file,
        )
    elif {column.name.lower() for column in every} >= TREE_NAMES:
        message = tr(
            "{file} contains chat trees (OpenAssistant): each row is one turn, and parent_id names the turn it "
            "replies to.",
            file=file,
        )
    elif a_list is not None:
        message = tr(
            "{file}: {column} is a list, so the text column is not guessed. Set {key}.text_column.",
            file=file, column=repr(_short(a_list.name)), key=key,
        )  # fmt: skip
    elif task == "causal-lm" and not has_target and (pair := pair_of(every)) is not None:
        code, side = "unnamed_pair", "target_column"
        prompt, response = map(repr, pair)
        message = tr(
            "{file} has columns {prompt} and {response}; set {key}.text_column and {key}.target_column to train on the "
                "responses, or only {key}.text_column to train on one column as plain text.",
            file=file, prompt=prompt, response=response, key=key,
        )  # fmt: skip
        changes = dict(zip((f"{key}.text_column", f"{key}.target_column"), pair, strict=True))
        words = tr("train on {response}, with {prompt} as the prompt", response=response, prompt=prompt)
        remedy = Remedy(words, changes=changes)
    else:
        return
    raise UsageError(Finding(code, "error", f"{key}.{side}", message, (remedy,)))
