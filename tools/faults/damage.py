"""Damage to a file: what a crash, a full disk or an editor leaves."""

from __future__ import annotations

import random
from pathlib import Path

DAMAGES = ("empty", "cut", "garbage", "line")
GARBAGE_BYTES = 700


def damage(path: Path, how: str, seed: int) -> None:
    """Raises OSError where there is no such file."""
    noise = random.Random(seed).randbytes(GARBAGE_BYTES)
    old = path.read_bytes()
    new = {
        "empty": b"",
        "cut": old[: len(old) // 2],
        "garbage": noise,
        "line": old + b"\n{]} \xff\xfe\x00 nan " + noise[:40] + b"\n",
    }[how]
    path.write_bytes(new)


def newest_checkpoint(run: Path) -> Path | None:
    found = [path for path in run.glob("checkpoint-*") if path.name[11:].isdigit()]
    return max(found, key=lambda path: int(path.name[11:]), default=None)
