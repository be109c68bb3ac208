"""Libraries are found without being imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.each import each

LOOK = """
import sys
from trainwiz.core.hardware.machine import find_libraries, torch_cuda_version
found = find_libraries().versions
print(found["torch"], found["flash_attn"], *torch_cuda_version(), sep="|")
assert not {"torch", "flash_attn"} & set(sys.modules)
"""


def look(folder: Path) -> list[str]:
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", LOOK], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().split("|")


def fake_torch(folder: Path, version_file: str) -> Path:
    (folder / "torch").mkdir()
    (folder / "torch/__init__.py").write_text("raise SystemExit('torch was imported')\n")
    (folder / "torch/version.py").write_text(version_file)
    (folder / "flash_attn").mkdir()
    (folder / "flash_attn/__init__.py").write_text("raise SystemExit('flash_attn was imported')\n")
    return folder


@each(
    ("text", "expected"),
    [
        ("__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n", ["13.0", "None"]),
        ("__version__ = '2.1.0'\ncuda = '12.1'\nhip = None\n", ["12.1", "None"]),
        (
            "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n",
            ["None", "torch 2.13.0+cpu is a CPU-only build"],
        ),
        (
            "__version__ = '2.9.0+rocm6.4'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.4'\n",
            ["None", "torch 2.9.0+rocm6.4 is built for AMD GPUs (ROCm 6.4)"],
        ),
        ("", ["None", "torch unknown is a CPU-only build"]),
    ],
)
def test_the_build_of_torch_is_read_from_its_text(tmp_path: Path, text: str, expected: list[str]) -> None:
    torch, flash, *build = look(fake_torch(tmp_path, text))
    assert build == expected
    assert torch != "None"
    assert flash == "unknown", "importable, and no metadata says its version"
