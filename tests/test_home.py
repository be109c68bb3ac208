"""The tests leave alone what a user has at home, and are the same tests whatever that is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, user_folders

PROFILE = (REPOSITORY / "profiles" / "hardware" / "cpu-demo.yaml").read_text()
TRIED = (
    "tests/core/config/test_modes.py",  # lists all profiles while it is collected
    "tests/core/history/test_store.py",
    "tests/core/run/test_listing.py",
    "tests/core/profile/test_save.py",
)


def pytest_in(home: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", *TRIED, "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **user_folders(home)},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def contents(home: Path) -> dict[str, tuple[float, bytes]]:
    return {str(path): (path.stat().st_mtime, path.read_bytes()) for path in home.rglob("*") if path.is_file()}


@pytest.mark.all
def test_what_a_user_has_saved_is_neither_read_nor_written(tmp_path: Path) -> None:
    home, empty = tmp_path / "home", tmp_path / "empty"
    empty.mkdir()
    for room in ("config", "data", "cache", ".config", ".local/share", ".cache", "Library/Application Support"):
        place = home / room / "trainwiz"
        (place / "profiles").mkdir(parents=True)
        for number in range(61):
            text = PROFILE.replace("name: cpu-demo", f"name: mine-{number}")
            (place / "profiles" / f"mine-{number}.yaml").write_text(text)
        (place / "profiles" / "broken.yaml").write_text("{")
        for name in ("history.jsonl", "runs.jsonl", "measured.jsonl"):
            (place / name).write_text("no line of ours\n")
    before = contents(home)
    cases = [pytest_in(place, "--collect-only", "-q").splitlines()[:-1] for place in (home, empty)]
    assert cases[0] == cases[1]
    assert len(cases[0]) > 20
    pytest_in(home)
    assert contents(home) == before
    assert not any(empty.rglob("*"))
