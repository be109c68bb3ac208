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

import pytest

from tests.engines.case import CASES
from tests.engines.record import PAGE, RECORD, WRITES_TO, read_record, table, with_table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.engines", description=__doc__)
    parser.add_argument("--only", default="", metavar="NAME,NAME", help="these cases, like 'zero3 on cpu'")
    parser.add_argument("--table", action="store_true", help="write the table of what was run before, and run nothing")
    choices = parser.parse_args()
    only = {name.strip() for name in choices.only.split(",") if name.strip()}
    unknown = only - {case.name for case in CASES}
    if unknown:
        parser.error(f"no such engine: {', '.join(sorted(unknown))}")
    code, record = 0, read_record()
    for case in () if choices.table else CASES:
        if case.name not in only and only:
            continue
        # A case that fails loses its row.
        if case.why_not() is None:
            record.pop(case.name, None)
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as line:
            os.environ[WRITES_TO] = line.name
            test = f"tests/engines/test_runs.py::test_engine[{case.name.replace(' ', '-')}]"
            code = max(code, int(pytest.main(["-p", "no:cacheprovider", "-q", test])))
            if text := line.read():
                written = json.loads(text)
                record[written.pop("case")] = written
        RECORD.write_text(json.dumps(dict(sorted(record.items())), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), table(record)), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
