"""The reference for programs: every command in it, and schemas that what the commands print keeps to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from trainwiz.tui.cli import main
from trainwiz.tui.commands.agent_docs import PRINTED, RECIPES, SCHEMAS, schema_of
from trainwiz.tui.options import OPTIONS
from trainwiz.tui.subcommands import below

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema comes with the extra mcp")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    main(arguments)
    return dict(json.loads(capsys.readouterr().out))


def test_what_the_commands_print_keeps_to_its_schema(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--profile", "cpu-demo", "--dry-run", "--output-dir", "runs/one", "--plain"]) == 0
    (here / "log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    capsys.readouterr()
    documents = {
        "plan": printed(capsys, "plan", "--profile", "cpu-demo", "--tier", "analytic", "--json"),
        "fit": printed(capsys, "fit", "--dataset", "sample-chat", "--gpu", "RTX 3060 12GB", "--json"),
        "diagnose": printed(capsys, "diagnose", "log", "--json"),
        "monitor": printed(capsys, "monitor", "one", "--once", "--json"),
        "runs-list": printed(capsys, "runs", "list", "--json"),
        "runs-show": printed(capsys, "runs", "show", "one", "--json"),
        "hardware": printed(capsys, "hardware", "--json"),
        "failure": printed(capsys, "plan", "--profile", "nonsense", "--json"),
        "run": yaml.safe_load((here / "runs" / "one" / "run.yaml").read_text()),
    }
    assert set(documents) | {"profile"} == set(SCHEMAS)
    for name, document in documents.items():
        schema = schema_of(name)
        jsonschema.validate(document, schema)
        if name not in ("monitor", "run"):
            assert set(schema["properties"]) == set(document), name


def test_the_reference_names_every_command_choice_and_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent-docs"]) == 0
    text = capsys.readouterr().out
    assert not [name for name in below("") if f"`trainwiz {name}" not in text]
    assert not [option.flag for option in OPTIONS if f"`{option.synopsis}`: {option.help}" not in text]
    assert not [name for name in PRINTED if f"\n- {name}: " not in text]
    assert not [command for _, command in RECIPES if command not in text]
    assert len(text) < 30_000, "compact: it is read by a model"
