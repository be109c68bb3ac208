"""What the settings of one import, or of several together, say against themselves and leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainwiz.core.findings import Finding, sort_findings
from trainwiz.core.importing.command_line_data_parallel import data_parallel_findings
from trainwiz.core.importing.merge import Merged
from trainwiz.core.importing.report import Dropped, Report, Unknown
from trainwiz.core.importing.values import shown
from trainwiz.core.language import mark, tr

BATCH = ("batch.target_samples", "batch.micro_batch_size", "batch.gradient_accumulation_steps")


def checked(merged: Merged) -> Merged:
    """The same with what cannot be taken left out, and a finding for each thing that is wrong or missing."""
    merged = _without_refused(merged)
    merged = _whole_batch(merged)
    plain_python = data_parallel_findings(merged.setup, merged.values, merged.parts[0].file)
    return _with(merged, findings=[*plain_python, *_missing(merged)])


def _with(
    merged: Merged,
    findings: Iterator[Finding] | Sequence[Finding] = (),
    values: Mapping[str, Any] | None = None,
    report: Report | None = None,
) -> Merged:
    report = report or merged.report
    report = replace(report, findings=sort_findings([*report.findings, *findings]))
    return replace(merged, values=merged.values if values is None else values, report=report)


def _without_refused(merged: Merged) -> Merged:
    """Values that no run can have are kept in the report as unknown."""
    from trainwiz.core.config.build import build_config, check_values
    from trainwiz.core.config.run import RunConfig
    from trainwiz.core.errors import UsageError

    good, findings = check_values(RunConfig(), merged.values, merged.place_of)
    if not findings:
        good = dict(merged.values)
    try:
        build_config(None, good)
    except UsageError as error:
        for finding in error.findings:
            findings.append(replace(finding, where=merged.place_of(finding.where)))
            good.pop(finding.where, None)
    bad = [one for one in merged.report.mapped if one.key in merged.values and one.key not in good]
    report = replace(
        merged.report,
        mapped=tuple(one for one in merged.report.mapped if one not in bad),
        unknown=(*merged.report.unknown, *(Unknown(one.name, one.value, one.line, one.file) for one in bad)),
    )
    said = [replace(finding, severity="warning", message=_left_out(finding.message)) for finding in findings]
    return _with(merged, said, good, report)


def _left_out(message: str) -> str:
    return tr("{message} It is left out.", message=message)


def _whole_batch(merged: Merged) -> Merged:
    """Sequences of a step = micro-batch x accumulation x processes; what two of them say decides the third."""
    total, micro, accumulation = (merged.values.get(key) for key in BATCH)
    world = world_size(merged.values)
    if micro is None or any(key in merged.values for key in ("batch.target_tokens", "batch.target_real_tokens")):
        return merged
    if total is None:
        return merged if accumulation is None else _with_total(merged, micro * accumulation, world)
    if world is None:
        return merged if accumulation is None else _with_processes(merged, total, micro * accumulation)
    if total % (micro * world) == 0 if accumulation is None else total == micro * accumulation * world:
        return merged
    return _without_total(merged, total, micro, accumulation, world)


def _with_total(merged: Merged, window: int, world: int | None) -> Merged:
    """A plan for another number of GPUs keeps what a step sees, so the profile says how much that is."""
    where = merged.place_of("batch.micro_batch_size")
    if world is None:
        message = tr(
            "Nothing says on how many GPUs; a plan keeps micro-batch x accumulation = {window} sequences a step on any "
            "number of them, unless --target-samples says another.",
            window=window,
        )
        return _with(merged, [Finding("follows", "note", where, message)])
    message = tr(
        "A step sees micro-batch x accumulation {window} x {world} processes = {total} sequences; a plan keeps that on "
        "other GPUs (batch.target_samples).",
        window=window,
        world=world,
        total=window * world,
    )
    values = {**merged.values, BATCH[0]: window * world}
    return _with(merged, [Finding("follows", "note", where, message)], values)


def _without_total(merged: Merged, total: int, micro: int, accumulation: int | None, world: int) -> Merged:
    """The sequences of a step that contradict the rest are left out; what the rest comes to takes their place."""
    message = tr(
        "{place} says {total} sequences a step, and micro-batch {micro} x accumulation {accumulation} x {world} "
        "processes is {product}; {product} is taken.",
        place=merged.place_of(BATCH[0]),
        total=total,
        micro=micro,
        accumulation=accumulation or 1,
        world=world,
        product=micro * (accumulation or 1) * world,
    )
    values = {**merged.values, BATCH[0]: micro * (accumulation or 1) * world}
    why = mark("It contradicts micro-batch, accumulation and the number of processes.")
    gone = [one for one in merged.report.mapped if one.key == BATCH[0]]
    report = replace(
        merged.report,
        mapped=tuple(one for one in merged.report.mapped if one not in gone),
        dropped=(*merged.report.dropped, *(Dropped(one.name, one.value, why, one.line, one.file) for one in gone)),
    )
    finding = Finding("contradiction", "warning", merged.place_of(BATCH[0]), message)
    return _with(merged, [finding], values, report)


def _with_processes(merged: Merged, total: int, window: int) -> Merged:
    """The only number of processes with which the figures are true; DeepSpeed refuses every other one."""
    if total % window or "engine.device" in merged.values:
        return merged
    world = total // window
    message = tr(
        "{place}: {total} sequences a step are micro-batch x accumulation {window} x {world} processes, so "
        "engine.processes is {world}.",
        place=merged.place_of(BATCH[0]),
        total=total,
        window=window,
        world=world,
    )
    finding = Finding("follows", "note", merged.place_of(BATCH[0]), message)
    return _with(merged, [finding], {**merged.values, "engine.processes": world})


def world_size(values: Mapping[str, Any]) -> int | None:
    """Processes over all nodes; None where nothing says how many."""
    processes = values.get("engine.processes")
    return None if processes is None else int(processes) * int(values.get("engine.nodes") or 1)


def _missing(merged: Merged) -> Iterator[Finding]:
    """What a run needs and no text names: the plan takes its default, which must not look like what was imported."""
    where = merged.parts[0].file
    if not merged.values:
        message = tr("Nothing of {file} has a place in a run; the profile holds the defaults of a plan.", file=where)
        yield Finding("nothing_mapped", "warning", where, message)
    if "model.name" not in merged.values:
        message = tr(
            "No model is named; a plan takes {default} until --model says which.", default=shown(_default("model.name"))
        )
        yield Finding("missing_model", "note", where, message)
    if not any(key.startswith("data.sources") for key in merged.values):
        message = tr(
            "No data is named; a plan takes {default} until --dataset says which.",
            default=shown(_default("data.sources.0.name")),
        )
        yield Finding("missing_data", "note", where, message)


def _default(key: str) -> Any:
    from trainwiz.core.config.run import RunConfig

    return RunConfig().value(key)
