"""The table of docs/engines.md has a row for each engine, which its test has written, or says that it was not run."""

from __future__ import annotations

from tests.engines.case import CASES
from tests.engines.record import PAGE, rows_of, with_rows


def test_the_page_has_the_row_of_each_case() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = rows_of(page)
    assert page == with_rows(page, rows), "write it with: python -m tests.engines"
    for case in CASES:
        name, ran, checked = rows[case.name].strip("| ").split(" | ")
        if ran != "not run":
            assert name == case.name and ran.split(":")[0] == case.actual and checked.count("; ") == 4
            assert (" on CPU; torch " in ran) == (case.device == "cpu")
            assert "; 1 process on " in ran or case.strategy != "single"
    assert with_rows(page, {}).count("| not run | nothing |\n") == len(CASES)
