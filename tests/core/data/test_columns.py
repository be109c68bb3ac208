"""Which columns are taken and what is refused; the first rows at a glance; files in the shape of published sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.data.detect import detect_columns
from trainwiz.core.data.summary import GLANCE_ROWS, LONGEST_CELL, Glance, glance_at, summarize_data
from trainwiz.core.data.texts import TextRows, load_text_rows
from trainwiz.core.errors import Finding
from trainwiz.core.plan.gather import plan_run
from trainwiz.core.plan.result import Plan

from tests.core.data.builders import MESSAGES, config_of, parquet, refused, rows_in, write
from tests.core.plan.machines import machine
from tests.each import each

ZH, EN = ["你好。", "再见。"], ["Hello.", "Bye."]


def _config(path: Path | str, task: str = "seq2seq", **source: object) -> RunConfig:
    return config_of(task, {"name": str(path), **source}, validation_rows=0)


def _rows(folder: Path, path: Path | str, task: str = "seq2seq", **source: object) -> TextRows:
    return load_text_rows(_config(path, task, **source), folder)


def _pairs(rows: TextRows) -> tuple[list[str], list[str]]:
    assert rows.targets is not None
    return list(rows.texts), list(rows.targets)


def _message(path: Path | str, task: str = "seq2seq", **source: object) -> str:
    (message,) = refused(_config(path, task, **source))
    return message


@each("names", [
    "prompt response", "source target", "instruction output", "question answer", "src tgt", "input completion",
    "Source Translation", "text summary",
])  # fmt: skip
def test_usual_names_of_pairs(tmp_path: Path, names: str) -> None:
    text, target = names.split()
    path = parquet(tmp_path / "a.parquet", **{"id": ["1", "2"], target: EN, text: ZH})
    assert _pairs(_rows(tmp_path, path)) == (ZH, EN)


def test_fields_of_a_struct_are_columns_and_one_that_is_null_is_an_empty_row(tmp_path: Path) -> None:
    pairs: list[Any] = [{"zh": zh, "en": en} for zh, en in zip(ZH, EN, strict=True)]
    columns = {"text_column": "translation.zh", "target_column": "translation.en"}
    for form in ("parquet", "jsonl", "json"):
        path = rows_in(tmp_path / f"a.{form}", [{"translation": pair, "id": 1} for pair in pairs])
        assert _pairs(_rows(tmp_path, path, **columns)) == (ZH, EN)
        # Which is the source is not guessed.
        assert all("translation.zh, translation.en" in message for message in refused(_config(path)))
        assert set(summarize_data(_config(path, **columns)).columns) == {"id", "translation.zh", "translation.en"}
    pairs = [pairs[0], None, {"zh": None, "en": "Bye."}]
    for form in ("parquet", "jsonl"):
        path = rows_in(tmp_path / f"b.{form}", [{"translation": pair} for pair in pairs])
        summary = summarize_data(_config(path, **columns))
        (finding,) = summary.findings
        assert summary.rows == 1 and finding.message.startswith("2 empty rows") and finding.message.endswith(" 2).")


def test_the_other_of_two_columns_is_the_target_and_positions_need_no_header(tmp_path: Path) -> None:
    named = write(tmp_path / "a.tsv", "zh\ten\n你好。\tHello.\n")
    bare = write(tmp_path / "b.tsv", "Hi.\t嗨。\tCC-BY 1\nHello.\t你好。\tCC-BY 2\n")
    assert _pairs(_rows(tmp_path, named, text_column="zh")) == (["你好。"], ["Hello."])
    assert _pairs(_rows(tmp_path, bare, text_column=1, target_column="0")) == (["嗨。", "你好。"], ["Hi.", "Hello."])


def test_what_is_refused(tmp_path: Path) -> None:
    pair = parquet(tmp_path / "a.parquet", zh=ZH, en=EN)
    assert "same column 'zh'" in _message(pair, text_column="zh", target_column=0)
    assert "Did you mean 'en'?" in _message(pair, text_column="zh", target_column="eng")
    assert "has no column at position 2" in _message(pair, text_column=0, target_column=2)
    assert "has no target column; its columns: text" in _message(write(tmp_path / "a.txt", "Hello.\n"))
    twice = write(tmp_path / "twice.csv", "text,text\na,b\n")
    assert "has 2 columns named 'text'; choose by position" in _message(twice, "causal-lm", text_column="text")
    chat = write(tmp_path / "a.jsonl", '{"messages": [{"role": "user"}]}\n')
    assert "list of chat turns. Set" in _message(chat, "causal-lm")
    assert "causal language models train on chats" in _message(chat)


def test_many_and_endless_names_stay_one_short_sentence(tmp_path: Path) -> None:
    names = ["y" * 40, "x" * 41, *(f"c{number}" for number in range(24))]
    path = write(tmp_path / "a.tsv", "\t".join(names) + "\n" + "\t".join("a" * 26) + "\n")
    message = _message(path, text_column="nothing", target_column="c1")
    assert "y" * 40 + ", " + "x" * 39 + "\u2026, c0" in message and "c17 and 6 more. Set" in message


def test_a_causal_model_is_not_given_prompts_alone_by_accident(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", prompt=ZH, response=EN)
    message = _message(path, "causal-lm")
    assert "'prompt' and 'response'" in message and "data.sources.0.target_column" in message
    alone = _rows(tmp_path, path, "causal-lm", text_column="prompt")
    assert alone.targets is None and list(alone.texts) == ZH
    assert _pairs(_rows(tmp_path, path, "causal-lm", text_column="prompt", target_column="response")) == (ZH, EN)


def test_columns_that_leave_no_doubt_are_detected_with_their_reason(tmp_path: Path) -> None:
    path = parquet(tmp_path / "alpaca.parquet", instruction=ZH, note=["", "x"], output=EN)
    config = detect_columns(_config(path, "causal-lm"))
    plain = detect_columns(_config(parquet(tmp_path / "plain.parquet", id=["1", "2"], text=EN), "causal-lm"))
    columns = [(one.data.sources[0].text_column, one.data.sources[0].target_column) for one in (config, plain)]
    assert columns == [("instruction", "output"), ("text", None)]
    origin = config.origin("data.sources.0.target_column")
    assert (origin.origin, origin.reason) == ("detected", "detected in alpaca.parquet; not used: note")


@pytest.mark.parametrize("task", ["causal-lm", "seq2seq"])
def test_what_is_in_doubt_stays_open(tmp_path: Path, task: str) -> None:
    for path in (parquet(tmp_path / "a.parquet", zh=ZH, en=EN), "no/such-set", tmp_path / "gone.csv"):
        config = _config(path, task)
        assert detect_columns(config) == config
    named = _config(parquet(tmp_path / "b.parquet", prompt=ZH, response=EN), task, text_column="response")
    assert detect_columns(named).data.sources[0].text_column == "response"


def found(path: Path | str, task: str = "seq2seq", **source: object) -> Glance:
    result = glance_at(_config(path, task, **source))
    assert result is not None
    return result


@each("kind", ["jsonl", "parquet"])
def test_an_empty_target_is_not_a_missing_one_and_all_columns_are_shown(tmp_path: Path, kind: str) -> None:
    rows = [{"prompt": "a", "response": ""}, {"prompt": "b", "response": None}, {"prompt": "c", "response": "d"}]
    result = found(rows_in(tmp_path / f"a.{kind}", rows))
    assert [row[1] for row in result.rows] == ["", None, "d"] and (result.text, result.target) == (0, 1)
    result = found(rows_in(tmp_path / f"b.{kind}", [{"first": "x", "second": "y", "n": 1}]))
    assert [column.name for column in result.columns if column.is_text] == ["first", "second"]
    assert (result.text, result.target) == (None, None)


def test_rows_before_a_broken_one_are_shown_huge_cells_cut_and_rows_few(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"row {number}"}) for number in range(150)]
    path = write(tmp_path / "a.jsonl", "\n".join([*lines, "{broken"]))
    assert found(path, "causal-lm").rows[0] == ("row 0",)
    cells = write(tmp_path / "a.csv", 'text\none\ntwo\n"three\n')
    assert found(cells, "causal-lm").rows == (("one",), ("two",))
    rows = found(rows_in(tmp_path / "b.jsonl", [{"text": "x" * 100_000}] * 40), "causal-lm").rows
    assert [len(row[0] or "") for row in rows] == [LONGEST_CELL] * GLANCE_ROWS


def test_a_column_is_named_by_its_position_where_its_name_could_mean_another(tmp_path: Path) -> None:
    headless = found(write(tmp_path / "a.tsv", "Hi there, you!\t你好。\nBye.\t再见。\n"), "seq2seq")
    assert [headless.setting_of(place) for place in (0, 1)] == ["0", "1"]
    named = found(parquet(tmp_path / "a.parquet", prompt=["a"], response=["b"]))
    assert [named.setting_of(place) for place in (0, 1)] == ["prompt", "response"]


CPU = machine(None)
TURNS = [{"from": "human", "value": "Hello there"}, {"from": "gpt", "value": "Hi, what can I do?"}]
SETS: dict[str, dict[str, Any]] = {
    "sharegpt": {"id": "abc_0", "conversations": TURNS},
    "preferences": {"chosen": MESSAGES, "rejected": MESSAGES},
    "dpo": {"question": "Who?", "chosen": "He.", "rejected": "I."},
    "kto": {"prompt": "Who?", "completion": "I.", "label": False},
    "oasst": {
        "message_id": "6ab2", "parent_id": None, "user_id": "c3fe", "text": "Hello", "role": "prompter", "lang": "en",
        "message_tree_id": "6ab2", "source": "web",
    },
    "squad": {"id": "5733", "title": "T", "context": "C", "question": "Q?", "answers": {"text": ["A"], "answer_start": [1]}},
    "alpaca": {"instruction": "Add the numbers.", "input": "1 2", "output": "3"},
    "dolly": {"instruction": "Who?", "context": "Long.", "response": "He.", "category": "closed_qa"},
    "gsm8k": {"question": "1+1?", "answer": "2"},
    "plain": {"text": "Once upon a time there was a house."},
    "wiki": {"text": "A house is a building.", "categories": ["Building"]},
    "labels": {"id": "x1", "score": 0.5},
}  # fmt: skip


def planned(path: Path, **values: Any) -> Plan:
    overrides = {"model.name": "qwen2-tiny", "data.sources.0.name": str(path), **values}
    return plan_run(PlanRequest(overrides=overrides), CPU)


def by_code(plan: Plan) -> dict[str, Finding]:
    return {finding.code: finding for finding in plan.findings}


@each("form", ["jsonl", "parquet"])
@each(("name", "code", "words"), [
    ("sharegpt", None, "'conversations' is a list of chat turns"),
    ("preferences", "structured_columns", "is preference data"),
    ("dpo", "structured_columns", "is preference data"),
    ("kto", "structured_columns", "is preference data"),
    ("oasst", "structured_columns", "OpenAssistant"),
    ("squad", "structured_columns", "is a list"),
    ("wiki", "structured_columns", "is a list"),
    ("labels", "missing_column", "does not indicate which column"),
    ("alpaca", None, "an instruction with additional columns: 'input'"),
    ("dolly", None, "an instruction with additional columns: 'context'"),
    ("gsm8k", None, ""),
    ("plain", None, ""),
])  # fmt: skip
def test_what_a_file_is(tmp_path: Path, name: str, form: str, code: str | None, words: str) -> None:
    plan = planned(rows_in(tmp_path / f"{name}.{form}", [SETS[name]] * 50))
    found = by_code(plan)
    about_data = {one for one in found if found[one].where.startswith("data.sources") and found[one].severity != "note"}
    assert about_data == ({code} if code else set()), plan.findings
    source, reason = plan.config.data.sources[0], plan.config.origin("data.sources.0.layout").reason
    if code is None:
        assert words in reason and (source.layout == "chat") == bool(words)
        return
    finding = found[code]
    assert words in finding.message and "\n" not in finding.message and (finding.remedies or code == "missing_column")
    assert finding.severity == "error" and source.text_column is None and source.target_column is None
    for remedy in finding.remedies:
        if remedy.changes:
            after = by_code(planned(tmp_path / f"{name}.{form}", **remedy.changes))
            assert not {"structured_columns", "missing_column", "not_text"} & set(after)


def test_a_list_that_is_named_is_a_chat_or_leads_in_no_circle(tmp_path: Path) -> None:
    path = rows_in(tmp_path / "sharegpt.jsonl", [SETS["sharegpt"]])
    named = {"data.sources.0.text_column": "conversations"}
    assert planned(path, **named).config.data.sources[0].layout == "chat"
    finding = by_code(planned(path, **named, **{"data.sources.0.layout": "plain"}))["not_text"]
    assert "contains a list, not text, in column" in finding.message and not any(
        remedy.changes for remedy in finding.remedies
    )


def test_of_named_columns_what_belongs_to_the_prompt_is_missed(tmp_path: Path) -> None:
    named = {"data.sources.0.text_column": "instruction", "data.sources.0.target_column": "output"}
    path = rows_in(tmp_path / "alpaca.jsonl", [SETS["alpaca"]])
    finding = by_code(planned(path, **named))["unused_prompt_column"]
    assert "'input'" in finding.message and finding.severity == "warning"
    after = planned(path, **named, **(finding.remedies[0].changes or {}))
    assert "unused_prompt_column" not in by_code(after)
    assert after.config.data.sources[0].chat_columns == {"context": "input"}
