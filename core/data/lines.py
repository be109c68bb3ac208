"""Files with one row a line: plain text and JSON lines, plain or gzip."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trainwiz.core.data.reader import Column, unreadable
from trainwiz.core.data.text_file import TextFileReader

ROWS_FOR_COLUMNS = 100


class TextReader(TextFileReader):
    """Each line that is not blank is a row with the one column `text`."""

    columns = (Column("text"),)

    def _rows_of(self, wanted: Sequence[int]) -> Iterator[tuple[int, tuple[str, ...]]]:
        with self._file.lines() as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, (line.rstrip("\r\n"),) * len(wanted)


class JsonLinesReader(TextFileReader):
    """Each line is a JSON object. The columns are the keys of the first 100 rows."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        samples: dict[str, list[Any]] = {}
        for count, (_, row) in enumerate(self._objects()):
            if count >= ROWS_FOR_COLUMNS:
                break
            for key, value in row.items():
                samples.setdefault(key, []).append(value)
        self.columns = tuple(_column(key, values) for key, values in samples.items())

    def _rows_of(self, wanted: Sequence[int]) -> Iterator[tuple[int, list[str | None]]]:
        names = [self.columns[index].name for index in wanted]
        for number, row in self._objects():
            yield number, [self._text(row, name, number) for name in names]

    def head(self, count: int) -> list[tuple[str, ...]]:
        # What holds no text is shown too.
        shown: list[tuple[str, ...]] = []
        for _, row in self._objects():
            if len(shown) >= count:
                break
            shown.append(tuple(_shown(row.get(column.name)) for column in self.columns))
        return shown

    def _text(self, row: dict[str, Any], name: str, number: int) -> str | None:
        place = f"{self.path}, line {number}"
        if name not in row:
            has = ", ".join(row) or "none"
            raise unreadable(place, f"the row has no {name!r} (its keys: {has}).")
        value = row[name]
        if value is not None and not isinstance(value, str):
            raise unreadable(place, f"{name!r} holds {_kind(value)}, not text.")
        return value

    def _objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        with self._file.lines() as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                place = f"{self.path}, line {number}"
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    detail = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deep"
                    raise unreadable(
                        place, f"is not a JSON object on one line ({detail}); JSON lines are expected."
                    ) from None
                if not isinstance(row, dict):
                    raise unreadable(
                        place, f"holds {_kind(row)} where a JSON object ({{...}}) is expected, one a line."
                    )
                yield number, row


def _column(name: str, values: list[Any]) -> Column:
    kinds = sorted({_kind(value) for value in values if value is not None and not isinstance(value, str)})
    return Column(name, not kinds, " or ".join(kinds) or "text")


def _kind(value: Any) -> str:
    names = {bool: "true/false", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return "null" if value is None else names.get(type(value), "text")


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
