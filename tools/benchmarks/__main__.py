"""Runs benchmarks of this folder, each in turn, and ends with 1 when a claim does not hold: python -m tools.benchmarks [NAME ...]"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path


def main(words: list[str]) -> int:
    there = [file.stem.removeprefix("bench_") for file in sorted(Path(__file__).parent.glob("bench_*.py"))]
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks", description=f"There are: {', '.join(there)}.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which to run; none: all of them")
    chosen = parser.parse_args(words).names
    if unknown := [name for name in chosen if name not in there]:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(there)}")
    failed = 0
    for name in there:
        if chosen and name not in chosen:
            continue
        module = importlib.import_module(f"tools.benchmarks.bench_{name}")
        for result in module.run():
            failed += not result.holds
            print(
                f"{'holds ' if result.holds else 'FAILS '} {result.claim:<55} {result.measured:8.3f}  limit {result.limit:g}"
                f"   {result.detail}",
                flush=True,
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
