"""A plan in another language: other texts, and not one other number, code, key or command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core import language
from trainwiz.core.config import RunConfig
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.config.yaml_text import problems_of
from trainwiz.core.data.summary import summarize_data
from trainwiz.core.errors import UsageError
from trainwiz.core.plan.gather import plan_run
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.words import duration_range
from trainwiz.core.profile.store import profile_files

from tests.core.plan.machines import machine
from tests.each import each

CPU = machine(None)

OPEN, CLOSE = "⟦", "⟧"
PROFILES = sorted(profile_files())
OFTEN = ["2080super-guide", "3x3080-20g-guide", "4080s-guide", "a6000-guide", "cpu-demo", "lora-r64-4xa100-guide"]
"""Those of most findings, and one of no card."""


class Bracketed:
    """A language whose texts are the English ones backwards and in brackets: nothing may rest on English words."""

    def gettext(self, message: str) -> str:
        # Placeholders and options stay what they are in every language.
        kept = "{" in message or "--" in message
        return f"{OPEN}{message if kept else message[::-1]}{CLOSE}"

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        return f"{OPEN}{msgid1}{CLOSE}"


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(language, "_catalogue", Bracketed())
        patch.setattr(language, "_language", "zh")
        yield


def without_texts(plan: Any) -> dict[str, Any]:
    """All of a plan that programs read."""
    document = plan.to_json()
    for choice in document["choices"]:
        del choice["reason"]
    for variable in document["environment"]:
        del variable["reason"]
    for key in ("peak_moment", "basis", "waiting"):
        del document["memory"][key]
    del document["model"]["learnt"]
    del document["time"]["basis_text"], document["machine"]
    document["findings"] = [
        (one.code, one.severity, one.where, [(remedy.command, dict(remedy.changes)) for remedy in one.remedies])
        for one in plan.findings
    ]
    return document


@pytest.mark.parametrize(
    "name", [one if one in OFTEN else pytest.param(one, marks=pytest.mark.all) for one in PROFILES]
)
def test_a_profile_in_another_language_is_the_same_plan(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    request = PlanRequest(profile=name)
    english = plan_run(request, CPU)
    monkeypatch.setattr(language, "_catalogue", Bracketed())
    monkeypatch.setattr(language, "_language", "zh")
    foreign = plan_run(request, CPU)
    assert without_texts(foreign) == without_texts(english)
    all_is_translated(foreign)


@each(("mode", "cards"), [
    ("smoke", ("RTX 3090", 2)), ("dev-run", ("P100 SXM2 16GB", 1)), ("overfit", ("RTX 2080 Super", 2)),
    ("smoke", ("Apple M2 Max", 1)),
])  # fmt: skip
def test_a_mode_on_any_card_speaks_one_language(foreign: None, mode: Any, cards: tuple[str, int]) -> None:
    here = machine(*cards)
    values = {"engine.compile": True, "engine.attention": "flash_attention_2", "engine.precision": "bf16"}
    for overrides in ({}, {**values, "engine.gpus": ["7"], "evaluation.generate": True, "checkpoint.keep_best": True}):
        request = PlanRequest(profile="2x2080super-guide", mode=mode, overfit_batches=2, overrides=overrides)
        all_is_translated(plan_run(request, here))


def all_is_translated(plan: Plan) -> None:
    for finding in plan.findings:
        assert OPEN in finding.message, finding
        for remedy in finding.remedies:
            assert OPEN in remedy.text, remedy
    for choice in plan.choices:
        if choice.origin not in ("you", "profile") and choice.reason not in ("", "default"):
            assert OPEN in choice.reason or choice.key == "engine.device", choice


def test_the_unit_of_a_span_is_said_once_in_any_language(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"{number} years": "{number} 年", "{first} to {second}": "{first} 到 {second}"}

    class Some:
        def gettext(self, message: str) -> str:
            return words.get(message, message)

    assert duration_range(7 * 365.25 * 86400, 18 * 365.25 * 86400) == "7.0 to 18 years"
    monkeypatch.setattr(language, "_catalogue", Some())
    assert duration_range(7 * 365.25 * 86400, 18 * 365.25 * 86400) == "7.0 到 18 年"


@each(("name", "text"), [("a.jsonl", '{"text": 1}\nx\n'), ("b.csv", "a,b\n1\n"), ("c.txt", "")])
def test_broken_rows_are_sentences_in_any_language(foreign: None, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    config = RunConfig().with_values({"task": "causal-lm", "data.sources": [{"name": name}]}, "you")
    with pytest.raises(UsageError) as refusal:
        summarize_data(config, tmp_path)
    assert all(OPEN in one.message and name in one.message for one in refusal.value.findings)


def test_pydantic_is_heard_in_our_words_alone(foreign: None) -> None:
    wrong = {"batch": {"micro_batch_size": 0}, "model": 3, "training": {"epochs": "x"}, "engine": {"precision": "b"}}
    with pytest.raises(ValueError, match="RunConfig") as error:
        RunConfig.model_validate(wrong)
    problems = dict(problems_of(error.value))  # type: ignore[arg-type]
    assert set(problems) == {"batch.micro_batch_size", "model", "training.epochs", "engine.precision"}
    for problem in problems.values():
        assert not re.search(r"[a-z]{3} [a-z]{3}", re.sub(f"{OPEN}.*{CLOSE}", "", problem)), problem
        assert "Input should" not in problem


def test_texts_of_a_plan_are_never_templates(foreign: None) -> None:
    """A value with braces, such as a path, is not formatted a second time."""
    made = plan_run(PlanRequest(overrides={"data.sources": "{curly}.txt"}), CPU)
    assert any("{curly}" in one.message for one in made.findings)
    assert asdict(made.batch)
