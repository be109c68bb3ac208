"""What was really run: record.json beside this file, written by `python -m tests.engines`, and the table made of it."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY
from tests.engines.case import CASES, Case

RECORD = Path(__file__).parent / "record.json"
PAGE = REPOSITORY / "docs" / "engines.md"
BEGINS, ENDS = "<!-- made by python -m tests.engines -->", "<!-- end -->"
LIBRARIES = ("torch", "transformers", "accelerate", "deepspeed")
WRITES_TO = "TRAINWIZ_ENGINES_RECORD"
"""Environment variable: the file that a test writes its line to."""


def line_of(case: Case, test: str, engine: dict[str, Any]) -> dict[str, Any]:
    """What `engine`, the engine.json of a run, says: as the table names what ran, with the class that wraps the model and
    the backend. `checked` and what the test did in the place of a library (`by_the_test`) are for the test to fill in."""
    device = engine["device_name"] or ("CPU" if str(engine["device"]).startswith("cpu") else str(engine["device"]))
    wrapper = engine["wrapper"].removeprefix("FSDP") if engine["actual"].startswith("fsdp") else engine["wrapper"]
    how = f"{engine['actual']}: {'fully_shard of ' if engine['actual'].startswith('fsdp') else ''}{wrapper}"
    return {
        "case": case.name,
        "test": test,
        "device": device,
        "processes": engine["world_size"],
        "ran": f"{how} over {engine['backend']}" if engine["backend"] else how,
        "checked": [],
        "versions": {name: metadata.version(name) for name in (LIBRARIES if case.uses_deepspeed else LIBRARIES[:-1])},
        "by_the_test": "",
    }


def read_record(path: Path = RECORD) -> dict[str, dict[str, Any]]:
    """Case name -> its line."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def table(record: dict[str, dict[str, Any]]) -> str:
    """The rows of the page; a case without a line was not run."""
    rows = ["| engine | what was really run | checked |", "|---|---|---|"]
    for case in CASES:
        line = record.get(case.name)
        if line is None:
            rows.append(f"| {case.name} | not run | nothing |")
            continue
        versions = ", ".join(f"{name} {version}" for name, version in line["versions"].items())
        count = "1 process" if line["processes"] == 1 else f"{line['processes']} processes"
        ran = f"{line['ran']}; {count} on {line['device']}; {versions}"
        checked = "; ".join(line["checked"]) + (f". {line['by_the_test']}" if line["by_the_test"] else "")
        rows.append(f"| {case.name} | {ran} | {checked} |")
    return "\n".join(rows) + "\n"


def with_table(page: str, rows: str) -> str:
    """The page with its table replaced."""
    head, _, rest = page.partition(BEGINS)
    return f"{head}{BEGINS}\n{rows}{ENDS}{rest.partition(ENDS)[2]}"
