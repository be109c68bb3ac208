"""How fast the command answers: --help against accelerate's, the first frame against a minimal Textual app's."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tools.benchmarks.measure import Result, command_seconds, first_frame_seconds, interleaved_medians

BIN = Path(sys.executable).parent

MINIMAL_APP = """
from textual.app import App, ComposeResult
from textual.widgets import Static
class Minimal(App):
    def compose(self) -> ComposeResult:
        yield Static("minimal-first-frame")
Minimal().run()
"""


def run(repeats: int = 7) -> list[Result]:
    helps = interleaved_medians(
        repeats,
        lambda: command_seconds([str(BIN / "trainwiz"), "--help"]),
        lambda: command_seconds([str(BIN / "accelerate"), "--help"]),
    )
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "minimal.py"
        program.write_text(MINIMAL_APP, encoding="utf-8")
        environment = {**os.environ, "XDG_CONFIG_HOME": folder}
        # Textual's bytecode was kept when pip installed it; a checkout's is kept by the first start, which does not count.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        frames = interleaved_medians(
            repeats,
            lambda: first_frame_seconds([str(BIN / "trainwiz")], b"Hardware", environment, folder),
            lambda: first_frame_seconds([sys.executable, str(program)], b"minimal-first-frame", environment, folder),
        )
    return [
        Result(
            "trainwiz --help / accelerate --help", helps[0] / helps[1], 0.05, f"{helps[0]:.3f} s / {helps[1]:.3f} s"
        ),
        Result(
            "first frame / minimal Textual app", frames[0] / frames[1], 1.6, f"{frames[0]:.3f} s / {frames[1]:.3f} s"
        ),
    ]
