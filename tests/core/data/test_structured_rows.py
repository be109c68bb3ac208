"""Files in the shape of published sets: what is no text is named as what it is, and nothing beside it is guessed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import Finding
from trainwiz.core.plan.gather import plan_run
from trainwiz.core.plan.result import Plan

from tests.conftest import REPOSITORY
from tests.core.plan.machines import machine
from tests.each import each

CPU = machine(None)
TURNS = [{"from": "human", "value": "Hello there"}, {"from": "gpt", "value": "Hi, what can I do?"}]
MESSAGES = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi."},
]
SETS: dict[str, dict[str, Any]] = {
    "sharegpt": {"id": "abc_0", "conversations": TURNS},
    "messages": {"messages": MESSAGES},
    "ultrachat": {"prompt": "Hello", "prompt_id": "f0e3", "messages": MESSAGES},
    "lima": {"conversations": ["Hello", "Hi."], "source": "stackexchange"},
    "oasst": {
        "message_id": "6ab2", "parent_id": None, "user_id": "c3fe", "text": "Hello", "role": "prompter", "lang": "en",
        "message_tree_id": "6ab2", "source": "web",
    },
    "squad": {"id": "5733", "title": "T", "context": "C", "question": "Q?", "answers": {"text": ["A"], "answer_start": [1]}},
    "alpaca": {"instruction": "Add the numbers.", "input": "1 2", "output": "3"},
    "dolly": {"instruction": "Who?", "context": "Long.", "response": "He.", "category": "closed_qa"},
    "gsm8k": {"question": "1+1?", "answer": "2"},
    "plain": {"text": "Once upon a time there was a house."},
    "wiki": {"text": "A house is a building.", "categories": ["Building"]},
    "labels": {"id": "x1", "score": 0.5},
}  # fmt: skip


def written(folder: Path, name: str, form: str) -> Path:
    rows = [SETS[name]] * 50
    path = folder / f"{name}.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text(json.dumps(rows) if form == "json" else "\n".join(map(json.dumps, rows)) + "\n")
    return path


def planned(path: Path, **values: Any) -> Plan:
    overrides = {"model.name": "qwen2-tiny", "data.sources.0.name": str(path), **values}
    return plan_run(PlanRequest(overrides=overrides), CPU)


def by_code(plan: Plan) -> dict[str, Finding]:
    return {finding.code: finding for finding in plan.findings}


@each("form", ["jsonl", "json", "parquet"])
@each(
    ("name", "code", "words"),
    [
        ("sharegpt", "structured_columns", "list of chat turns (ShareGPT)"),
        ("messages", "structured_columns", "list of chat turns (OpenAI messages)"),
        ("ultrachat", "structured_columns", "list of chat turns"),
        ("lima", "structured_columns", "list of chat turns"),
        ("oasst", "structured_columns", "OpenAssistant"),
        ("squad", "structured_columns", "is a list"),
        ("wiki", "structured_columns", "is a list"),
        ("labels", "missing_column", "does not say which column"),
        ("alpaca", "unused_prompt_column", "'input'"),
        ("dolly", "unused_prompt_column", "'context'"),
        ("gsm8k", None, ""),
        ("plain", None, ""),
    ],
)
def test_what_a_file_is(tmp_path: Path, name: str, form: str, code: str | None, words: str) -> None:
    plan = planned(written(tmp_path, name, form))
    found = by_code(plan)
    about_data = {one for one in found if found[one].where.startswith("data.sources") and found[one].severity != "note"}
    assert about_data == ({code} if code else set()), plan.findings
    if code is None:
        return
    finding = found[code]
    assert words in finding.message and "\n" not in finding.message and (finding.remedies or code == "missing_column")
    assert finding.severity == ("warning" if code == "unused_prompt_column" else "error")
    source = plan.config.data.sources[0]
    if finding.severity == "error":
        assert source.text_column is None and source.target_column is None
    for remedy in finding.remedies:
        if remedy.changes:
            after = by_code(planned(tmp_path / f"{name}.{form}", **remedy.changes))
            assert not {"structured_columns", "missing_column", "not_text"} & set(after)


def test_a_list_that_is_named_leads_in_no_circle(tmp_path: Path) -> None:
    path = written(tmp_path, "sharegpt", "jsonl")
    finding = by_code(planned(path, **{"data.sources.0.text_column": "conversations"}))["not_text"]
    assert "is a list, not a text" in finding.message and not any(remedy.changes for remedy in finding.remedies)


def test_the_recipes_of_the_docs_make_files_that_train(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "data.md").read_text()
    programs = re.findall(r"<<'EOF'\n(.*?)EOF", page, re.DOTALL)
    assert len(programs) == 2
    for program, names in zip(programs, (("sharegpt", "messages"), ("alpaca", "dolly")), strict=True):
        for name in names:
            path = written(tmp_path, name, "jsonl")
            done = subprocess.run(
                [sys.executable, "-", str(path)], input=program, capture_output=True, text=True, check=True
            )
            pairs = tmp_path / f"{name}-pairs.jsonl"
            pairs.write_text(done.stdout)
            assert not [one for one in planned(pairs).findings if one.where.startswith("data.sources")]
