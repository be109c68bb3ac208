"""A glance: columns and first rows of what can be read, and of what cannot be used yet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.data.summary import GLANCE_ROWS, LONGEST_CELL, Glance, glance_at

from tests.core.data.builders import parquet, write


def glance(path: Path | str, task: str = "seq2seq", **source: object) -> Glance | None:
    return glance_at(RunConfig.model_validate({"task": task, "data": {"sources": [{"name": str(path), **source}]}}))


def jsonl(path: Path, *rows: object) -> Path:
    return write(path, "\n".join(json.dumps(row, ensure_ascii=False) for row in rows))


def found(path: Path | str, task: str = "seq2seq", **source: object) -> Glance:
    result = glance(path, task, **source)
    assert result is not None
    return result


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet"])
def test_an_empty_target_is_not_a_missing_one(tmp_path: Path, kind: str) -> None:
    rows = [{"prompt": "a", "response": ""}, {"prompt": "b", "response": None}, {"prompt": "c", "response": "d"}]
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        parquet(path, prompt=["a", "b", "c"], response=["", None, "d"])
    elif kind == "json":
        write(path, json.dumps(rows))
    else:
        jsonl(path, *rows)
    result = found(path)
    assert [row[1] for row in result.rows] == ["", None, "d"]
    assert (result.text, result.target, result.has_target) == (0, 1, True)


def test_columns_that_nobody_named_are_shown_all_the_same(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"first": "x", "second": "y", "n": 1})
    result = found(path)
    assert [column.name for column in result.columns] == ["first", "second", "n"]
    assert [column.is_text for column in result.columns] == [True, True, False]
    assert (result.text, result.target) == (None, None)
    assert found(path, text_column="second").text == 1


def test_rows_before_a_broken_one_are_shown(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"row {number}"}) for number in range(150)]
    path = write(tmp_path / "a.jsonl", "\n".join([*lines, "{broken"]))
    assert found(path, "causal-lm").rows[0] == ("row 0",)
    cells = write(tmp_path / "a.csv", 'text\none\ntwo\n"three\n')
    assert found(cells, "causal-lm").rows == (("one",), ("two",))


def test_huge_cells_are_cut_and_rows_are_few(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", *({"text": "x" * 100_000} for _ in range(40)))
    rows = found(path, "causal-lm").rows
    assert len(rows) == GLANCE_ROWS
    assert {len(row[0] or "") for row in rows} == {LONGEST_CELL}


def test_a_column_is_named_by_its_position_where_its_name_could_mean_another(tmp_path: Path) -> None:
    headless = found(write(tmp_path / "a.tsv", "Hi there, you!\t你好。\nBye.\t再见。\n"), "seq2seq")
    assert [headless.setting_of(place) for place in (0, 1)] == ["0", "1"]
    named = found(parquet(tmp_path / "a.parquet", prompt=["a"], response=["b"]))
    assert [named.setting_of(place) for place in (0, 1)] == ["prompt", "response"]
