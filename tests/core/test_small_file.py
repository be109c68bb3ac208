"""What is read whole: not what never ends, and not what fills the memory."""

from __future__ import annotations

import ast
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from trainwiz.core.catalog.model_config import read_config
from trainwiz.core.config import RunConfig
from trainwiz.core.config.yaml_text import read_yaml
from trainwiz.core.errors import UsageError
from trainwiz.core.export.deepspeed import deepspeed_file_findings
from trainwiz.core.files import MOST_BYTES, read_small
from trainwiz.core.telemetry.discovery import recognise
from trainwiz.core.telemetry.target import Target, open_source

from tests.conftest import REPOSITORY
from tests.core.telemetry.event_writers import write_points

REASON = "it is not a regular file|it is larger than 64 MiB"


def test_a_file_is_read_and_a_folder_or_an_impossible_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"text\r\n")
    assert read_small(tmp_path / "a") == b"text\r\n"
    with pytest.raises(IsADirectoryError, match="Is a directory"):
        read_small(tmp_path)
    with pytest.raises(OSError, match="it is not a regular file"):
        read_small(Path("a\0b"))


def test_what_never_ends_or_fills_the_memory_is_refused(tmp_path: Path) -> None:
    pipe, huge = tmp_path / "pipe", tmp_path / "config.json"
    os.mkfifo(pipe)
    with huge.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    for path in (pipe, Path("/dev/zero"), huge):
        with pytest.raises(UsageError, match=REASON):
            read_yaml(path)
    assert read_config(huge, "mine", "config")[1][0].message.startswith(f"Cannot read {huge}: it is ")
    config = RunConfig.model_validate({"engine": {"deepspeed_file": str(pipe)}})
    assert "cannot be read: it is " in deepspeed_file_findings(config)[0].message


NOT_A_FILE: tuple[Callable[[Path], None], ...] = (
    os.mkfifo,
    lambda path: path.symlink_to("/dev/zero"),
    lambda path: path.symlink_to("/dev/ptmx"),
)


def watch_foreign(folder: Path, put: Callable[[Path], None]) -> None:
    """Beside an event file, and as each kind of file that a foreign training leaves."""
    write_points(folder, {"loss": [(1, 2.0), (2, 1.0)]})
    names = ("hparams.yaml", "trainer_state.json", "train.log", "metrics.csv", "events.out.tfevents.9.x", "args.json")
    for name in names:
        put(folder / name)
        target = recognise(folder)
        assert isinstance(target, Target)
        assert open_source(target).read_all(["loss"]).metrics
        assert isinstance(recognise(folder / name), str)
    open_source(Target("trainer", folder, "x")).read_all()


def test_no_monitor_waits_for_what_is_no_file(tmp_path: Path) -> None:
    failed: list[BaseException] = []
    kinds = itertools.cycle(NOT_A_FILE)

    def look() -> None:
        try:
            watch_foreign(tmp_path / "run", lambda path: next(kinds)(path))
        except BaseException as error:  # noqa: BLE001 - told by the test, in its own thread
            failed.append(error)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it waits"
    assert failed == []


OF_THE_KERNEL_OR_OUR_OWN = (
    *("core/hardware/", "core/diagnosis/sources.py", "core/run/lost.py", "core/supervise/ties.py"),
    "core/telemetry/processes.py",
    *("core/catalog/gpus.py", "core/catalog/models.py", "core/plan/environment.py", "core/files.py"),
)
"""They read /proc and /sys, what is installed with the program, or what they have just written."""


def test_files_are_opened_in_one_way() -> None:
    offenders = [
        f"{path.relative_to(REPOSITORY)}:{call.lineno}"
        for room in ("core", "tui")
        for path in (REPOSITORY / room).rglob("*.py")
        if not path.relative_to(REPOSITORY).as_posix().startswith(OF_THE_KERNEL_OR_OUR_OWN)
        if any(f"{name}(" in path.read_text() for name in ("open", "read_text", "read_bytes"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and reads_a_file(call)
    ]
    assert offenders == [], "read_small or open_file of trainwiz.core.files never wait"


def reads_a_file(call: ast.Call) -> bool:
    """open(...) and Path.open(...) without a mode that writes, Path.read_text() and read_bytes()."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in ("read_text", "read_bytes") and isinstance(call.func, ast.Attribute):
        return ast.unparse(call.func.value) not in ("self", "self.tail", "self._bytes")
    if (
        any(word.arg == "opener" for word in call.keywords)
        or name != "open"
        or ast.unparse(call.func).startswith(("os.", "webbrowser.", "self."))
    ):
        return False
    modes = [
        word.value for word in (*call.args, *(word.value for word in call.keywords)) if isinstance(word, ast.Constant)
    ]
    return "r" in modes or "rb" in modes or (not modes and not call.args)
