"""`trainwiz schema` and `trainwiz agent-docs`: what programs need to know, made of what the product has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints

from trainwiz.core.config.settings import all_settings
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


def run_schema(what: str) -> None:
    say_json(schema_of(checked("WHAT", what, SCHEMAS)))


def schema_of(what: str) -> dict[str, Any]:
    if what == "profile":
        from trainwiz.core.profile.read import profile_schema

        return profile_schema()
    if what == "run":
        from trainwiz.core.config.run import RunConfig

        return {"$schema": DIALECT, **RunConfig.model_json_schema(), "title": "run.yaml"}
    from pydantic import TypeAdapter

    document = TypeAdapter(_shapes()[what]).json_schema(mode="serialization")
    return {"$schema": DIALECT, "title": f"trainwiz {PRINTED[what]}", **_plain(document, document.get("$defs", {}))}


def _shapes() -> dict[str, Any]:
    """Name -> the type of what is printed."""
    from pydantic import create_model
    from trainwiz.core.config.run import OriginKind
    from trainwiz.core.diagnosis.cause import Diagnosis
    from trainwiz.core.estimate import workload
    from trainwiz.core.export.accelerate import Variable
    from trainwiz.core.hardware.machine import Machine
    from trainwiz.core.plan.result import BatchPlan, Choice, MemoryPlan, PlannedModel, TimePlan
    from trainwiz.core.run.attempts import PhaseNow, Recovery
    from trainwiz.core.run.listing import RunSummary, SetAside
    from trainwiz.core.run.state import RunState
    from trainwiz.core.telemetry.metrics import Pace
    from trainwiz.core.telemetry.snapshot import Planned

    # To a checker an object that is made here is no type.
    many: Any = list
    by_name: Any = dict
    # Types that modules name for a checker alone.
    names = {**vars(workload), "OriginKind": OriginKind}

    def keys(*kinds: type, **types: Any) -> Any:
        """An object with the fields of these dataclasses and with these keys."""
        hints = [get_type_hints(kind, localns=names) for kind in kinds]
        fields: Any = {name: (hint, ...) for hint in (*hints, types) for name, hint in hint.items()}
        return create_model("Document", **fields)

    text, figure, documents = str | None, float | None, list[dict[str, Any]]
    remedy = keys(text=str, command=text, changes=dict[str, Any])
    finding = keys(code=str, severity=str, where=str, message=str, remedy=text, remedies=many[remedy])
    parts = {"model": PlannedModel, "batch": BatchPlan, "memory": keys(MemoryPlan), "time": keys(TimePlan)}
    fit = keys(
        name=str, method=str, length=int, rank=int | None, verdict=text, in_time=bool, rows_cut=figure,
        cost=dict[str, float] | None, command=str, task=str, **parts,
    )  # fmt: skip
    limit = keys(seconds=figure, cost=figure, per_hour=figure, currency=str)
    metric = keys(last=figure, count=int, min=figure, max=figure, non_finite=int)
    now = {"phase": PhaseNow | None, "advice": documents}
    return {
        "plan": keys(
            profile=text, machine=Machine, **parts, task=str, choices=many[keys(Choice)], findings=many[finding],
            data=dict[str, Any] | None, environment=list[Variable],
        ),
        "fit": keys(
            machine=Machine, task=str, rows_are=str, told_by=text, data_rows=int | None, length_unit=str, rule=str,
            passes=float, limit=limit, models_tried=int, fits=many[fit],
        ),
        "diagnose": keys(Diagnosis, source=str, path=str, status=text),
        "monitor": keys(
            source=str, path=str, name=str, status=str, step=figure, max_steps=figure, epoch=figure, eta_s=figure,
            pace=Pace, planned=Planned, metrics=by_name[str, metric], gpus=documents, host=dict[str, Any],
            processes=documents, exit=dict[str, Any] | None, diagnosis=dict[str, Any] | None, problems=list[str], **now,
        ),
        "runs-list": keys(runs=list[RunSummary]),
        "runs-show": keys(
            RunSummary, state=RunState, checkpoints=documents, set_aside=list[SetAside], recoveries=list[Recovery], **now
        ),
        "hardware": keys(Machine, rates=documents),
        "failure": keys(findings=many[finding], exit_code=int),
    }  # fmt: skip


def _plain(schema: Any, parts: Mapping[str, Any]) -> Any:
    """Whole, without references, titles and defaults; every key is always there."""
    if isinstance(schema, list):
        return [_plain(part, parts) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _plain(parts[schema["$ref"].rpartition("/")[2]], parts)
    left_out = ("title", "default", "description", "$defs", "properties")
    plain = {key: _plain(value, parts) for key, value in schema.items() if key not in left_out}
    if properties := schema.get("properties"):
        plain["properties"] = {name: _plain(one, parts) for name, one in properties.items()}
        plain["required"] = list(properties)
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


def run_agent_docs() -> None:
    say("\n".join(reference_lines()))


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
