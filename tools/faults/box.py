"""Box: the place of one trial: its folders, its environment, its disk, its clock."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

from tests.site import with_site
from tools.faults.front import Front
from tools.faults.processes import TRIAL_VARIABLE
from tools.faults.scenario import Scenario

DISK_MIB = 128


class Box:
    """`root` is new. Nothing of the user's own folders is read or written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mark = uuid.uuid4().hex
        self.disk = root / "disk"
        self.disk.mkdir(parents=True)
        self.run = self.disk / "run"
        """The run folder."""
        self.clock = root / "clock"
        self._mounted = False

    def environment(self, **more: str) -> dict[str, str]:
        home = self.root / "home"
        own = {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("CONFIG", "CACHE", "STATE", "DATA")}
        (self.root / "t").mkdir(exist_ok=True)
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith("TRAINWIZ_")},
            **own,
            "TMPDIR": str(self.root / "t"),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "OMP_NUM_THREADS": "1",
            "TRAINWIZ_TIER": "analytic",
            "TRAINWIZ_LANG": "en",
            "TORCH_EXTENSIONS_DIR": os.environ.get("TORCH_EXTENSIONS_DIR")
            or str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "torch_extensions"),
            "PYTHONPATH": with_site(os.environ),
            "FAULT_CLOCK_FILE": str(self.clock),
            TRIAL_VARIABLE: self.mark,
            **more,
        }

    def new_run(self, scenario: Scenario, *more: str, screen: bool = False, **variables: str) -> Front:
        """The command that plans, writes and starts the run."""
        headless = [] if screen else ["--yes", "--plain"]
        words = [*scenario.words(), "--output-dir", str(self.run), *headless, *more]
        return Front(words, self.root, self.environment(**variables))

    def command(self, *words: str, **variables: str) -> Front:
        return Front(list(words), self.root, self.environment(**variables))

    def resume(self) -> Front:
        return self.command("--resume", "--output-dir", str(self.run), "--plain")

    def mount(self) -> None:
        """A small disk of its own for the run folder. Raises OSError where mounting is not allowed."""
        said = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(self.disk)], capture_output=True, text=True
        )
        if said.returncode:
            raise OSError(said.stderr.strip() or "mount failed")
        self._mounted = True

    def fill_disk(self) -> None:
        """Another program takes all the room that is left."""
        with (self.disk / "another-program").open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        file.write(b"\0" * size)
                except OSError:
                    continue

    def free_disk(self) -> None:
        (self.disk / "another-program").unlink(missing_ok=True)

    def remove(self) -> None:
        if self._mounted:
            subprocess.run(["umount", "-l", str(self.disk)], capture_output=True, check=False)
        shutil.rmtree(self.root, ignore_errors=True)


def can_mount() -> bool:
    return sys.platform == "linux" and os.environ.get("FAULT_OWN_MOUNTS") == "1"
