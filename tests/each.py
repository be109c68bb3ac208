"""One case for a table: a test that goes through all its rows and lists every row that fails."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

SHOWN = 20
"""Rows whose whole failure is shown; of the others there is one line."""


def each(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Like `pytest.mark.parametrize`, in one case: every row is tried, and the failure lists all that failed.

    A row has a folder of its own for `tmp_path`, and what it patches by `monkeypatch` is put back after it.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [tuple(row) if len(keys) > 1 else (row,) for row in rows]

    def decorate(test: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(test)
        def through_all(**fixtures: Any) -> None:
            assert table, "there is no row to try"
            failed, skipped = list[str](), list[str]()
            for number, row in enumerate(table):
                try:
                    _try(test, dict(zip(keys, row, strict=True)), fixtures, number)
                except pytest.skip.Exception as reason:
                    skipped.append(str(reason))
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - all rows are tried
                    shown = traceback.format_exc() if len(failed) < SHOWN else f"{error}"[:200]
                    failed.append(f"{number}: {_words(row)}\n{shown}")
            if failed:
                pytest.fail(f"{len(failed)} of {len(table)} rows:\n" + "\n".join(failed), pytrace=False)
            if len(skipped) == len(table):
                pytest.skip(skipped[0])

        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        through_all.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return through_all

    return decorate


def _try(test: Callable[..., Any], row: dict[str, Any], fixtures: dict[str, Any], number: int) -> None:
    own = dict(fixtures)
    if "tmp_path" in own:
        own["tmp_path"] = own["tmp_path"] / str(number)
        own["tmp_path"].mkdir()
    if "capsys" in own:
        own["capsys"].readouterr()
    if "monkeypatch" not in own:
        test(**own, **row)
        return
    with pytest.MonkeyPatch.context() as patch:
        own["monkeypatch"] = patch
        test(**own, **row)


def _words(row: tuple[Any, ...]) -> str:
    return ", ".join(repr(value)[:100] for value in row)
