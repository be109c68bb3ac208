"""make_plan: machine and config in, the whole preview out. Pure, and quick enough for every keystroke."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.config import RunConfig
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.errors import Finding, sort_findings
from trainwiz.core.estimate.traced import NO_EVIDENCE, Evidence
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.export.accelerate import run_variables
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan.batch_findings import batch_findings, scope_findings
from trainwiz.core.plan.claims_findings import claim_findings
from trainwiz.core.plan.data_findings import data_findings, time_findings
from trainwiz.core.plan.draft import Given, choices_of
from trainwiz.core.plan.engine import loss_mean_findings
from trainwiz.core.plan.environment import environment_findings
from trainwiz.core.plan.fixes import find_fixes
from trainwiz.core.plan.hardware_findings import hardware_findings
from trainwiz.core.plan.memory_findings import find_headroom, memory_findings
from trainwiz.core.plan.recipe import learnt_words, recipe_findings
from trainwiz.core.plan.resolve import resolve
from trainwiz.core.plan.result import Plan, PlannedModel
from trainwiz.core.plan.tasks import task_findings
from trainwiz.core.profile.profile import Profile


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
    given = Given(machine, config, model, data, profile, tuple(findings), evidence)
    facts = resolve(given)
    facts = replace(facts, fixes=find_fixes(facts), room=find_headroom(facts))
    collected = list(facts.findings)
    for judge in (
        scope_findings,
        recipe_findings,
        task_findings,
        hardware_findings,
        environment_findings,
        memory_findings,
        batch_findings,
        data_findings,
        loss_mean_findings,
        time_findings,
        claim_findings,
    ):
        collected += judge(facts)
    collected = [_to_do(finding, facts.config) for finding in collected]
    return Plan(
        profile=facts.config.profile,
        machine=machine,
        config=facts.config,
        model=_planned_model(facts.config, model, facts.work),
        task=facts.config.task,
        batch=facts.batch,
        memory=facts.memory,
        time=facts.time,
        choices=choices_of(facts.config),
        findings=sort_findings(collected),
        extra={"data": _data_json(data), "environment": _environment_json(facts.config)},
        work=facts.work,
        usual=facts.usual,
        candidates=tuple(
            fix.after.work
            for fix in (*facts.fixes, *facts.room)
            if fix.after.work is not None and fix.after.given.model is model
        ),
    )


def _to_do(finding: Finding, config: RunConfig) -> Finding:
    """The finding without remedies that the config has already."""
    open_ones = tuple(one for one in finding.remedies if not one.changes or not _has(config, one.changes))
    return finding if len(open_ones) == len(finding.remedies) else replace(finding, remedies=open_ones)


def _has(config: RunConfig, changes: Mapping[str, Any]) -> bool:
    """Whether every value is there; what is no key of the config (profile, folder) is not."""
    try:
        return all(config.value(key) == value for key, value in changes.items())
    except KeyError:
        return False


def _planned_model(config: RunConfig, model: ModelSpec | None, work: Workload | None) -> PlannedModel:
    kind = model.architecture.get("model_type") if model is not None else None
    learnt = learnt_words(config, model)
    if work is None:
        return PlannedModel(config.model.name, kind, None, None, learnt)
    parameters = work.architecture.parameters + work.adapter_parameters
    return PlannedModel(config.model.name, kind, parameters, work.trainable_parameters, learnt)


def _environment_json(config: RunConfig) -> list[dict[str, str]]:
    """Every variable that launch.sh sets; those of the rules and of the user are among the choices too."""
    return [{"name": one.name, "value": one.value, "reason": one.reason} for one in run_variables(config)]


def _data_json(data: DataSummary | None) -> dict[str, Any] | None:
    if data is None:
        return None
    return {
        "rows": data.rows,
        "rows_exact": data.rows_exact,
        "validation_rows": data.validation_rows,
        "mean_length": sum(data.lengths) / len(data.lengths) if data.lengths else None,
        "longest": max(data.lengths, default=None),
        "length_unit": data.length_unit,
        "bytes_on_disk": data.bytes_on_disk,
        "columns": list(data.columns),
    }
