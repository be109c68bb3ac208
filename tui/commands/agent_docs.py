"""`trainwiz schema` and `trainwiz agent-docs`: what programs need to know, made of what the product has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, get_type_hints

from trainwiz.core.config.settings import all_settings
from trainwiz.core.errors import EXIT_FINISHED
from trainwiz.tui.choices import checked
from trainwiz.tui.options import EXIT_CODES, OPTIONS
from trainwiz.tui.output import say, say_json
from trainwiz.tui.subcommands import COMMANDS

# The JSON schemas: of the files that people write, and of what the commands print.

DIALECT = "https://json-schema.org/draft/2020-12/schema"
PRINTED = {
    "plan": "plan --json",
    "fit": "fit --json",
    "diagnose": "diagnose --json",
    "monitor": "monitor --once --json",
    "runs-list": "runs list --json",
    "runs-show": "runs show --json",
    "hardware": "hardware --json",
    "failure": "what every command with --json prints where it exits with 2 or 3",
}
"""Name of a schema -> the command whose output it describes."""
SCHEMAS = ("profile", "run", *PRINTED)


def run_schema(what: str) -> int:
    say_json(schema_of(checked("WHAT", what, SCHEMAS)))
    return EXIT_FINISHED


def schema_of(what: str) -> dict[str, Any]:
    if what == "profile":
        from trainwiz.core.profile.read import profile_schema

        return profile_schema()
    if what == "run":
        from trainwiz.core.config.run import RunConfig

        return {"$schema": DIALECT, **RunConfig.model_json_schema(), "title": "run.yaml"}
    return {"$schema": DIALECT, "title": f"trainwiz {PRINTED[what]}", **_schema(_shapes()[what])}


def _shapes() -> dict[str, Any]:
    """Name -> the type of what is printed; a mapping is an object with these keys, a list of one is a list of it."""
    from trainwiz.core.diagnosis.cause import Diagnosis
    from trainwiz.core.export.accelerate import Variable
    from trainwiz.core.hardware.machine import Machine
    from trainwiz.core.plan.result import BatchPlan, Choice, MemoryPlan, PlannedModel, TimePlan
    from trainwiz.core.run.attempts import PhaseNow, Recovery
    from trainwiz.core.run.listing import RunSummary, SetAside
    from trainwiz.core.run.state import RunState
    from trainwiz.core.telemetry.metrics import Pace
    from trainwiz.core.telemetry.snapshot import Planned

    remedy = {"text": str, "command": str | None, "changes": dict[str, Any]}
    finding = {"code": str, "severity": str, "where": str, "message": str, "remedy": str | None, "remedies": [remedy]}
    parts = {"model": PlannedModel, "batch": BatchPlan, "memory": MemoryPlan, "time": TimePlan}
    fit: dict[str, Any] = {
        "name": str,
        "method": str,
        "length": int,
        "rank": int | None,
        "verdict": str | None,
        "in_time": bool,
    }
    fit |= {"rows_cut": float | None, "cost": dict[str, float] | None, "command": str, "task": str, **parts}
    limit = {"seconds": float | None, "cost": float | None, "per_hour": float | None, "currency": str}
    metric = {"last": float | None, "count": int, "min": float | None, "max": float | None, "non_finite": int}
    progress = {"step": float | None, "max_steps": float | None, "epoch": float | None, "eta_s": float | None}
    return {
        "plan": {
            "profile": str | None, "machine": Machine, **parts, "task": str, "choices": [Choice],
            "findings": [finding], "data": dict[str, Any] | None, "environment": [Variable],
        },
        "fit": {
            "machine": Machine, "task": str, "rows_are": str, "told_by": str | None, "data_rows": int | None,
            "length_unit": str, "rule": str, "passes": float, "limit": limit, "models_tried": int, "fits": [fit],
        },
        "diagnose": {"source": str, "path": str, "status": str | None, **_fields(Diagnosis)},
        "monitor": {
            "source": str, "path": str, "name": str, "status": str, **progress, "pace": Pace, "planned": Planned,
            "metrics": {None: metric}, "gpus": list[dict[str, Any]], "host": dict[str, Any],
            "processes": list[dict[str, Any]], "exit": dict[str, Any] | None, "diagnosis": dict[str, Any] | None,
            "phase": PhaseNow | None, "advice": list[dict[str, Any]], "problems": list[str],
        },
        "runs-list": {"runs": [RunSummary]},
        "runs-show": {
            **_fields(RunSummary), "state": RunState, "checkpoints": list[dict[str, Any]],
            "set_aside": [SetAside], "phase": PhaseNow | None, "advice": list[dict[str, Any]], "recoveries": [Recovery],
        },
        "hardware": {**_fields(Machine), "rates": list[dict[str, Any]]},
        "failure": {"findings": [finding], "exit_code": int},
    }  # fmt: skip


def _fields(kind: type) -> dict[str, Any]:
    return dict(_schema(kind)["properties"])


def _schema(shape: Any) -> dict[str, Any]:
    """JSON schema of a shape: whole, without references, titles and defaults."""
    if isinstance(shape, list):
        return {"type": "array", "items": _schema(shape[0])}
    if isinstance(shape, Mapping) and None in shape:
        return {"type": "object", "additionalProperties": _schema(shape[None])}
    if isinstance(shape, Mapping) and ("type" in shape or "anyOf" in shape or not shape):
        return dict(shape)
    if isinstance(shape, Mapping):
        properties = {key: _schema(part) for key, part in shape.items()}
        return {"type": "object", "properties": properties, "required": list(properties)}
    document = _document(shape)
    return dict(_plain(document, document.get("$defs", {})))


def _document(kind: Any) -> dict[str, Any]:
    """As pydantic has it. Types that modules name for a checker alone are found here."""
    from pydantic import BaseModel, TypeAdapter, create_model
    from trainwiz.core.config.run import OriginKind
    from trainwiz.core.estimate import workload

    if not is_dataclass(kind):
        return TypeAdapter(kind).json_schema()
    hints = get_type_hints(kind, localns={**vars(workload), "OriginKind": OriginKind})
    fields: Any = {name: (hint, ...) for name, hint in hints.items()}
    model: type[BaseModel] = create_model("Document", **fields)
    return model.model_json_schema(mode="serialization")


def _plain(schema: Any, parts: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_plain(part, parts) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _plain(parts[schema["$ref"].rpartition("/")[2]], parts)
    plain = {
        key: {name: _plain(one, parts) for name, one in value.items()} if key == "properties" else _plain(value, parts)
        for key, value in schema.items()
        if key not in ("title", "default", "description", "$defs")
    }
    kinds = [part.get("type") for part in plain.get("anyOf", ()) if part.keys() == {"type"}]
    if kinds and len(kinds) == len(plain["anyOf"]):
        del plain["anyOf"]
        plain["type"] = kinds
    return plain


# The reference for agents: commands, schemas, exit codes, recipes.

INTRODUCTION = """# trainwiz: reference for programs

It plans, starts and watches fine-tuning. Look before you start: `plan`, `fit`, `diagnose`, `monitor --once`, `runs list`,
`runs show` and `hardware` write nothing and never ask. With --json they print one JSON document on stdout; a refusal is
one too. A run is a folder, `runs/<time>-<name>`; a command takes its name, the start of it, or its path.
Bytes are integers, seconds are floats, what is absent is null. Keys stay; more may be added."""

RECIPES = (
    ("Does it fit, and how long does it take?", "trainwiz plan --model qwen3-8b --dataset chats.jsonl --gpu 'RTX 3060 12GB' --json"),
    ("The same within a second, by formulas", "trainwiz plan --model qwen3-8b --dataset chats.jsonl --tier analytic --json"),
    ("What can this card train on this data until tomorrow?", "trainwiz fit --dataset chats.jsonl --until 08:00 --json"),
    ("Try the whole path with a tiny model", "trainwiz --profile qlora-8b-12g --smoke --yes --json"),
    ("Start a run that outlives this command", "trainwiz --model FOLDER --dataset chats.jsonl --yes --detach --json"),
    ("How is it doing?", "trainwiz monitor RUN --once --json"),
    ("Why did it end?", "trainwiz diagnose RUN --json"),
    ("Stop with a checkpoint, and continue later", "trainwiz runs stop RUN && trainwiz runs resume RUN --detach"),
)  # fmt: skip


def run_agent_docs() -> int:
    say("\n".join(reference_lines()))
    return EXIT_FINISHED


def reference_lines() -> Iterator[str]:
    yield from (INTRODUCTION, "", "## Commands", "")
    yield "- `trainwiz [OPTIONS] --yes`: plan, write the run folder, start, follow. Never asks."
    yield from _commands()
    yield from ("", "## Choices", "")
    for option in OPTIONS:
        yield f"- `{option.synopsis}`: {option.help}"
    yield from ("", "## Keys of --set, of `values` in a profile and of run.yaml", "")
    for setting in all_settings():
        values = f" ({', '.join(map(str, setting.values))})" if setting.values else ""
        yield f"- `{setting.key}`{values}: {setting.says}"
    yield from ("", "## Exit codes", "", EXIT_CODES, "", "## Recipes", "")
    yield from (f"- {what}: `{command}`" for what, command in RECIPES)
    yield from (
        "",
        "## JSON schemas of what is printed",
        "",
        "`trainwiz schema NAME` prints one; `profile` and `run` are",
    )
    yield "those of the YAML files."
    yield from (f"- {name}: {command}" for name, command in PRINTED.items())


def _commands() -> Iterator[str]:
    for command in sorted(COMMANDS, key=lambda one: one.words):
        yield f"- `{' '.join(['trainwiz', command.words, *(one.synopsis for one in command.arguments)])}`: {command.says}"
        yield from (f"  - {one.metavar}: {one.help}" for one in command.arguments)
        yield from (f"  - `{one.synopsis}`: {one.help}" for one in command.options)
        if command.choices:
            yield f"  - options: {' '.join(option.flag for option in command.choices)}"
