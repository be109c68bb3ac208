"""The language: who chooses it, and what is said in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from trainwiz.core import language
from trainwiz.core.language import LANGUAGE_VARIABLE, chosen_language, tr, tr_as, trn, use_language
from trainwiz.tui.cli import main

from tests.each import each


@pytest.fixture(autouse=True)
def _english_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(LANGUAGE_VARIABLE, "en")
    yield
    use_language("en")


@each(("option", "environment", "expected"), [
    (None, {}, "en"), ("zh", {}, "zh"), ("en", {"LANG": "zh_CN.UTF-8"}, "en"), ("zh", {LANGUAGE_VARIABLE: "en"}, "zh"),
    (None, {LANGUAGE_VARIABLE: "zh", "LC_ALL": "en_US.UTF-8"}, "zh"),
    (None, {LANGUAGE_VARIABLE: "en", "LANG": "zh_CN.UTF-8"}, "en"),
    (None, {"LC_ALL": "zh_TW.UTF-8", "LANG": "en_US.UTF-8"}, "zh"),
    (None, {"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
    (None, {"LC_ALL": "", "LC_MESSAGES": "zh_CN", "LANG": "de_DE"}, "zh"), (None, {"LANG": "zh"}, "zh"),
    (None, {"LANG": "zh-Hans"}, "zh"), (None, {"LANG": "zha_XX"}, "en"), (None, {"LANG": "C.UTF-8"}, "en"),
    (None, {"LANG": "de_DE.UTF-8"}, "en"), (None, {"LANG": "\udc80\x00_.@"}, "en"),
])  # fmt: skip
def test_who_chooses(option: str | None, environment: dict[str, str], expected: str) -> None:
    assert chosen_language(option, environment) == expected


def test_a_word_of_two_meanings_is_one_in_english_and_two_in_chinese() -> None:
    assert tr_as("of the host", "Memory") == tr("Memory") == "Memory"
    use_language("zh")
    assert tr_as("of the host", "Memory") != tr("Memory")
    assert tr_as("of nothing known", "Memory") == "Memory"


def test_chinese_and_english() -> None:
    use_language("zh")
    assert language.language() == "zh"
    assert os.environ[LANGUAGE_VARIABLE] == "zh"
    assert tr("{amount} of {whole}", amount="1", whole="2") == "1 / 2"
    assert trn("{n} checkpoint", "{n} checkpoints", 1) == trn("{n} checkpoint", "{n} checkpoints", 3).replace("3", "1")
    assert tr("") == "", "the empty message is the header of the catalogue"
    assert tr("A text that nobody translated.") == "A text that nobody translated."
    use_language("en")
    assert tr("The plan takes {time}.", time="3 s") == "The plan takes 3 s."
    assert trn("{n} row", "{n} rows", 1) == "1 row" and trn("{n} row", "{n} rows", 2000, n="2,000") == "2,000 rows"


def test_a_text_of_the_user_with_braces_stays_text() -> None:
    use_language("zh")
    assert tr("Removed {what}.", what="{run} {0} {x!r}").count("{run} {0} {x!r}") == 1


def test_the_command_in_chinese_by_its_environment() -> None:
    variables = {key: value for key, value in os.environ.items() if key not in (LANGUAGE_VARIABLE, "LC_ALL", "LANG")}
    done = subprocess.run(
        [sys.executable, "-m", "trainwiz.tui.cli", "--help"],
        env={**variables, "PYTHONUTF8": "1", "LANG": "zh_CN.UTF-8"}, capture_output=True, encoding="utf-8", check=True,
    )  # fmt: skip
    assert done.stdout.startswith("用法：trainwiz")


@each("line", [
    "--help --lang=zh", "--lang en --help --lang zh", "runs list --help --lang zh", "monitor --help --lang zh",
    "profiles save --help --lang zh", "plan --lang zh --help",
])  # fmt: skip
def test_every_command_takes_a_language(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 0
    said = capsys.readouterr().out
    assert said.startswith("用法：") and "--lang" in said


@each(("arguments", "words"), [
    (("--lang", "de"), "--lang: 'de' is not a valid choice; use en or zh."),
    (("runs", "list", "--lang=klingon"), "'klingon' is not a valid choice"), (("--lang", "--yes"), "'--yes' is not a valid choice"),
    (("--lang", "\x1b[31mzh"), "is not a valid choice; use en or zh."),
])  # fmt: skip
def test_a_wrong_language_is_a_sentence(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    use_language("en")
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert words in said and "\x1b" not in said and len(said.strip().splitlines()) == 1
