"""Each command that a remedy offers is one that trainwiz takes: its real parser reads it, up to the values."""

from __future__ import annotations

import functools
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


@functools.cache
def root() -> Any:
    return get_command(app)


def parsed(command: str) -> tuple[str, dict[str, Any]]:
    """(command, values) as typer's own parser reads them. Raises click's UsageError for what it does not take."""
    words = shlex.split(command)
    assert words[0] == "trainwiz"
    found, name = root(), ""
    context = found.make_context("trainwiz", words[1:], resilient_parsing=False)
    while hasattr(found, "get_command") and (rest := [*getattr(context, "_protected_args", []), *context.args]):
        name = rest[0]
        found = found.get_command(context, name)
        assert found is not None, command
        context = found.make_context(name, rest[1:], parent=context)
    return name, dict(context.params)


@each("cause", CAUSES)
def test_every_command_is_taken_and_a_run_can_be_gone_on_with_or_started_anew(cause) -> None:
    for name, place in PLACES.items():
        remedies = remedies_for(cause, place)
        assert remedies and all(remedy.text for remedy in remedies)
        commands = [remedy.command for remedy in remedies if remedy.command is not None]
        for command in commands:
            check(command)
        if name == "a run" and cause != "deepspeed_mismatch":
            assert any(" runs resume " in command or command.endswith("--yes") for command in commands), commands


@functools.cache
def check(command: str) -> None:
    name, values = parsed(command)
    if name in ("", "plan"):
        # The values themselves, as the headless run reads them.
        parse_choices({key: value for key, value in values.items() if key not in ("verbose", "version")})


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
