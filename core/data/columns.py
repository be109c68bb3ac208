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
from trainwiz.core.language import mark, tr

SEQUENCE_NAMES = ("sequence", "text")
TEXT_NAMES = ("text", "content", "document", "story", "sentence")
"""Plain text, of which a language model learns every token."""
SOURCE_NAMES = ("prompt", "instruction", "question", "query", "input", "inputs", "source", "src")
"""`source` late: in sets of questions it often says where a row comes from."""
TARGET_NAMES = (
    "target", "response", "completion", "output", "outputs", "answer", "translation", "tgt", "reply", "summary",
)  # fmt: skip
CHAT_NAMES = {
    "messages": "OpenAI messages", "conversations": "ShareGPT", "conversation": "ShareGPT", "chat": "turns",
    "dialog": "turns", "dialogue": "turns", "turns": "turns",
}  # fmt: skip
"""Names of columns that hold the turns of a chat -> the format that is known for it."""
PREFERENCES = ({"chosen", "rejected"}, {"prompt", "completion", "label"})
"""Names of columns with a better and a worse answer; with good and bad answers and a label that is not text (KTO)."""
PROMPT_LISTS = ("prompt", "completion"), ("prompt", "response")
"""Names of two list columns that are one chat, of which the second is learnt (TRL)."""
PARTS_OF_A_CHAT: dict[str, tuple[str, ...]] = {
    "system": ("system", "system_prompt"), "context": ("input", "context", "passage", "background"),
    "history": ("history",), "tools": ("tools",),
}  # fmt: skip
"""Part of a chat -> names of the column that holds it beside the turns, or beside an instruction."""
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
    parts: Mapping[Any, str] = source.chat_columns
    names = [source.text_column, source.target_column, *parts.values()]
    keys = [f"{key}.text_column", f"{key}.target_column", *(f"{key}.chat_columns" for _ in source.chat_columns)]
    if source.text_column is None:
        found = chat_columns(columns)
        if found is None:
            raise _missing(columns, file, keys[0], tr("does not indicate which column contains the chat"))
        names = [found["text_column"], found.get("target_column"), *found.get("chat_columns", {}).values()]
        parts = found.get("chat_columns", {})
    wanted = [
        find_column(columns, name, file, where, holds="lists")
        for name, where in zip(names, [*keys, *[keys[0]] * len(names)], strict=False)
        if name is not None
    ]
    target = None if names[1] is None else 1
    first = 1 if target is None else 2
    places = {part: first + number for number, part in enumerate(parts)}
    lists = frozenset(place for place, position in enumerate(wanted) if columns[position].is_list)
    return Layout(tuple(wanted), ChatColumns(0, target, lists, places, bool(source.json_turns)))


def chat_columns(columns: Sequence[Column], *, instructions: bool = True) -> dict[str, Any] | None:
    """Keys of a source that make chats of its rows, where the names of its columns leave no doubt; else None.

    `instructions`: an instruction and its answer are a chat as well, with what belongs to them in other columns.
    """
    lower = {column.name.lower(): column for column in reversed(columns)}
    parts = {
        part: next(lower[name].name for name in names if name in lower)
        for part, names in PARTS_OF_A_CHAT.items()
        if any(name in lower and lower[name].is_list == (part in ("history", "tools")) for name in names)
    }
    beside = {part: parts[part] for part in ("system", "tools") if part in parts}
    turns = next((lower[name].name for name in CHAT_NAMES if name in lower and lower[name].is_list), None)
    if turns is not None:
        return {"text_column": turns, "chat_columns": beside}
    for prompt, answer in PROMPT_LISTS if _preferences(columns) is None else ():
        if all(name in lower and lower[name].is_list for name in (prompt, answer)):
            return {"text_column": lower[prompt].name, "target_column": lower[answer].name, "chat_columns": beside}
    pair = pair_of(columns) if instructions else None
    if pair is None or any(column.is_list and column.name not in parts.values() for column in columns):
        return None
    parts = {part: name for part, name in parts.items() if name not in pair}
    return {"text_column": pair[0], "target_column": pair[1], "chat_columns": parts}


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
        _refuse_structured(columns, source, file, key, task)
    if source.text_column is None and task == "causal-lm" and not has_target:
        _refuse_unnamed_pairs(columns, file, key)
    of_task = {"proteins": SEQUENCE_NAMES, "seq2seq": SOURCE_NAMES}
    usual = of_task.get(task, (*TEXT_NAMES, *SEQUENCE_NAMES))
    if not has_target:
        return [find_column(columns, source.text_column, file, f"{key}.text_column", usual)]
    usual, targets = LABELLED.get(task, ((*SOURCE_NAMES, *TEXT_NAMES), TARGET_NAMES))
    labels = task == "sequence-classification"
    holds: Holds = "lists" if task == "token-classification" else "texts"
    text = target = None
    unclear: list[Finding] = []
    # A target that is named is taken first: the text is then the other column.
    first = source.target_column is not None or (labels and any(column.name.lower() in targets for column in columns))
    for side in ("target", "text") if first else ("text", "target"):
        try:
            where, named = f"{key}.{side}_column", getattr(source, f"{side}_column")
            if side == "text":
                text = find_column(columns, named, file, where, usual, target, holds=holds)
            else:
                target = find_column(columns, named, file, where, targets, text, holds="classes" if labels else holds)
        except UsageError as error:
            unclear += error.findings
    if text is None or target is None:
        if len(unclear) == 2 and source.text_column is None and source.target_column is None:
            raise _neither(columns, file, key, unclear[0])
        raise UsageError(unclear)
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
    if source is None or target is None or any(name in lower for name in TEXT_NAMES) or _preferences(columns):
        return None
    return source, target


def _preferences(columns: Sequence[Column]) -> set[str] | None:
    """The names by which rows hold answers that are not to be learnt, too."""
    others = {column.name.lower() for column in columns if column.name.lower() != "label" or not column.is_text}
    return next((names for names in PREFERENCES if names <= others), None)


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


def is_usual(name: str, task: RowKind) -> bool:
    """Whether a column of this name is found by it; else it was taken for want of another."""
    texts, labels = LABELLED.get(task, ((), ()))
    return name.lower() in {*SOURCE_NAMES, *TARGET_NAMES, *TEXT_NAMES, *SEQUENCE_NAMES, *texts, *labels}


def _of_preferences(
    columns: Sequence[Column], preferences: set[str], file: str, key: str, task: RowKind
) -> tuple[str, tuple[Remedy, ...]]:
    """What is said of answers of which some are not to be learnt, and how the others are."""
    if "label" in preferences:
        message = tr(
            "{file} is preference data: its label says which answers are good. This version does not support preference "
            "training.",
            file=file,
        )
        return message, (Remedy(tr("keep only the rows with good answers, without the label column")),)
    message = tr(
        "{file} is preference data: a chosen and a rejected answer for each prompt. This version does not "
        "support preference training.",
        file=file,
    )
    if task != "causal-lm":
        return message, ()
    lower = {column.name.lower(): column for column in reversed(columns)}
    better, prompt = lower["chosen"], next((lower[name] for name in SOURCE_NAMES if name in lower), None)
    changes = {f"{key}.text_column": better.name}
    if prompt is not None and prompt.is_list == better.is_list:
        changes = {f"{key}.text_column": prompt.name, f"{key}.target_column": better.name}
    if better.is_list:
        changes[f"{key}.layout"] = "chat"
    return message, (Remedy(tr("train on {column} only", column=repr(better.name)), changes=changes),)


def _refuse_structured(columns: Sequence[Column], source: DataSource, file: str, key: str, task: RowKind) -> None:
    """Lists and trees are what such rows are about: no text that happens to stand beside them is taken by a guess."""
    names = {column.name.lower() for column in columns}
    lists = [column for column in columns if column.is_list]
    chat = next((column for column in lists if column.name.lower().rpartition(".")[2] in CHAT_NAMES), None)
    preferences = _preferences(columns)
    remedies: tuple[Remedy, ...] = (
        Remedy(tr("convert it to a prompt column and a response column: {place}", place=CONVERT)),
    )
    if chat is not None:
        kind = CHAT_NAMES[chat.name.lower().rpartition(".")[2]]
        sentence = (
            mark("{file}: {column} is a list of chat turns ({kind}). Set {key}.layout to chat to train on its answers.")
            if task == "causal-lm"
            else mark("{file}: {column} is a list of chat turns ({kind}); only causal language models train on chats.")
        )
        message = tr(sentence, file=file, column=repr(_short(chat.name)), kind=kind, key=key)
        if task == "causal-lm":
            changes = {f"{key}.layout": "chat", f"{key}.text_column": chat.name}
            remedies = (Remedy(tr("train on the answers of the chats"), changes=changes),)
    elif preferences is not None:
        message, better = _of_preferences(columns, preferences, file, key, task)
        remedies = better or remedies
    elif names >= TREE_NAMES:
        message = tr(
            "{file} contains chat trees (OpenAssistant): each row is one turn, and parent_id names the turn it "
            "replies to.",
            file=file,
        )
    elif lists:
        message = tr(
            "{file}: {column} is a list, so the text column is not guessed. Set {key}.text_column.",
            file=file, column=repr(_short(lists[0].name)), key=key,
        )  # fmt: skip
        texts = tuple(column.name for column in columns if column.is_text and column.name.lower() in TEXT_NAMES)
        known = pair_of(columns) or texts[:1]
        if known and task == "causal-lm":
            changes = dict(zip((f"{key}.text_column", f"{key}.target_column"), known, strict=False))
            words = tr("train on {columns} only", columns=", ".join(map(repr, known)))
            remedies = (Remedy(words, changes=changes), *remedies)
    else:
        return
    raise UsageError(Finding("structured_columns", "error", f"{key}.text_column", message, remedies))


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


def _neither(columns: Sequence[Column], file: str, key: str, unclear: Finding) -> UsageError:
    """One sentence where neither of two columns is named; `unclear` is what is said of the text alone."""
    if unclear.code != "missing_column" or sum(column.is_text for column in columns) < 2:
        return UsageError(unclear)
    message = tr(
        "{file} does not indicate which columns contain the text and the target; its columns: {columns}. Set "
            "{key}.text_column and {key}.target_column to names or zero-based positions.",
        file=file, columns=described(columns), key=key,
    )  # fmt: skip
    return usage_error(unclear.code, f"{key}.text_column", message)


def _not_text(columns: Sequence[Column], index: int, file: str, key: str) -> UsageError:
    column = columns[index]
    if column.is_list:
        message = tr("{file}: column {name} is a list, not text.", file=file, name=repr(_short(column.name)))
        remedy = Remedy(tr("convert it to a prompt column and a response column: {place}", place=CONVERT))
        return UsageError(Finding("not_text", "error", key, message, (remedy,)))
    message = tr(
        "{file}: column {name} contains {kind}, not text (its columns: {columns}); choose another with {key}.",
        file=file, name=repr(column.name), kind=column.type_name, columns=described(columns), key=key,
    )  # fmt: skip
    return usage_error("not_text", key, message)


def _missing(columns: Sequence[Column], file: str, key: str, problem: str) -> UsageError:
    message = tr(
        "{file} {problem}; its columns: {columns}. Set {key} to a name or a zero-based position.",
        file=file, problem=problem, columns=described(columns) or tr("none"), key=key,
    )  # fmt: skip
    return usage_error("missing_column", key, message)
