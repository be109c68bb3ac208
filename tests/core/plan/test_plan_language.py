"""A plan in another language: other texts, and not one other number, code, key or command."""

import re
from typing import Any

import pytest
from trainwiz.core import language
from trainwiz.core.config import RunConfig
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.config.yaml_text import problems_of
from trainwiz.core.plan.gather import plan_run

from tests.core.plan.machines import machine
from tests.each import each

CPU = machine(None)

OPEN, CLOSE = "⟦", "⟧"


class Bracketed:
    """A language whose texts are the English ones backwards and in brackets: nothing may rest on English words."""

    def gettext(self, message: str) -> str:
        # Placeholders and options stay what they are in every language.
        kept = "{" in message or "--" in message
        return f"{OPEN}{message if kept else message[::-1]}{CLOSE}"

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        return f"{OPEN}{msgid1}{CLOSE}"


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "_catalogue", Bracketed())
    monkeypatch.setattr(language, "_language", "zh")


def without_texts(plan: Any) -> dict[str, Any]:
    """All of a plan that programs read."""
    document = plan.to_json()
    for part in (*document["choices"], *document["environment"]):
        del part["reason"]
    del document["memory"]["peak_moment"], document["memory"]["basis"], document["memory"]["waiting"]
    del document["model"]["learnt"], document["time"]["basis_text"], document["machine"]
    document["findings"] = [
        (one.code, one.severity, one.where, [(remedy.command, dict(remedy.changes)) for remedy in one.remedies])
        for one in plan.findings
    ]
    return document


PROFILES = ("2080super-guide", "cpu-demo", "3x3080-20g-guide", "lora-r64-4xa100-guide")
"""Those of most findings, and one of no card."""


@each("name", PROFILES)
def test_a_profile_in_another_language_is_the_same_plan(name: str, request: pytest.FixtureRequest) -> None:
    english = plan_run(PlanRequest(profile=name), CPU)
    request.getfixturevalue("foreign")
    translated = plan_run(PlanRequest(profile=name), CPU)
    assert without_texts(translated) == without_texts(english)
    for finding in translated.findings:
        assert OPEN in finding.message and all(OPEN in remedy.text for remedy in finding.remedies), finding
    for choice in translated.choices:
        if choice.origin not in ("you", "profile") and choice.reason not in ("", "default"):
            assert OPEN in choice.reason or choice.key == "engine.device", choice


def test_pydantic_is_heard_in_our_words_alone(foreign: None) -> None:
    wrong = {"batch": {"micro_batch_size": 0}, "model": 3, "training": {"epochs": "x"}, "engine": {"precision": "b"}}
    with pytest.raises(ValueError, match="RunConfig") as error:
        RunConfig.model_validate(wrong)
    problems = {one.where: one.message for one in problems_of(error.value)}  # type: ignore[arg-type]
    assert set(problems) == {"batch.micro_batch_size", "model", "training.epochs", "engine.precision"}
    for problem in problems.values():
        assert not re.search(r"[a-z]{3} [a-z]{3}", re.sub(f"{OPEN}.*{CLOSE}", "", problem)), problem
        assert "Input should" not in problem
