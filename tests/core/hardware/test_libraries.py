"""Libraries are found without being imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LOOK = """
import importlib, json, sys
from trainwiz.core.hardware.machine import find_libraries, torch_cuda_version
answers = []
for folder in sys.argv[1:]:
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    found = find_libraries().versions
    answers.append([found["torch"], found["flash_attn"], *torch_cuda_version()])
print(json.dumps(answers))
assert not {"torch", "flash_attn"} & set(sys.modules)
"""
BUILDS = {
    "__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n": ["13.0", None],
    "__version__ = '2.1.0'\ncuda = '12.1'\nhip = None\n": ["12.1", None],
    "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n": [None, "torch 2.13.0+cpu is a CPU-only build"],
    "__version__ = '2.9.0+rocm6.4'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.4'\n": [
        None,
        "torch 2.9.0+rocm6.4 is built for AMD GPUs (ROCm 6.4)",
    ],
    "": [None, "torch unknown is a CPU-only build"],
}
"""Text of torch/version.py -> what is read from it."""


def test_the_build_of_torch_is_read_from_its_text(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(len(BUILDS))]
    for folder, text in zip(folders, BUILDS, strict=True):
        for name in ("torch", "flash_attn"):
            (folder / name).mkdir(parents=True)
            (folder / name / "__init__.py").write_text(f"raise SystemExit('{name} was imported')\n")
        (folder / "torch/version.py").write_text(text)
    done = subprocess.run([sys.executable, "-c", LOOK, *map(str, folders)], capture_output=True, text=True, check=True)
    for (torch, flash, *build), expected in zip(json.loads(done.stdout), BUILDS.values(), strict=True):
        assert build == expected and torch is not None
        assert flash == "unknown", "importable, and no metadata says its version"
