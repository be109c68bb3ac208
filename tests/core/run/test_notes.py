"""Notes beside a run: kept whole whoever writes at the same time, refused in a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from trainwiz.core.errors import CannotRunError, UsageError
from trainwiz.core.run.notes import LONGEST_NOTE, NOTES_JSONL, add_note, read_notes


def test_a_note_is_kept_with_time_and_step(tmp_path: Path) -> None:
    add_note(tmp_path, "  raised the warmup\n", step=12, now_s=1000.0)
    add_note(tmp_path, "second", now_s=2000.0)
    assert [(note.time_s, note.step, note.text) for note in read_notes(tmp_path)] == [
        (1000.0, 12, "raised the warmup"),
        (2000.0, None, "second"),
    ]
    assert read_notes(tmp_path)[0].words.endswith(", step 12: raised the warmup")


def test_what_a_terminal_would_obey_is_not_kept(tmp_path: Path) -> None:
    assert add_note(tmp_path, "\x1b[31mred\x1b[0m\x07 [bold]x").text == "red [bold]x"


@pytest.mark.parametrize("text", ["", "  \n", "\x1b[0m", "x" * (LONGEST_NOTE + 1)])
def test_an_empty_or_endless_note_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError):
        add_note(tmp_path, text)
    assert not (tmp_path / NOTES_JSONL).exists()


def test_a_folder_that_takes_no_note_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CannotRunError, match="could not be written"):
        add_note(tmp_path / "gone", "text")
    (tmp_path / NOTES_JSONL).mkdir()
    with pytest.raises(CannotRunError, match="could not be written"):
        add_note(tmp_path, "text")


def test_a_line_that_was_cut_short_takes_no_other_with_it(tmp_path: Path) -> None:
    (tmp_path / NOTES_JSONL).write_text('{"time_s": 1, "te')
    add_note(tmp_path, "after")
    assert [note.text for note in read_notes(tmp_path)] == ["after"]


def test_rows_that_are_no_notes_are_passed_over(tmp_path: Path) -> None:
    rows = [{"time_s": True, "text": "x"}, {"time_s": 1, "text": 5}, {"text": "x"}, {"time_s": 3, "text": "good"}]
    (tmp_path / NOTES_JSONL).write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows) + b"\xff\n[]\n")
    assert [note.text for note in read_notes(tmp_path)] == ["good"]


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from trainwiz.core.run.notes import add_note\n"
        "for n in range(200): add_note(Path(sys.argv[1]), f'{sys.argv[2]} {n} ' + 'x' * 1500)"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(name)], env=os.environ) for name in range(4)
    ]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0, 0]
    notes = read_notes(tmp_path)
    assert len(notes) == 800
    for name in range(4):
        own = [note.text.split()[1] for note in notes if note.text.split()[0] == str(name)]
        assert own == [str(n) for n in range(200)]


@pytest.mark.parametrize("time_s", ["1e999", "NaN", "1e300", "9" * 400, "true", '"now"'])
def test_a_note_without_a_moment_is_no_note(tmp_path: Path, time_s: str) -> None:
    (tmp_path / NOTES_JSONL).write_text(
        f'{{"time_s": {time_s}, "text": "a"}}\n{{"time_s": 5, "text": "b", "step": true}}\n'
    )
    (note,) = read_notes(tmp_path)
    assert (note.text, note.step) == ("b", None)
    assert note.words.endswith(": b")
