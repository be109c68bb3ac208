"""Chats as tokens against TRL's own masks, template by template; what is learnt by each choice; real runs on chats."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.training.batches import IGNORED
from trainwiz.core.training.chats import (
    DATE,
    TODAY,
    ChatEncoder,
    ChatError,
    ChatTemplate,
    TrainOn,
    set_template,
    training_templates,
)
from trainwiz.core.training.tasks import load_task_rows
from transformers import PreTrainedTokenizerFast

from tests.core.training.runs import losses, text_config, train, write_run
from tests.core.training.tokenizers_for_tests import SENTENCES, small_tokenizer

MARK = re.compile(r"<[|｜][^<>{}]*?[|｜]>|<\w+_of_\w+>")
FAMILIES = {name: own for own, (name, _) in training_templates().items()}


def tokenizer_with(template: str, folder: Path) -> PreTrainedTokenizerFast:
    tokenizer = small_tokenizer(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": sorted(set(MARK.findall(template)))})
    tokenizer.chat_template = template
    return tokenizer


def conversations(count: int) -> list[list[dict[str, Any]]]:
    draw = random.Random(27)
    words = " ".join(SENTENCES).split()
    chats = []
    for _ in range(count):
        turns = [{"role": "system", "content": draw.choice(words)}] if draw.random() < 0.3 else []
        for _ in range(draw.randint(1, 4)):
            asked = " ".join(draw.choices(words, k=draw.randint(1, 9))) + draw.choice("?\n ")
            turns.append({"role": "user", "content": asked})
            turns.append({"role": "assistant", "content": " ".join(draw.choices(words, k=draw.randint(1, 15)))})
        chats.append(turns)
    return chats


def kept(turns: list[dict[str, Any]]) -> str:
    return json.dumps({"messages": turns})


def encoder_of(
    tokenizer: PreTrainedTokenizerFast, folder: Path, train_on: TrainOn = "answers", **model: Any
) -> ChatEncoder:
    config = text_config("qwen2-tiny", **{f"model__{key}": value for key, value in model.items()})
    return ChatEncoder(tokenizer, set_template(tokenizer, config, folder), 10_000, train_on)


def test_tokens_and_masks_are_those_of_trl_for_every_family(tmp_path: Path) -> None:
    """assistant_only_loss of TRL: its training template, and the mask that transformers makes of its marks."""
    utils = pytest.importorskip("trl.chat_template_utils")
    chats, compared, by_prefixes = conversations(4), 0, set()
    for name, own in FAMILIES.items():
        tokenizer = tokenizer_with(own, tmp_path)
        # Of the day it is rendered on it is otherwise theirs word for word.
        theirs = TODAY.sub(
            lambda found: repr(DATE.strftime(found.group(2))), utils.get_training_chat_template(tokenizer)
        )
        ours = encoder_of(tokenizer, tmp_path)
        plain = ChatEncoder(tokenizer, ChatTemplate(own, "prefixes"), 10_000, "answers")
        assert ours.template.family == name and tokenizer.chat_template == own
        for turns in chats:
            try:
                said = tokenizer.apply_chat_template(
                    turns, chat_template=theirs, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
                )
            except Exception:  # noqa: BLE001 - templates refuse in many ways: no system turn, contents as parts
                with pytest.raises(ChatError):
                    ours.whole(kept(turns))
                continue
            whole = ours.whole(kept(turns))
            assert whole.tokens.tolist() == said["input_ids"], name
            assert whole.learnt.astype(int).tolist() == said["assistant_masks"], name
            compared += 1
            try:
                found = plain.whole(kept(turns))
            except ChatError as error:
                assert error.code == "template_changes"
                continue
            if found.tokens.tolist() == said["input_ids"] and found.learnt.tolist() == whole.learnt.tolist():
                by_prefixes.add(name)
    assert len(FAMILIES) >= 25 and compared > 4 * 25
    # Found without any marks: templates that write each turn the same whatever follows.
    assert by_prefixes >= {"llama3", "gemma", "gemma3", "cohere", "lfm2", "qwen3_instruct_2507", "smolvlm"}


TALK = [
    {"role": "user", "content": "fox"}, {"role": "assistant", "content": "old"},
    {"role": "user", "content": "cat"}, {"role": "assistant", "content": "red", "learn": True},
]  # fmt: skip


def learnt_text(encoder: ChatEncoder, turns: list[dict[str, Any]]) -> str:
    tokens, labels = encoder.row(kept(turns))
    assert len(tokens) == len(labels)
    return str(encoder.tokenizer.decode(labels[labels != IGNORED]))


def test_what_is_learnt_by_choice_and_by_turn(tmp_path: Path) -> None:
    for name in ("qwen3_instruct_2507", "own marks", "chatml"):
        own = FAMILIES.get(name, FAMILIES["llama3"])
        own = training_templates()[own][1] if name == "own marks" else own
        tokenizer = tokenizer_with(own, tmp_path)
        choice = {"chat_template": "chatml"} if name == "chatml" else {}
        encoder = encoder_of(tokenizer, tmp_path, **choice)
        end = {"chatml": "</s>", "own marks": "<|eot_id|>"}.get(name, "<|im_end|>")
        after = "" if name == "own marks" else "\n"
        answers = [f"old{end}{after}", f"red{end}{after}"]
        assert learnt_text(encoder, TALK) == "".join(answers)
        assert learnt_text(encoder_of(tokenizer, tmp_path, "last_answer", **choice), TALK) == answers[1]
        assert learnt_text(encoder, [TALK[0], {**TALK[1], "learn": False}, *TALK[2:]]) == answers[1]
        everything = learnt_text(encoder_of(tokenizer, tmp_path, "everything", **choice), TALK)
        assert "fox" in everything and "cat" in everything and answers[1] in everything
        prompt = tokenizer.decode(encoder.prompt(kept(TALK), 1000))
        assert "old" in prompt and "red" not in prompt
        assert prompt.rstrip().endswith(("assistant", "<|end_header_id|>"))
        assert encoder.lengths([kept(TALK)], None) == [len(encoder.row(kept(TALK))[0])]
    short = ChatEncoder(tokenizer, encoder.template, 9, "answers")
    assert len(short.row(kept(TALK))[0]) == 9


def test_a_template_that_says_today_says_one_day(tmp_path: Path) -> None:
    tokenizer = tokenizer_with("{{ strftime_now('%Y') }}{% for m in messages %}{{ m.content }}{% endfor %}", tmp_path)
    assert "2024" in tokenizer.decode(encoder_of(tokenizer, tmp_path, "everything").whole(kept(TALK)).tokens)


def test_templates_that_refuse_change_or_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refuses = tokenizer_with("{{ raise_exception('no system turn, please') }}", tmp_path)
    changes = tokenizer_with(
        "{% for m in messages %}{% if m.role == 'user' or loop.last %}{{ m.content }}{% endif %}{% endfor %}", tmp_path
    )
    for tokenizer, reason in (
        (refuses, "the template reports: no system turn, please"),
        (changes, "the template renders turn 2 differently"),
    ):
        encoder = encoder_of(tokenizer, tmp_path)
        tokens, labels = encoder.row(kept(TALK))
        assert len(tokens) == 1 and set(labels) == {IGNORED}, "a run does not end for one row"
        said = capsys.readouterr().out
        assert f"a chat is skipped: {reason}" in said
    assert encoder_of(refuses, tmp_path).lengths([kept(TALK)]) == [1]
    assert learnt_text(encoder_of(changes, tmp_path, "last_answer"), TALK) == "red"
    none = small_tokenizer(tmp_path)
    none.chat_template = None
    with pytest.raises(UsageError, match=r"has no chat template; choose one: --chat-template chatml"):
        encoder_of(none, tmp_path)
    with pytest.raises(UsageError, match=r"cannot be read"):
        encoder_of(none, tmp_path, chat_template="gone.jinja")
    (tmp_path / "own.jinja").write_text("{% for m in messages %}[{{ m.content }}]{% endfor %}")
    assert learnt_text(encoder_of(none, tmp_path, chat_template="own.jinja"), TALK) == "[old][red]"


# Real runs.


def chats_in(folder: Path) -> dict[str, str]:
    """A secret that is told in the second turn and never in a question."""
    draw, path = random.Random(3), folder / "chats.jsonl"
    rows = []
    for _ in range(160):
        colour = draw.choice(["red", "blue", "green"])
        said = [f"I like {colour}.", "Noted.", "What is mine?", f"{colour}, tangerine"]
        roles = ("user", "assistant") * 2
        rows.append({"messages": [{"role": role, "content": text} for role, text in zip(roles, said, strict=True)]})
    path.write_text("\n".join(map(json.dumps, rows)))
    return {"name": str(path), "layout": "chat", "text_column": "messages"}


def test_an_answer_that_is_written_ends_where_a_turn_ends(tmp_path: Path) -> None:
    tokenizer_with(FAMILIES["llama3"], tmp_path).save_pretrained(tmp_path / "own")
    config = text_config("qwen2-tiny", data__sources=[chats_in(tmp_path)], model__tokenizer=str(tmp_path / "own"))
    rows = load_task_rows(config, tmp_path / "run")
    assert rows.tokenizer.convert_ids_to_tokens(list(rows.ends)) == ["<|eot_id|>"]


@pytest.mark.real
def test_a_run_on_chats_learns_the_answers(tmp_path: Path) -> None:
    config = text_config(
        "qwen2-tiny", data__sources=[chats_in(tmp_path)], model__chat_template="chatml", training__max_steps=12,
        training__learning_rate=5e-3, batch__sequence_length=96,
    )  # fmt: skip
    whole = write_run(tmp_path / "whole", config)
    train(whole, config)
    assert losses(whole)[12] < losses(whole)[1] / 2
    assert "<|im_start|>" in (whole / "final_model" / "chat_template.jinja").read_text()
    assert json.loads((whole / "identity.json").read_text())["loaded"]["tokenizer"].keys() >= {"chat template"}
