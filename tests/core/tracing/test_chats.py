"""Chats as the model will read them: what is doubtful of them, by a child process; what a plan says; `trainwiz data show`."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.data.detect import detect_columns
from trainwiz.core.plan.gather import plan_run
from trainwiz.core.plan.result import Plan
from trainwiz.core.tracing import chats as client
from trainwiz.core.tracing.chats import ChatLook, look_at_chats, look_at_rows
from trainwiz.core.training.look import answer
from trainwiz.tui.cli import main

from tests.core.data.builders import config_of, write
from tests.core.plan.machines import machine
from tests.core.training.tokenizers_for_tests import small_tokenizer
from tests.each import each

USER, ASSISTANT = {"role": "user", "content": "the old fox"}, {"role": "assistant", "content": "sees stones"}
CHAT = [USER, ASSISTANT]
TURN = "{{ m.role + ': ' + m.content + eos_token }}"
PLAIN = "{% for m in messages %}" + TURN + "{% endfor %}"
THOUGHT = {"role": "assistant", "content": "<think>the red cat</think>sees stones"}


def model_folder(folder: Path, template: str | None) -> Path:
    """A model that begins from scratch, with a tokenizer of its own."""
    place = folder / "model"
    shutil.rmtree(place, ignore_errors=True)
    tokenizer = small_tokenizer(folder)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(place)
    config = {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 400, "hidden_size": 16,
        "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
    }  # fmt: skip
    (place / "config.json").write_text(json.dumps(config))
    return place


def chats_in(path: Path, *rows: list[dict[str, Any]]) -> Path:
    return write(path, "\n".join(json.dumps({"messages": turns}) for turns in rows))


def config_with(folder: Path, template: str | None, *rows: list[dict[str, Any]], **changes: Any) -> RunConfig:
    path = chats_in(folder / "a.jsonl", *rows)
    config = detect_columns(config_of("causal-lm", {"name": str(path)}, **changes.pop("data", {})))
    values = {"model.name": str(model_folder(folder, template)), "model.init": "scratch", "model.chat_template": "own"}
    return config.with_values({**values, **changes}, "you")


def looked(folder: Path, template: str | None, *rows: list[dict[str, Any]], **changes: Any) -> ChatLook:
    config = config_with(folder, template, *rows, **changes)
    asked = {"config": config.model_dump(mode="json"), "folder": str(folder), "show": [0]}
    return ChatLook.from_json(json.loads(json.dumps(answer(asked).to_json())))


@each(("template", "rows", "codes"), [
    (PLAIN, [CHAT, [USER, {**ASSISTANT, "content": "no"}]], set()),
    (PLAIN, [CHAT, CHAT], {"duplicates"}),
    (PLAIN.replace(" + eos_token", " + '.'"), [CHAT], {"end_not_learnt"}),
    ("{{ bos_token }}{{ bos_token }}" + PLAIN, [CHAT], {"bos_twice"}),
    (PLAIN, [[USER, USER, ASSISTANT]], {"roles_repeat"}),
    (PLAIN.replace(TURN, "{% if m.role != 'system' %}" + TURN + "{% endif %}"), [[{"role": "system", "content": "tall"}, *CHAT]], {"system_dropped"}),
    (PLAIN.replace("m.content", "m.content.split('</think>')[-1]"), [[USER, THOUGHT]], {"thoughts_dropped"}),
    (PLAIN, [[{**USER, "content": "the </s> fox"}, ASSISTANT]], {"marks_in_text"}),
    ("{{ raise_exception('never') }}", [CHAT], {"template_refuses"}),
    ("{% for m in messages %}{% if loop.last or m.role == 'user' %}" + TURN + "{% endif %}{% endfor %}", [[*CHAT, *CHAT]], {"template_changes"}),
])  # fmt: skip
def test_what_is_doubtful(tmp_path: Path, template: str, rows: list[list[dict[str, Any]]], codes: set[str]) -> None:
    look = looked(tmp_path, template, *rows)
    assert {doubt.code for doubt in look.doubts} == codes and not look.problem
    for doubt in look.doubts:
        line = 2 if doubt.code == "duplicates" else 1
        assert doubt.place == f"{tmp_path / 'a.jsonl'}, line {line}" and doubt.rows == 1


def test_nothing_learnt_and_held_out_rows_that_are_trained_on(tmp_path: Path) -> None:
    held = chats_in(tmp_path / "held.jsonl", CHAT)
    look = looked(
        tmp_path, PLAIN, CHAT, [USER, {**ASSISTANT, "content": ""}],
        data={"validation_sources": [{"name": str(held), "layout": "chat", "text_column": "messages"}]},
    )  # fmt: skip
    assert {doubt.code for doubt in look.doubts} == {"held_out_is_trained"}
    (lengths,), (learnt,), (ends,) = look.lengths, look.learnt, look.ends
    assert lengths[0] == ends[0] > learnt[0] > learnt[1]
    (shown,) = look.shown
    assert "".join(shown.pieces) == "user: the old fox</s>assistant: sees stones</s>"
    assert "".join(itertools.compress(shown.pieces, shown.learnt)) == "assistant: sees stones</s>"
    assert [role for role, _ in shown.turns] == ["user", "assistant"] and shown.turns[-1][1] == len(shown.pieces)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the child does, without the seconds of its imports; `data show` of tests/acceptance/test_docs.py has the child."""

    def asked(config: RunConfig, folder: Path, show: tuple[int, ...]) -> ChatLook:
        return answer({"config": config.model_dump(mode="json"), "folder": str(folder), "show": list(show)})

    monkeypatch.setattr(client, "_asked", asked)


@pytest.mark.usefixtures("in_this_process")
def test_rows_are_looked_at_once_and_what_was_found_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_with(tmp_path, PLAIN, CHAT, CHAT)
    first = look_at_chats(config, tmp_path)
    assert first is not None and [doubt.code for doubt in first.doubts] == ["duplicates"] and not first.problem
    mine = tmp_path / "mine.jinja"
    mine.write_text(PLAIN)
    named = config.with_values({"model.chat_template": str(mine)}, "you")
    monkeypatch.setattr(client, "_asked", lambda *asked: first)
    assert look_at_chats(named, tmp_path) == first
    monkeypatch.setattr(client, "_asked", lambda *asked: ChatLook.nothing("asked again"))
    assert look_at_chats(config, tmp_path) == first
    mine.write_text(PLAIN + "!")
    assert look_at_rows(named, tmp_path, (0,)).problem == "asked again", "its template was changed"
    chats_in(tmp_path / "a.jsonl", CHAT, CHAT, CHAT)
    assert look_at_rows(config, tmp_path, (0,)).problem == "asked again"


def planned(folder: Path, template: str | None, *rows: list[dict[str, Any]], **changes: Any) -> Plan:
    data = str(chats_in(folder / "a.jsonl", *rows))
    named = {"model.name": str(model_folder(folder, template)), "model.init": "scratch", "data.sources.0.name": data}
    return plan_run(PlanRequest(overrides={**named, **changes}), machine(None))


@pytest.mark.usefixtures("in_this_process")
def test_what_a_plan_says(tmp_path: Path) -> None:
    long = [USER, {**ASSISTANT, "content": "stones " * 60}]
    plan = planned(tmp_path, PLAIN, CHAT, long, [USER, USER, ASSISTANT], **{"batch.sequence_length": 40})
    found = {finding.code: finding for finding in plan.findings}
    assert plan.config.model.chat_template == "own" and plan.data is not None and plan.data.length_unit == "tokens"
    assert found["what_is_learnt"].severity == "note" and "the answers" in found["what_is_learnt"].message
    assert found["roles_repeat"].message.startswith("In 1 of 3 chats") and "line 3" in found["roles_repeat"].message
    cut = found["answers_cut"]
    assert cut.severity == "warning" and cut.message.startswith("33% of the chats exceed 40 tokens")
    assert [remedy.changes for remedy in cut.remedies] == [{"batch.sequence_length": 128}, {"data.too_long": "drop"}]
    dropped = planned(tmp_path, PLAIN, CHAT, long, **{"batch.sequence_length": 40, "data.too_long": "drop"})
    assert dropped.data is not None and dropped.data.rows == 1
    assert {"rows_left_out"} <= {finding.code for finding in dropped.findings}
    refused = planned(tmp_path, "{{ raise_exception('System role not supported') }}", CHAT)
    (error,) = refused.errors
    assert error.code == "template_refuses" and "the template reports: System role not supported." in error.message
    assert [remedy.changes for remedy in error.remedies] == [{"model.chat_template": "chatml"}]
    none = planned(tmp_path, None, CHAT)
    assert none.config.model.chat_template == "chatml" and not none.errors


@pytest.mark.usefixtures("in_this_process")
def test_a_row_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = chats_in(tmp_path / "a.jsonl", CHAT, [USER, {**ASSISTANT, "content": "[bold]red\x1b[31m"}])
    show = ["data", "show", str(data), "--model", str(model_folder(tmp_path, PLAIN))]
    assert main([*show, "--row", "2"]) == 0
    out = capsys.readouterr().out
    assert all(words in out.replace("│", "") for words in ("⟦", "⟧", "assistant", "[bold]", "a.jsonl, line 2"))
    assert "\x1b[31m" not in out
    assert main([*show, "--row", "9"]) == 2
    assert "Row 9 is not among the rows that were read" in capsys.readouterr().err
    assert main([*show, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["look"]["shown"][0]["learnt"].count(True) > 0
