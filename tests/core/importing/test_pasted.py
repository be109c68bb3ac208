"""What is typed or pasted into a box: paths first, then a text; what is neither is refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainwiz.core.importing.gather import (
    COMMAND,
    FALLBACK,
    PASTED,
    import_together,
    name_after,
    pasted_text,
    texts_of_pasted,
)
from trainwiz.core.importing.report import NotImportable
from trainwiz.core.language import use_language

from tests.each import each

YAML = "distributed_type: MULTI_GPU\nnum_processes: 2\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(YAML)
    Path("two words.json").write_text('{"zero_optimization": {"stage": 2}}')


def refused(text: str) -> str:
    with pytest.raises(NotImportable) as error:
        import_together(texts_of_pasted(pasted_text(text)))
    (finding,) = error.value.findings
    return finding.message


@pytest.mark.parametrize("text", ["", " \n\t\n", "\x07\x1b[31m"])
def test_nothing_is_nothing(text: str) -> None:
    assert texts_of_pasted(pasted_text(text)) == []


@each("line", ["a.yaml", "  a.yaml ", "./a.yaml", "'a.yaml'", "two words.json", "'two words.json'", "two\\ words.json"])
def test_a_line_that_names_a_file(line: str) -> None:
    (text,) = texts_of_pasted(line)
    assert text.text == Path(text.name).read_text()


def test_the_address_that_a_file_manager_gives(tmp_path: Path) -> None:
    (text,) = texts_of_pasted((tmp_path / "two words.json").as_uri())
    assert "zero_optimization" in text.text


def test_files_first_then_a_text_that_keeps_its_lines() -> None:
    merged = import_together(
        texts_of_pasted('a.yaml\n"two words.json"\n\naccelerate launch \\\n  --num_processes 4 train.py')
    )
    assert [part.kind for part in merged.parts] == ["accelerate", "deepspeed", "launch_command"]
    assert merged.values["engine.processes"] == 4
    assert merged.place_of("engine.processes") == f"{PASTED}:5"


def test_a_text_is_read_as_the_same_text_in_a_file_is() -> None:
    (text,) = texts_of_pasted(pasted_text(YAML))
    assert dict(import_together([text]).values) == dict(import_together(texts_of_pasted("a.yaml")).values)


def test_code_may_be_indented_as_a_whole() -> None:
    merged = import_together(texts_of_pasted("\n    args = TrainingArguments(\n        learning_rate=3e-4,\n    )\n"))
    assert merged.values["training.learning_rate"] == 3e-4
    assert merged.place_of("training.learning_rate") == f"{PASTED}:3"


def test_lines_of_a_terminal_end_in_carriage_returns() -> None:
    assert pasted_text("a: 1\rb: 2\r\nc: 3\n\td") == "a: 1\nb: 2\nc: 3\n\td"


def test_what_hides_or_moves_the_cursor_goes() -> None:
    assert pasted_text("\ufeffa\u202eb\x9b31mc\x07") == "abc"


@pytest.mark.parametrize(
    ("line", "name"),
    [("torchrun --nproc_per_node 2 fine_tune.py", "fine_tune"), ("accelerate launch \\\n  fine_tune.py", "fine_tune")],
)
def test_a_command_gives_its_script_as_a_name(line: str, name: str) -> None:
    texts = texts_of_pasted(line)
    assert texts[-1].name in (COMMAND, PASTED)
    assert name_after(import_together(texts)) == name


def test_a_pasted_file_has_no_name() -> None:
    assert name_after(import_together(texts_of_pasted(YAML))) == "imported"


@each(
    ("text", "said"),
    [
        ("no.yaml", "There is no file no.yaml"),
        (".", "Is a directory"),
        ("one\ntwo\nthree", "none of the kinds"),
        (YAML[:20], "no distributed_type"),
        ('{"zero_optimization": {"stage": 2', "ends before its JSON does"),
        ("from transformers import TrainingArguments\nTrainingArguments(\n  learning_rate=1e-4,", "line 2"),
        ("args = TrainingArguments(learning_rate=1e-4, num_tr", "not valid Python"),
        ("a\0b: 1", "zero bytes"),
        ("a" * (2**20 + 1), "more than 1 MiB"),
    ],
)
def test_refusals_are_one_sentence(text: str, said: str) -> None:
    assert said in refused(text)


def test_a_paste_is_named_in_the_language_and_its_profile_is_not() -> None:
    use_language("zh")
    try:
        merged = import_together(texts_of_pasted(YAML))
        assert merged.place_of("engine.processes") == "粘贴的文本:2"
        assert name_after(merged) == FALLBACK
    finally:
        use_language("en")
