"""`trainwiz profiles save` through the command line: what is typed becomes a profile, or one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from trainwiz.core.profile import user_folder
from trainwiz.tui.cli import main
from trainwiz.tui.options import OPTIONS, SAVE_OPTIONS

from tests.each import each


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def saved(name: str) -> dict[str, object]:
    document = yaml.safe_load((user_folder() / f"{name}.yaml").read_text())
    assert isinstance(document, dict)
    return document


def test_choices_become_a_profile_that_every_command_knows(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--extends", "lora-r64-3090", "--lora-rank", "32", "--set", "training.label_smoothing=0.05"]
    assert main(["profiles", "save", "my-card", *asked]) == 0
    assert "my-card is saved" in capsys.readouterr().out
    document = saved("my-card")
    assert document["extends"] == "lora-r64-3090"
    assert document["values"] == {"peft": {"rank": 32}, "training": {"label_smoothing": 0.05}}
    assert main(["profiles", "diff", "lora-r64-3090", "my-card", "--json"]) == 0
    changes = json.loads(capsys.readouterr().out)["changes"]
    assert {change["key"] for change in changes} == {"peft.rank", "training.label_smoothing"}
    assert main(["profiles", "validate"]) == 0


def test_a_profile_that_is_there_stays(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles", "save", "mine", "--extends", "cpu-demo", "--epochs", "2"]) == 0
    before = (user_folder() / "mine.yaml").read_bytes()
    assert main(["profiles", "save", "mine", "--extends", "cpu-demo", "--epochs", "3"]) == 2
    assert "choose another name" in capsys.readouterr().err
    assert (user_folder() / "mine.yaml").read_bytes() == before


@each(
    ("arguments", "words"),
    [
        ((), "NAME is missing"),
        (("../x",), "cannot be a profile's name"),
        (("x", "--smoke"), "There is no option --smoke"),
        (("x", "--extends", "2080supr"), "Did you mean 2080super"),
        (("x", "--precision", "bf17"), "did you mean bf16?"),
        (("x", "--set", "model.nam=3"), "model.name"),
    ],
)
def test_wrong_requests_write_nothing(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    assert main(["profiles", "save", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not user_folder().exists() or not list(user_folder().iterdir())


def test_the_help_lists_the_choices_of_a_setup(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles", "save", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {option.flag}" in text for option in SAVE_OPTIONS)
    of_one_run = {option.flag for option in OPTIONS if option.group in ("run", "modes")} - {
        "--json",
        "--lang",
        "--debug",
    }
    assert not [flag for flag in of_one_run if f"  {flag}" in text]
    assert "Modes:" not in text
