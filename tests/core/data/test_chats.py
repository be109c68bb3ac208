"""Rows of every known form as chats; what is wrong with a row; the same rows from every format, streamed or not."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.data.chats import messages_of
from trainwiz.core.data.detect import detect_columns
from trainwiz.core.data.summary import summarize_data
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.errors import UsageError

from tests.core.data.builders import MESSAGES, TURNS, config_of, refused, rows_in, write
from tests.each import each

SHAREGPT = [{"from": {"user": "human", "assistant": "gpt"}.get(role, role), "value": said} for role, said in TURNS]
CALL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
FORMS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "messages": ({"messages": MESSAGES, "prompt": "Hello"}, MESSAGES),
    "sharegpt": ({"id": "abc_0", "conversations": SHAREGPT}, MESSAGES),
    "sharegpt with a system column": ({"system": "Be short.", "conversations": SHAREGPT[1:]}, MESSAGES),
    "answers of a prompt are not learnt": (
        {"prompt": [*MESSAGES, MESSAGES[1]], "completion": MESSAGES[2:]},
        [*MESSAGES[:2], {**MESSAGES[2], "learn": False}, MESSAGES[1], MESSAGES[2]],
    ),
    "alpaca": (
        {"instruction": "Add.", "input": "1 2", "output": "3", "system": "Count.", "history": [["Hi", "Hello"]]},
        [
            {"role": "system", "content": "Count."}, {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "Add.\n1 2"},
            {"role": "assistant", "content": "3"},
        ],
    ),
    "an answer that looks like a list": (
        {"instruction": "List them.", "context": "", "response": '[{"name": "fox"}]', "category": "qa"},
        [{"role": "user", "content": "List them."}, {"role": "assistant", "content": '[{"name": "fox"}]'}],
    ),
    "parts of a content": (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}, {"role": "assistant", "content": [{"type": "text", "text": "Hi."}]}]},
        MESSAGES[1:],
    ),
    "tools": (
        {
            "messages": [
                MESSAGES[1], {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "content": "2", "tool_call_id": "1"}, {**MESSAGES[2], "weight": 0}, MESSAGES[2],
            ]
        },
        [
            MESSAGES[1],
            {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}]},
            {"role": "tool", "content": "2"}, {**MESSAGES[2], "learn": False}, MESSAGES[2],
        ],
    ),
}  # fmt: skip


def found(path: Path, **data: Any) -> RunConfig:
    return detect_columns(config_of("causal-lm", {"name": str(path)}, validation_rows=0, **data))


@each("form", ["jsonl", "json", "parquet", "jsonl.gz"])
@each("name", list(FORMS))
def test_a_row_of_every_form_is_its_chat(tmp_path: Path, name: str, form: str) -> None:
    row, expected = FORMS[name]
    empty = {**row, **dict.fromkeys(("messages", "conversations", "completion", "output", "response"), None)}
    path = rows_in(tmp_path / f"a.{form}", [row, {key: empty[key] for key in row}, row, row, row])
    config = found(path)
    assert config.data.sources[0].layout == "chat"
    memory = load_text_rows(config, tmp_path)
    assert [messages_of(chat) for chat in memory.texts] == [(expected, None)] * 4, "a row without an answer is left out"
    streamed = load_text_rows(found(path, streaming=True), tmp_path)
    assert list(streamed.texts) == list(memory.texts) and streamed.targets is None and streamed.are_chats
    assert summarize_data(config).rows == 4


def test_tools_go_along_and_limits_count_what_is_said(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
    path = rows_in(tmp_path / "a.jsonl", [{"messages": MESSAGES, "tools": tools}, {"messages": MESSAGES * 9}])
    config = detect_columns(config_of("causal-lm", {"name": str(path)}, validation_rows=0, max_characters=40))
    assert [messages_of(chat) for chat in load_text_rows(config, tmp_path).texts] == [(MESSAGES, tools)]


@each(("turns", "sentence"), [
    ([{"role": "narrator", "content": "x"}], "turn 1 has the role 'narrator'; supported roles: user, assistant, system, tool."),
    ([MESSAGES[1], {"content": "x"}], "turn 2 has no role (its keys: content)."),
    ([{"role": "user", "text": "x"}], "turn 1 has no content (its keys: role, text)."),
    (["Hello", "Hi."], "turn 1 is not an object with a role and content."),
    ([{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}], "turn 1 contains 'image_url'; only text can be trained on."),
    ([{"role": "user", "content": 5}], "the content of turn 1 is not text."),
    ([{"role": "assistant", "tool_calls": [{"function": {}}]}], "turn 1 calls a tool without a name."),
])  # fmt: skip
def test_a_row_that_is_no_chat_is_named_with_its_line(tmp_path: Path, turns: list[Any], sentence: str) -> None:
    path = rows_in(tmp_path / "a.jsonl", [{"messages": MESSAGES}, {"messages": turns}])
    assert refused(found(path)) == [f"{path}, line 2: {sentence}"]


def test_a_bare_pair_is_a_chat_only_where_there_is_a_template(tmp_path: Path) -> None:
    path = rows_in(tmp_path / "a.jsonl", [{"question": "1+1?", "answer": "2", "n": 1}] * 3)
    config = config_of("causal-lm", {"name": str(path)})
    plain, chat = (detect_columns(config, has_template=lambda there=there: there) for there in (False, True))
    assert plain.data.sources[0].layout is None and plain.data.sources[0].target_column == "answer"
    assert chat.data.sources[0].layout == "chat" and chat.data.sources[0].target_column == "answer"
    why = chat.origin("data.sources.0.layout").reason
    assert "'question' becomes the user turn, 'answer' the assistant turn" in why
    named = config_of("causal-lm", {"name": str(path), "text_column": "question", "layout": "plain"})
    assert detect_columns(named, has_template=lambda: True) == named


def csv_of(path: Path, *rows: tuple[str, ...]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


ASKED, ANSWERED = json.dumps(MESSAGES[:2]), json.dumps(MESSAGES[2:])


@each("form", ["csv", "parquet"])
def test_a_prompt_and_its_answer_are_turns_where_all_rows_are(tmp_path: Path, form: str) -> None:
    rows = [(ASKED, ANSWERED)] * 3
    parquet = rows_in(tmp_path / "a.parquet", [{"prompt": ASKED, "completion": ANSWERED}] * 3)
    path = parquet if form == "parquet" else csv_of(tmp_path / "a.csv", ("prompt", "completion"), *rows)
    config = found(path)
    assert config.data.sources[0].json_turns and config.data.sources[0].layout == "chat"
    assert "'prompt' and 'completion' are lists of turns" in config.origin("data.sources.0.layout").reason
    for streaming in (False, True):
        texts = load_text_rows(found(path, streaming=streaming), tmp_path).texts
        assert [messages_of(chat) for chat in texts] == [(MESSAGES, None)] * 3
    late = csv_of(tmp_path / "b.csv", ("prompt", "completion"), *[(ASKED, ANSWERED)] * 40, ("Hello", ANSWERED))
    assert refused(found(late)) == [f"{late}, line 42 is text, but must be a list."]
    mixed = csv_of(tmp_path / "c.csv", ("prompt", "completion"), (ASKED, ANSWERED), ("List them", '[{"name": "fox"}]'))
    source = found(mixed).data.sources[0]
    assert source.layout is None and source.target_column == "completion", "not all are turns: texts"


def test_turns_in_cells_are_read_as_json_and_never_learnt_as_text(tmp_path: Path) -> None:
    config = found(csv_of(tmp_path / "good.csv", ("id", "messages"), *[("1", json.dumps(MESSAGES))] * 2))
    assert config.data.sources[0].layout == "chat" and config.data.sources[0].text_column == "messages"
    assert [messages_of(chat) for chat in load_text_rows(config, tmp_path).texts] == [(MESSAGES, None)] * 2
    path = csv_of(tmp_path / "a.csv", ("messages",), (str(MESSAGES),), (json.dumps(MESSAGES),))
    (said,) = refused(found(path))
    assert "line 2 contains a list that is not valid JSON" in said and "write it with json.dumps" in said


def test_a_run_has_chats_or_other_rows(tmp_path: Path) -> None:
    chats, plain = rows_in(tmp_path / "a.jsonl", [{"messages": MESSAGES}]), write(tmp_path / "b.txt", "Hello.\n")
    config = detect_columns(config_of("causal-lm", {"name": str(chats)}, {"name": str(plain)}))
    with pytest.raises(UsageError) as caught:
        summarize_data(config)
    assert [finding.code for finding in caught.value.findings] == ["mixed_layouts"]
