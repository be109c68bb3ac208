"""What a run leaves behind in another language: sentences are translated, what programs read again is not."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import get_args

import pytest
from trainwiz.core import language
from trainwiz.core.diagnosis.cause import Evidence, Failure
from trainwiz.core.diagnosis.diagnose import diagnose
from trainwiz.core.export.launch_script import launch_script
from trainwiz.core.language import LANGUAGE_VARIABLE, tr, use_language
from trainwiz.core.launch.actions import launch_line
from trainwiz.core.run.folder import LAUNCH_SH, RunFolder
from trainwiz.core.run.state import STATUS_WORDS, RunState, RunStatus, read_state, write_state
from trainwiz.core.supervise.ending import Stopping, how_it_ended
from trainwiz.core.telemetry.advice import gpu_advice
from trainwiz.core.telemetry.snapshot import GpuReading

from tests.core.export.solved_config import solved_config


@pytest.fixture(autouse=True)
def _chinese(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(LANGUAGE_VARIABLE, "en")
    use_language("zh")
    yield
    use_language("en")


def is_chinese(text: str) -> bool:
    return any("\u4e00" <= letter <= "\u9fff" for letter in text)


def test_each_state_has_its_word() -> None:
    assert set(STATUS_WORDS) == set(get_args(RunStatus))
    assert all(is_chinese(tr(word)) for word in STATUS_WORDS.values())


def test_what_a_framework_said_stays_as_it_was_said() -> None:
    said = "CUDA out of memory. Tried to allocate 2.00 GiB"
    found = diagnose(Evidence("r", 1, failures=(Failure(0, "RuntimeError", said, "", 1.0, 12),)))
    assert found.cause == "cuda_oom"
    assert is_chinese(found.message) and said in found.message and "12" in found.message


def test_how_a_run_ended_is_a_sentence_in_the_language_and_codes_beside_it(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    stopping = Stopping(None, lambda: False)
    stopping.ask("the exit of the command that started it")
    ended = how_it_ended(run, 130, stopping, begun=True)
    status, ending = ended.status, ended.exit
    assert (status, ending.cause) == ("stopped", "user_stop")
    assert is_chinese(ending.message) and "command" not in ending.message
    write_state(run, RunState(name="r", status=status, exit=ending))
    assert '"status": "stopped"' in run.state_json.read_text(encoding="utf-8").replace('":"', '": "')
    use_language("en")
    read = read_state(run)
    assert read.status == "stopped" and read.exit is not None and read.exit.message == ending.message


def test_a_slowed_clock_is_known_by_its_code() -> None:
    known = {field.name: None for field in fields(GpuReading) if field.default is MISSING}
    card = GpuReading(**{**known, "index": 0, "throttle_reasons": ("heat (software)",)})
    (advice,) = gpu_advice([card], status="running", now_s=None)
    assert advice.code == "heat" and is_chinese(advice.remedy or "")


def run_script(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / LAUNCH_SH).write_text(text, encoding="utf-8")
    command = ["/bin/sh", str(folder / LAUNCH_SH)]
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    return subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", timeout=20)


def test_no_translation_becomes_code_of_the_launch_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hostile:
        def gettext(self, message: str) -> str:
            return f"{message}'; touch pwned; $(touch pwned) `touch pwned`\ntouch pwned #"

        def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
            return self.gettext(msgid1)

    with monkeypatch.context() as patch:
        patch.setattr(language, "_catalogue", Hostile())
        script = launch_script(solved_config("cpu-demo"))
    refused = run_script(tmp_path, script)
    assert refused.returncode == 127 and not (tmp_path / "pwned").exists()
    assert not Path("pwned").exists() and launch_line(RunFolder(tmp_path)) is not None
