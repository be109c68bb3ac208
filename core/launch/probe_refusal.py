"""What forbids a probe: it runs on this machine, and it takes the RAM and the GPU that the plan says."""

from __future__ import annotations

from collections.abc import Iterator

from trainwiz.core.errors import CannotRunError, UsageError
from trainwiz.core.findings import Finding, Remedy
from trainwiz.core.language import tr
from trainwiz.core.plan.result import Plan

NOT_OF_A_STEP = frozenset(
    {
        "adapters_on_random_weights", "disk", "disk_too_small", "empty_data", "evaluation_does_not_fit", "gated_model", "missing_data",
        "missing_language", "missing_model", "missing_tokenizer", "mixed_formats", "name_taken", "nothing_held_out",
        "nothing_to_compare", "nothing_to_generate", "output_not_writable", "reporter_missing",
        "reporter_not_supported", "several_targets", "unknown_language", "unknown_lengths", "unknown_metric",
        "unreadable_data",
    }
)  # fmt: skip
"""Errors of a plan that a few steps with random weights do not meet."""
FOUND_OUT_ON_A_GPU = frozenset({"does_not_fit"})
"""A GPU that runs out of memory says so and nothing else is lost; a computer without RAM takes other programs down."""


def check_probe(plan: Plan) -> None:
    """Raises UsageError for what can be no probe here, CannotRunError for what this machine or the plan forbids."""
    asked = tuple(_asked_wrongly(plan))
    if asked:
        raise UsageError(asked)
    if plan.config.forced:
        return
    allowed = NOT_OF_A_STEP if plan.config.engine.device == "cpu" else NOT_OF_A_STEP | FOUND_OUT_ON_A_GPU
    forbidding = tuple(one for one in plan.errors if one.code not in allowed)
    if forbidding:
        raise CannotRunError(forbidding)


def _asked_wrongly(plan: Plan) -> Iterator[Finding]:
    if plan.machine.hypothetical:
        yield _finding(
            "machine",
            tr("A probe measures this machine, and the plan is for another one: leave --gpu and its figures out."),
            Remedy(tr("a plan for the other machine needs no probe: trainwiz plan takes the same choices")),
        )
    if plan.config.engine.nodes > 1:
        message = tr(
            "A probe measures one machine, and the plan has {n}: set engine.nodes=1.", n=plan.config.engine.nodes
        )
        yield _finding("engine.nodes", message)
    if plan.work is None or not plan.work.model_config:
        said = next((one.message for one in plan.errors if one.where.startswith("model")), "")
        message = tr("What the model {name} is made of is not known.", name=plan.config.model.name)
        yield _finding("model.name", tr("{message} {reason}", message=message, reason=said) if said else message)


def _finding(where: str, message: str, *remedies: Remedy) -> Finding:
    return Finding("no_probe", "error", where, message, remedies)
