"""A file system of a few MiB, for tests of a disk that is full."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SIZE_MIB = 48
BLOCK_BYTES = 1 << 18
BALLOON = "of-others"
"""A file that takes room as other users of the disk would."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """An empty tmpfs of SIZE_MIB; skips where none may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("there is no mount command here, so no small file system")
    made = subprocess.run([mount, "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(place)], capture_output=True)
    if made.returncode != 0:
        pytest.skip("this user may mount no tmpfs; run as root, or the whole of pytest under `unshare -Urm`")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path, leave_bytes: int) -> Path:
    """Take all room that is there now but about `leave_bytes`; the file that does it, which grows at each call."""
    balloon = disk / BALLOON
    with balloon.open("ab", buffering=0) as file:
        # A run beside it takes and gives back room meanwhile.
        while (free := shutil.disk_usage(disk).free - leave_bytes) > 0:
            try:
                file.write(b"\1" * min(free, BLOCK_BYTES))
            except OSError:
                return balloon
    return balloon
