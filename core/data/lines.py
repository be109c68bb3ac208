"""Files with one row a line: plain text and JSON lines, plain or gzip."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trainwiz.core.data.blocks import Block
from trainwiz.core.data.place import place_of
from trainwiz.core.data.reader import Column, unreadable
from trainwiz.core.data.text_file import TextFileReader
from trainwiz.core.language import mark, tr

ROWS_FOR_COLUMNS = 100
DEEPEST = 4
"""Objects inside objects that still count as columns, like translation.en."""
BRACES = "{...}"
TEXT = mark("text")
KINDS = {
    bool: mark("true/false"),
    int: mark("a number"),
    float: mark("a number"),
    list: mark("a list"),
    dict: mark("an object"),
}
"""What a value of JSON is called in a sentence."""
JSON_ERRORS = (
    mark("Expecting value"),
    mark("Expecting property name enclosed in double quotes"),
    mark("Expecting ':' delimiter"),
    mark("Expecting ',' delimiter"),
    mark("Extra data"),
    mark("Unterminated string"),
    mark("Invalid control character"),
    mark("Invalid \\escape"),
    mark("Illegal trailing comma before end of object"),
    mark("Illegal trailing comma before end of array"),
)
"""What the json module says, without its place."""


class TextReader(TextFileReader):
    """Each line that is not blank is a row with the one column `text`."""

    columns = (Column("text"),)

    def _rows_of(self, wanted: Sequence[int]) -> Iterator[tuple[int, tuple[str, ...]]]:
        with self._file.lines() as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, (line.rstrip("\r\n"),) * len(wanted)

    def _can_jump(self, rows: int) -> bool:
        return True

    def _rows_in(self, block: Block, wanted: Sequence[int]) -> Iterator[tuple[int, tuple[str, ...]]]:
        for position, line in block.lines():
            if line.strip():
                yield position, (line.rstrip("\r\n"),) * len(wanted)


class JsonLinesReader(TextFileReader):
    """Each line is a JSON object. The columns are the keys of the first 100 rows; an inner key is named `outer.inner`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        samples: dict[str, list[Any]] = {}
        for count, (_, row) in enumerate(self._objects()):
            if count >= ROWS_FOR_COLUMNS:
                break
            for key, value in _leaves(row):
                samples.setdefault(key, []).append(value)
        outer = {name.rsplit(".", depth)[0] for name in samples for depth in range(1, name.count(".") + 1)}
        # A value that is null here and an object there is one of the object's keys.
        self.columns = tuple(
            _column(key, values)
            for key, values in samples.items()
            if key not in outer or any(value is not None for value in values)
        )

    def _rows_of(self, wanted: Sequence[int]) -> Iterator[tuple[int, list[str | None]]]:
        names = [self.columns[index].name for index in wanted]
        for number, row in self._objects():
            yield number, [self._text(row, name, number) for name in names]

    def _can_jump(self, rows: int) -> bool:
        return True

    def _rows_in(self, block: Block, wanted: Sequence[int]) -> Iterator[tuple[int, list[str | None]]]:
        names = [self.columns[index].name for index in wanted]
        for number, row in self._parsed(block.lines()):
            yield number, [self._text(row, name, number) for name in names]

    def head(self, count: int) -> list[tuple[str | None, ...]]:
        # What holds no text is shown too.
        shown: list[tuple[str | None, ...]] = []
        for _, row in self._objects():
            if len(shown) >= count:
                break
            leaves = dict(_leaves(row))
            shown.append(tuple(_shown(leaves.get(column.name)) for column in self.columns))
        return shown

    def _text(self, row: dict[str, Any], name: str, number: int) -> str | None:
        value: Any = row
        # The common case is a key of the row itself, whatever dots it holds.
        for part in [name] if name in row else name.split("."):
            if value is None:
                return None
            if not isinstance(value, dict) or part not in value:
                problem = tr(
                    "the row has no {name} (its keys: {keys}).", name=repr(name), keys=", ".join(row) or tr("none")
                )
                raise unreadable(place_of(self.path, self.unit, number), problem)
            value = value[part]
        if value is not None and not isinstance(value, str):
            problem = tr("{name} holds {kind}, not text.", name=repr(name), kind=kind_name(value))
            raise unreadable(place_of(self.path, self.unit, number), problem)
        return value

    def _objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        with self._file.lines() as lines:
            yield from self._parsed(enumerate(lines, 1))

    def _parsed(self, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in lines:
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                problem = tr(
                    "is not a JSON object on one line ({detail}); JSON lines are expected.", detail=json_detail(error)
                )
                raise unreadable(place_of(self.path, self.unit, number), problem) from None
            if not isinstance(row, dict):
                problem = tr(
                    "holds {kind} where a JSON object ({braces}) is expected, one a line.",
                    kind=kind_name(row),
                    braces=BRACES,
                )
                raise unreadable(place_of(self.path, self.unit, number), problem)
            yield number, row


def json_detail(error: Exception) -> str:
    """What is wrong with a JSON text, in a few words."""
    if isinstance(error, json.JSONDecodeError):
        # The table is of those that a file can meet; a newer json may have others.
        return tr(error.msg.removesuffix(" at").removesuffix(" starting"))
    return tr("nested too deep") if isinstance(error, RecursionError) else tr("a number of too many digits")


def _leaves(row: dict[str, Any], prefix: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    """(column, value) of a row; the keys of an inner object are columns of their own."""
    for key, value in row.items():
        if isinstance(value, dict) and value and depth < DEEPEST:
            yield from _leaves(value, f"{prefix}{key}.", depth + 1)
        else:
            yield f"{prefix}{key}", value


def _column(name: str, values: list[Any]) -> Column:
    kinds = sorted({kind_name(value) for value in values if value is not None and not isinstance(value, str)})
    # A column with some texts is one of texts: the row that holds something else is then named.
    return Column(
        name,
        not kinds or any(isinstance(value, str) for value in values),
        tr(" or ").join(kinds) or "text",
        any(isinstance(value, list) for value in values),
    )


def kind_name(value: Any) -> str:
    """What a sentence calls the kind of a JSON value."""
    return "null" if value is None else tr(KINDS.get(type(value), TEXT))


def _shown(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
