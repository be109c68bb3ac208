"""What was really run: the rows of the table in docs/engines.md, written by `python -m tests.engines`."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from tests.conftest import REPOSITORY
from tests.engines.case import CASES, Case

PAGE = REPOSITORY / "docs" / "engines.md"
BEGINS, ENDS = "<!-- made by python -m tests.engines -->\n", "<!-- end -->"
HEAD = "| engine | what was really run | checked |\n|---|---|---|\n"
LIBRARIES = ("torch", "transformers", "accelerate", "deepspeed")
WRITES_TO = "TRAINWIZ_ENGINES_RECORD"
"""Environment variable: the file that a test writes its row to."""


def row_of(case: Case, engine: dict[str, Any], checked: list[str]) -> str:
    """What `engine`, the engine.json of a run, says, with the class that wraps the model and the backend; what was checked,
    and what the test did in the place of a library."""
    by_the_test = ""
    if case.strategy == "fsdp" and case.device == "cpu":
        by_the_test = ". accelerate's choice of DistributedDataParallel on a CPU is replaced by the test"
        by_the_test += ", and host RAM is not page-locked, which needs a GPU" if case.offload == "all" else ""
    device = engine["device_name"] or ("CPU" if str(engine["device"]).startswith("cpu") else str(engine["device"]))
    wrapper = engine["wrapper"].removeprefix("FSDP") if engine["actual"].startswith("fsdp") else engine["wrapper"]
    ran = f"{engine['actual']}: {'fully_shard of ' if engine['actual'].startswith('fsdp') else ''}{wrapper}"
    ran += f" over {engine['backend']}" if engine["backend"] else ""
    count = "1 process" if engine["world_size"] == 1 else f"{engine['world_size']} processes"
    libraries = LIBRARIES if case.uses_deepspeed else LIBRARIES[:-1]
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in libraries)
    return f"| {case.name} | {ran}; {count} on {device}; {versions} | {'; '.join(checked)}{by_the_test} |"


def rows_of(page: str) -> dict[str, str]:
    """Case name -> its row."""
    lines = page.partition(BEGINS)[2].partition(ENDS)[0].splitlines()[2:]
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines}


def with_rows(page: str, rows: dict[str, str]) -> str:
    """The page with these rows alone; a case without one was not run."""
    head, _, rest = page.partition(BEGINS)
    table = "".join(rows.get(case.name, f"| {case.name} | not run | nothing |") + "\n" for case in CASES)
    return f"{head}{BEGINS}{HEAD}{table}{ENDS}{rest.partition(ENDS)[2]}"
