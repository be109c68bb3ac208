"""The table of docs/engines.md is what was recorded, and what was recorded is a test that exists."""

from __future__ import annotations

from tests.engines import test_runs
from tests.engines.case import CASES
from tests.engines.record import PAGE, read_record, table, with_table


def test_the_page_is_the_record_and_each_line_was_written_by_a_test_that_exists() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page, table(read_record())), "write it with: python -m tests.engines --table"
    assert with_table("a\n<!-- made by python -m tests.engines -->\nold\n<!-- end -->\nz\n", "new\n").endswith(
        "-->\nnew\n<!-- end -->\nz\n"
    )
    (mark,) = (mark for mark in test_runs.test_engine.pytestmark if mark.name == "parametrize")
    tests = {parameter.id: parameter.values[0] for parameter in mark.args[1]}
    for name, line in read_record().items():
        case = tests[name.replace(" ", "-")]
        assert line["test"] == f"test_engine[{name.replace(' ', '-')}]"
        assert line["ran"].split(":")[0] == case.actual
        assert line["processes"] == 1 or case.strategy != "single"
        assert (line["device"] == "CPU") == (case.device == "cpu")
        assert len(line["checked"]) == 5 and all(line["versions"].values())
    rows = table({}).splitlines()[2:]
    assert len(rows) == len(CASES) and all("| not run |" in row for row in rows)
