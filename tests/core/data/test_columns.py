"""Which columns are taken: named ones, positions, usual names, nested ones; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.data.columns import detect_columns
from trainwiz.core.data.summary import summarize_data
from trainwiz.core.data.texts import TextRows, load_text_rows
from trainwiz.core.errors import UsageError

from tests.core.data.builders import parquet, write
from tests.each import each

ZH, EN = ["你好。", "再见。"], ["Hello.", "Bye."]


def _config(path: Path | str, task: str = "seq2seq", **source: object) -> RunConfig:
    return RunConfig.model_validate(
        {"task": task, "data": {"sources": [{"name": str(path), **source}], "validation_rows": 0}}
    )


def _rows(folder: Path, path: Path | str, task: str = "seq2seq", **source: object) -> TextRows:
    return load_text_rows(_config(path, task, **source), folder)


def _message(path: Path | str, task: str = "seq2seq", **source: object) -> str:
    with pytest.raises(UsageError) as caught:
        summarize_data(_config(path, task, **source))
    (finding,) = caught.value.findings
    assert "\n" not in finding.message
    return finding.message


@each(
    ("text", "target"),
    [
        ("prompt", "response"),
        ("source", "target"),
        ("instruction", "output"),
        ("question", "answer"),
        ("src", "tgt"),
        ("input", "completion"),
        ("Source", "Translation"),
        ("text", "summary"),
    ],
)
def test_usual_names_of_pairs(tmp_path: Path, text: str, target: str) -> None:
    path = parquet(tmp_path / "a.parquet", **{"id": ["1", "2"], target: EN, text: ZH})
    rows = _rows(tmp_path, path)
    assert rows.targets is not None
    assert (list(rows.texts), list(rows.targets)) == (ZH, EN)


def test_fields_of_a_struct_are_columns(tmp_path: Path) -> None:
    pairs = [{"zh": zh, "en": en} for zh, en in zip(ZH, EN, strict=True)]
    lines = "\n".join(json.dumps({"translation": pair, "id": 1}) for pair in pairs)
    files = [
        parquet(tmp_path / "a.parquet", id=[1, 2], translation=pairs),
        write(tmp_path / "a.jsonl", lines),
        write(tmp_path / "a.json", f"[{','.join(lines.splitlines())}]"),
    ]
    for path in files:
        rows = _rows(tmp_path, path, text_column="translation.zh", target_column="translation.en")
        assert rows.targets is not None
        assert (list(rows.texts), list(rows.targets)) == (ZH, EN)
        assert "translation.zh, translation.en" in _message(path), "which is the source is not guessed"
        summary = summarize_data(_config(path, text_column="translation.en", target_column="translation.zh"))
        assert set(summary.columns) == {"id", "translation.zh", "translation.en"}


def test_a_struct_that_is_null_is_an_empty_row(tmp_path: Path) -> None:
    pairs = [{"zh": "你好。", "en": "Hello."}, None, {"zh": None, "en": "Bye."}]
    lines = "\n".join(json.dumps({"translation": pair}) for pair in pairs)
    for path in (parquet(tmp_path / "a.parquet", translation=pairs), write(tmp_path / "a.jsonl", lines)):
        summary = summarize_data(_config(path, text_column="translation.zh", target_column="translation.en"))
        (finding,) = summary.findings
        assert summary.rows == 1
        assert finding.message.startswith("2 empty rows") and finding.message.endswith(" 2).")


def test_the_other_of_two_columns_is_the_target_and_positions_need_no_header(tmp_path: Path) -> None:
    named = write(tmp_path / "a.tsv", "zh\ten\n你好。\tHello.\n")
    bare = write(tmp_path / "b.tsv", "Hi.\t嗨。\tCC-BY 1\nHello.\t你好。\tCC-BY 2\n")
    for rows, texts, targets in (
        (_rows(tmp_path, named, text_column="zh"), ["你好。"], ["Hello."]),
        (_rows(tmp_path, bare, text_column=1, target_column="0"), ["嗨。", "你好。"], ["Hi.", "Hello."]),
    ):
        assert rows.targets is not None
        assert (list(rows.texts), list(rows.targets)) == (texts, targets)


def test_what_is_refused(tmp_path: Path) -> None:
    pair = parquet(tmp_path / "a.parquet", zh=ZH, en=EN)
    assert "same column 'zh'" in _message(pair, text_column="zh", target_column=0)
    assert "did you mean 'en'" in _message(pair, text_column="zh", target_column="eng")
    assert "has no column at position 2" in _message(pair, text_column=0, target_column=2)
    assert "one text column, 'text', and none for the target" in _message(write(tmp_path / "a.txt", "Hello.\n"))
    twice = write(tmp_path / "twice.csv", "text,text\na,b\n")
    assert "has 2 columns 'text'; choose by position" in _message(twice, "causal-lm", text_column="text")
    chat = write(tmp_path / "a.jsonl", '{"messages": [{"role": "user"}]}\n')
    assert "list of chat turns (OpenAI messages)" in _message(chat, "causal-lm")


def test_a_causal_model_is_not_given_prompts_alone_by_accident(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", prompt=ZH, response=EN)
    message = _message(path, "causal-lm")
    assert "'prompt' and 'response'" in message and "data.sources.0.target_column" in message
    alone = _rows(tmp_path, path, "causal-lm", text_column="prompt")
    assert alone.targets is None and list(alone.texts) == ZH
    both = _rows(tmp_path, path, "causal-lm", text_column="prompt", target_column="response")
    assert both.targets is not None and list(both.targets) == EN


def test_columns_that_leave_no_doubt_are_detected_with_their_reason(tmp_path: Path) -> None:
    path = parquet(tmp_path / "alpaca.parquet", instruction=ZH, input=["", "x"], output=EN)
    config = detect_columns(_config(path, "causal-lm"))
    source = config.data.sources[0]
    assert (source.text_column, source.target_column) == ("instruction", "output")
    origin = config.origin("data.sources.0.target_column")
    assert origin.origin == "detected"
    assert origin.reason == "by its name in alpaca.parquet; not used: input"
    plain = parquet(tmp_path / "plain.parquet", id=["1", "2"], text=EN)
    assert detect_columns(_config(plain, "causal-lm")).data.sources[0].target_column is None
    assert detect_columns(_config(plain, "causal-lm")).data.sources[0].text_column == "text"


@pytest.mark.parametrize("task", ["causal-lm", "seq2seq"])
def test_what_is_in_doubt_stays_open(tmp_path: Path, task: str) -> None:
    for path in (parquet(tmp_path / "a.parquet", zh=ZH, en=EN), "no/such-set", tmp_path / "gone.csv"):
        config = _config(path, task)
        assert detect_columns(config) == config
    named = _config(parquet(tmp_path / "b.parquet", prompt=ZH, response=EN), task, text_column="response")
    assert detect_columns(named).data.sources[0].text_column == "response"
