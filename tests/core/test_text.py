"""JSON of others whatever its depth and numbers, lines for people, and moments in words."""

from __future__ import annotations

import json
import math
import time
import unicodedata
from pathlib import Path

import pytest
from trainwiz.core.catalog.models import resolve_model
from trainwiz.core.config.run import ModelSection
from trainwiz.core.errors import UsageError
from trainwiz.core.export.deepspeed import read_deepspeed_file
from trainwiz.core.run.folder import read_json, write_json_atomic
from trainwiz.core.text import finite, is_moment, is_text, json_line, moment_words, parse_json

from tests.each import each

DEEP = "[" * 100_000


def test_depth_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(DEEP)
    with pytest.raises(json.JSONDecodeError):
        parse_json("{")
    assert parse_json(b'{"a": [1]}') == {"a": [1]}


def test_a_number_of_any_length_can_be_reckoned_with() -> None:
    text = f"[{10**18 - 1}, {-(10**17)}, {10**400}, {-(10**30)}]"
    assert parse_json(text) == [10**18 - 1, -(10**17), math.inf, -1e30]
    assert [type(number) for number in parse_json("[1, 2.0]")] == [int, float]


def test_a_name_that_is_no_text_is_written_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for name in ("plain", "蛋白质", "bad\udcff"):
        write_json_atomic(path, {"name": name})
        assert read_json(path) == {"name": name}
    assert is_text("蛋白质")
    assert not is_text("bad\udcff")


def test_a_model_config_or_a_deepspeed_file_of_any_depth_is_one_finding(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(DEEP, encoding="utf-8")
    spec, findings = resolve_model(ModelSection(name=str(tmp_path)))
    assert spec is None
    assert [finding.code for finding in findings] == ["broken_model_config"]
    assert "nested too deeply" in findings[0].message
    with pytest.raises(UsageError, match="nested too deeply"):
        read_deepspeed_file(tmp_path / "config.json")


def test_what_json_cannot_hold_becomes_null() -> None:
    value = {"a": math.nan, 1: [math.inf, (-math.inf, 1.5)], "b": "NaN", "c": True}
    assert finite(value) == {"a": None, "1": [None, [None, 1.5]], "b": "NaN", "c": True}


def test_a_line_for_people_shows_letters_and_hides_what_a_terminal_would_obey() -> None:
    texts = [
        "中文 é 　😀", "\x1b[31m", "\x9b31m", "\x7f\x08", "\u202eevil", "a\u2028b\x85c", "\ud800", "[red]", '\\u009b"',
    ]  # fmt: skip
    line = json_line({"text": texts})
    assert json.loads(line)["text"] == texts
    assert line.isascii() is False and "中文 é" in line and "😀" in line and len(line.splitlines()) == 1
    assert not {character for character in line if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}


def test_a_moment_is_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert moment_words(1_795_269_731.0) == "2026-11-21 14:02"
    assert moment_words(1_795_269_731.0, "%H:%M:%S") == "14:02:11"


@each("time_s", [math.nan, math.inf, -math.inf, 1e300, -1e18])
def test_a_time_that_no_calendar_has_is_said_to_be_unknown(time_s: float) -> None:
    assert not is_moment(time_s)
    assert moment_words(time_s) == "an unknown time"
