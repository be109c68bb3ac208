"""Each command that a remedy offers is one that trainwiz takes: its real parser reads it, up to the values."""

from __future__ import annotations

import shlex
from typing import Any

from trainwiz.core.diagnosis.cause import CAUSES, Settings
from trainwiz.core.diagnosis.patterns import Place, remedies_for, smaller_batch
from trainwiz.core.plan.gather import plan_run
from trainwiz.tui.choices import parse_choices
from trainwiz.tui.command import app
from typer.main import get_command

from tests.each import each

KNOWN = Settings(
    micro_batch=6,
    accumulation=8,
    workers=8,
    sequence_length=512,
    learning_rate=1e-3,
    precision="bf16",
    checkpointing=False,
    again=("--profile", "cpu-demo", "--model", "esm2-tiny", "--set", "training.max_steps=40"),
)
PLACES = {
    "a run": Place("2026-11-22_0303-cpu-demo", KNOWN),
    "a run in evaluation": Place("2026-11-22_0303-cpu-demo", KNOWN, "evaluation"),
    "a run in a folder with a space": Place(shlex.quote("/tmp/my runs/a"), KNOWN),
    "a run of micro-batch 1": Place("r", Settings(micro_batch=1, accumulation=3, workers=1)),
    "a log from elsewhere": Place(None, Settings()),
}


def parsed(command: str) -> tuple[str, dict[str, Any]]:
    """(command, values) as typer's own parser reads them. Raises click's UsageError for what it does not take."""
    words = shlex.split(command)
    assert words[0] == "trainwiz"
    found = get_command(app)
    context = found.make_context("trainwiz", words[1:], resilient_parsing=False)
    rest = [*context._protected_args, *context.args]
    values = dict(context.params)
    name = ""
    while rest and hasattr(found, "get_command"):
        name = rest[0]
        found = found.get_command(context, name)  # type: ignore[attr-defined]
        assert found is not None, command
        context = found.make_context(name, rest[1:], parent=context)
        values = dict(context.params)
        rest = [*getattr(context, "_protected_args", []), *context.args]
    return name, values


@each("place", PLACES)
@each("cause", CAUSES)
def test_every_command_is_taken(cause, place: str) -> None:
    remedies = remedies_for(cause, PLACES[place])
    assert remedies
    assert all(remedy.text for remedy in remedies)
    for remedy in remedies:
        if remedy.command is None:
            continue
        name, values = parsed(remedy.command)
        if name in ("", "plan"):
            # The values themselves, as the headless run reads them.
            options = {key: value for key, value in values.items() if key not in ("verbose", "version")}
            parse_choices(options)


@each("cause", [cause for cause in CAUSES if cause != "deepspeed_mismatch"])
def test_a_run_can_be_gone_on_with_or_started_anew(cause) -> None:
    commands = [remedy.command or "" for remedy in remedies_for(cause, PLACES["a run"])]
    assert any(" runs resume " in command or command.endswith("--yes") for command in commands), commands


@each(
    ("micro", "accumulation", "smaller"),
    [(6, 8, (3, 16)), (8, 1, (4, 2)), (5, 8, (2, 20)), (7, 3, (3, 7)), (2, 1, (1, 2)), (1, 8, None), (None, 8, None)],
)
def test_half_the_micro_batch_is_the_same_batch(micro, accumulation, smaller) -> None:
    assert smaller_batch(Settings(micro_batch=micro, accumulation=accumulation)) == smaller


def test_the_numbers_are_those_of_the_run() -> None:
    remedy = remedies_for("cuda_oom", PLACES["a run"])[0]
    assert remedy.command == (
        "trainwiz --profile cpu-demo --model esm2-tiny --set training.max_steps=40 --micro-batch 3 --accumulation 16 --yes"
    )
    _, values = parsed(remedy.command)
    options = {key: value for key, value in values.items() if key != "version"}
    plan = plan_run(parse_choices(options).request)
    assert (plan.batch.micro_batch, plan.batch.accumulation) == (3, 16)
    assert plan.config.value("training.max_steps") == 40
