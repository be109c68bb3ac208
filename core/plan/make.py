"""make_plan: machine and config in, the whole preview out. Pure, and quick enough for every keystroke."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.config import RunConfig
from trainwiz.core.config.settings import SETTINGS
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.errors import Finding, Remedy, sort_findings
from trainwiz.core.estimate.evidence import NO_EVIDENCE, Evidence
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.language import tr
from trainwiz.core.plan.data_findings import DATA_FINDINGS
from trainwiz.core.plan.environment import environment_findings
from trainwiz.core.plan.fixes import find_fixes, find_headroom
from trainwiz.core.plan.refusals import refusals
from trainwiz.core.plan.resolve import resolve
from trainwiz.core.plan.result import Choice, Plan, PlannedModel
from trainwiz.core.plan.size_findings import SIZE_FINDINGS
from trainwiz.core.plan.tasks import learnt_words, recipe_findings
from trainwiz.core.profile.profile import Profile

JUDGES = (refusals, recipe_findings, environment_findings, *SIZE_FINDINGS, *DATA_FINDINGS)


def make_plan(
    machine: Machine,
    config: RunConfig,
    *,
    model: ModelSpec | None,
    data: DataSummary | None,
    profile: Profile | None = None,
    findings: Iterable[Finding] = (),
    evidence: Evidence = NO_EVIDENCE,
) -> Plan:
    """The plan of `config` on `machine`; every open value of the config is resolved, with its reason.

    `model` and `data` are None where they cannot be had: `findings` then says why (they are passed
    through), and the plan is made without them. `evidence` makes the estimates better. Reads nothing,
    and never raises for a config that RunConfig accepts.
    """
    plan = resolve(
        Plan(
            machine,
            config,
            asked=config,
            spec=model,
            data=data,
            based_on=profile,
            found=tuple(findings),
            known=evidence,
        )
    )
    plan.fixes, plan.headroom = find_fixes(plan), find_headroom(plan)
    found = [*plan.findings, *(finding for judge in JUDGES for finding in judge(plan))]
    plan.findings = sort_findings([_to_do(finding, plan.config) for finding in found])
    plan.model, plan.choices = _planned_model(plan), choices_of(plan.config)
    return plan


def _to_do(finding: Finding, config: RunConfig) -> Finding:
    """The finding without remedies whose values the config already has. Profile and folder are not keys of the config."""

    def is_open(remedy: Remedy) -> bool:
        try:
            return not remedy.changes or any(config.value(key) != value for key, value in remedy.changes.items())
        except KeyError:
            return True

    return replace(finding, remedies=tuple(filter(is_open, finding.remedies)))


def _planned_model(plan: Plan) -> PlannedModel:
    kind = plan.spec.architecture.get("model_type") if plan.spec is not None else None
    learnt, work, name = learnt_words(plan.config, plan.spec), plan.work, plan.config.model.name
    if learnt and plan.config.engine.base_precision not in (None, "none"):
        learnt = tr("{learnt}, base held in {precision}", learnt=learnt, precision=plan.config.engine.base_precision)
    if work is None:
        return PlannedModel(name, kind, None, None, learnt)
    parameters = work.architecture.parameters + work.adapter_parameters
    return PlannedModel(name, kind, parameters, work.trainable_parameters, learnt)


# Choices: what a person reads of a config.

NOT_SHOWN = frozenset({"model.architecture", "mode.kind", "name", "profile"})


def choices_of(config: RunConfig) -> tuple[Choice, ...]:
    """Every value that somebody chose, in the order of the settings."""
    rank = {key: position for position, key in enumerate(SETTINGS)}
    choices = []
    for key, origin in sorted(config.origins.items(), key=lambda chosen: rank.get(chosen[0], len(rank))):
        with suppress(KeyError):
            if key not in NOT_SHOWN:
                choices.append(Choice(key, _plain(config.value(key)), origin.origin, origin.reason))
    return tuple(choices)


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return {name: inner for name, inner in value.model_dump().items() if inner is not None}
    return [_plain(item) for item in value] if isinstance(value, list) else value
