"""`python -m tests.engines`: runs every engine that this machine can, and writes the table of docs/engines.md.

A row is written by a test that came to its end, and by nothing else; what this machine cannot run keeps the row of the
machine that could.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.engines.case import CASES
from tests.engines.record import PAGE, RECORD, WRITES_TO, read_record, table, with_table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.engines", description=__doc__)
    parser.add_argument("--only", default="", metavar="NAME,NAME", help="these cases, like 'zero3 on cpu'")
    parser.add_argument("--table", action="store_true", help="write the table of what was run before, and run nothing")
    choices = parser.parse_args()
    if choices.table:
        write(read_record())
        return 0
    return run([name.strip() for name in choices.only.split(",") if name.strip()])


def run(only: list[str]) -> int:
    """Test after test; the exit code of pytest. A case that fails loses its row."""
    unknown = set(only) - {case.name for case in CASES}
    if unknown:
        print(f"no such engine: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    chosen = [case for case in CASES if case.name in only or not only]
    tests = [f"tests/engines/test_runs.py::test_engine[{case.name.replace(' ', '-')}]" for case in chosen]
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "lines.jsonl"
        os.environ[WRITES_TO] = str(lines)
        code = int(pytest.main(["-p", "no:cacheprovider", "-q", *tests], plugins=[Written(lines)]))
    lost = [case.name for case in chosen if case.why_not() is None and case.name not in Written.names]
    write({name: line for name, line in read_record().items() if name not in lost})
    return code


class Written:
    """Takes what a test wrote into the record as soon as it has ended: the rows of hours are not lost with the last."""

    names: ClassVar[set[str]] = set()

    def __init__(self, lines: Path) -> None:
        self._lines = lines

    def pytest_runtest_logfinish(self) -> None:
        if not self._lines.exists():
            return
        record = read_record()
        for text in self._lines.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            self.names.add(name := line.pop("case"))
            record[name] = line
        write(record)


def write(record: dict[str, dict[str, Any]]) -> None:
    """The record, and the table of the page from it."""
    RECORD.write_text(json.dumps(dict(sorted(record.items())), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), table(record)), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
