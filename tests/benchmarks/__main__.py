"""Runs every benchmark of this folder and ends with 1 when a claim does not hold: python -m tests.benchmarks [NAME ...]"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def main(names: list[str]) -> int:
    here = Path(__file__).parent
    chosen = [
        file.stem for file in sorted(here.glob("bench_*.py")) if not names or file.stem.removeprefix("bench_") in names
    ]
    failed = 0
    for name in chosen:
        for result in importlib.import_module(f"tests.benchmarks.{name}").run():
            failed += not result.holds
            print(
                f"{'holds ' if result.holds else 'FAILS '} {result.claim:<55} {result.measured:8.3f}  limit {result.limit:g}"
                f"   {result.detail}",
                flush=True,
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
