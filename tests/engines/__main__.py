"""`python -m tests.engines [NAME...]`: runs every engine that this machine can, or those, and writes docs/engines.md.

A row is written by a test that came to its end, and by nothing else; what this machine cannot run keeps the row of the
machine that could.
"""

from __future__ import annotations

import os
import sys
import tempfile

import pytest

from tests.engines.case import CASES
from tests.engines.record import PAGE, WRITES_TO, rows_of, with_rows


def main() -> int:
    only, code = sys.argv[1:], 0
    for case in CASES:
        # A case that fails loses its row.
        if (only and case.name not in only) or case.why_not() is not None:
            continue
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as line:
            os.environ[WRITES_TO] = line.name
            test = f"tests/engines/test_runs.py::test_engine[{case.name.replace(' ', '-')}]"
            code = max(code, int(pytest.main(["-p", "no:cacheprovider", "-q", test])))
            page = PAGE.read_text(encoding="utf-8")
            written = {case.name: row} if (row := line.read()) else {}
            others = {name: row for name, row in rows_of(page).items() if name != case.name}
            PAGE.write_text(with_rows(page, others | written), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
