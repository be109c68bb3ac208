"""Several texts as one import, checked together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainwiz.core.errors import Finding, Severity, sort_findings
from trainwiz.core.importing.report import Dropped, Imported, Kind, Mapped, Report, Unknown, engine_values, gpu_list
from trainwiz.core.importing.settings import shown
from trainwiz.core.language import mark, tr

# What plain `python train.py` does on a machine with several GPUs, which is not what a launcher does.
#
# Source: Trainer._wrap_model and TrainingArguments.train_batch_size (transformers 5.23): with more than one visible GPU
# and no process group, the model is wrapped in torch.nn.DataParallel, and the batch of the one process is
# per_device_train_batch_size x GPUs.


def data_parallel_findings(setup: Mapping[str, Any], values: Mapping[str, Any], where: str) -> Iterator[Finding]:
    """A finding for a training that plain python starts on several GPUs, or may: `values` are those of all that was
    imported together, so that the batch is the one of the script."""
    if setup.get("launcher") != "python" or values.get("engine.device") in ("cpu", "mps"):
        return
    gpus = len(gpu_list(setup.get("gpu_ids"))) or setup.get("visible_gpus")
    if gpus == 1:
        return
    window = _window(values)
    if gpus:
        yield Finding("data_parallel", "warning", where, _on(gpus, window))
    else:
        yield Finding("data_parallel", "warning", where, _on_all(window))


def _window(values: Mapping[str, Any]) -> int | None:
    """Sequences of one GPU in one optimizer step; None where the micro-batch is not known."""
    micro, accumulation = (values.get(f"batch.{key}") for key in ("micro_batch_size", "gradient_accumulation_steps"))
    return None if not isinstance(micro, int) else micro * (accumulation if isinstance(accumulation, int) else 1)


def _on(gpus: int, window: int | None) -> str:
    said = (
        tr(
            "Started with plain python on {gpus} GPUs, the Trainer wraps the model in DataParallel: one process, slower "
            "than DDP.",
            gpus=gpus,
        )
        if window is None
        else tr(
            "Started with plain python on {gpus} GPUs, the Trainer wraps the model in DataParallel: one process, slower "
            "than DDP, and a step sees {window} x {gpus} = {total} sequences, not {window}.",
            gpus=gpus,
            window=window,
            total=window * gpus,
        )
    )
    return tr("{said} trainwiz starts one process for each GPU instead.", said=said)


def _on_all(window: int | None) -> str:
    said = (
        tr(
            "On several GPUs plain python makes the Trainer wrap the model in DataParallel: one process, slower than DDP."
        )
        if window is None
        else tr(
            "On several GPUs plain python makes the Trainer wrap the model in DataParallel: one process, slower than "
            "DDP, and a step sees {window} x GPUs sequences ({four} with 4), not {window}.",
            window=window,
            four=window * 4,
        )
    )
    return tr("{said} trainwiz starts one process for each GPU instead.", said=said)


# Several imports as one: who wins where two say different things, and a finding that names both places.
#
# The order is that of accelerate and transformers: the command over the accelerate file that it names (launch.py,
# _validate_launch_command), the Trainer's precision over the launcher's (TrainingArguments.__post_init__), and what
# DeepSpeed does from its own file, because the Trainer refuses other values beside it (trainer_config_process).

RANKS: Mapping[Kind, int] = {"accelerate": 1, "deepspeed": 2, "training_arguments": 3, "launch_command": 4}
"""Higher wins."""

ENGINE_RANKS: Mapping[Kind, int] = {"accelerate": 1, "training_arguments": 2, "launch_command": 3, "deepspeed": 4}
"""The same for the keys of ENGINE_KEYS: ZeRO stage and offload are what the DeepSpeed file says."""

ENGINE_KEYS = ("engine.strategy", "engine.offload")
SAME_HALF = frozenset({"bf16", "bf16-true"})
WEAK_STRATEGIES = frozenset({"ddp", "single"})
"""What a launcher alone comes to; that the script then uses DeepSpeed or FSDP contradicts nothing."""


MOST_PARTS = 1000
OVERLAID, BY_SETUP = -1, 0
"""Ranks of what a setup decides: below all that a text says directly; the last setup stands for all of them."""


@dataclass(frozen=True, slots=True)
class Said:
    """One value for a key: who says it, and how strongly."""

    part: Imported
    value: Any
    rank: int


@dataclass(frozen=True, slots=True)
class Merged:
    """All that was given, as one."""

    parts: tuple[Imported, ...]
    values: Mapping[str, Any]
    setup: Mapping[str, Any]
    report: Report

    @property
    def kind(self) -> Kind:
        """That of the first."""
        return self.parts[0].kind

    def place_of(self, key: str) -> str:
        """ "FILE:LINE" of the setting that gave the value at `key`."""
        for one in reversed(self.report.mapped):
            if one.key == key:
                return f"{one.file}:{one.line}" if one.line else one.file
        return self.parts[0].file


def merge(parts: Sequence[Imported], findings: Iterable[Finding] = ()) -> Merged:
    """One import of all `parts`, which are in the order in which they were given; there must be one."""
    setup: dict[str, Any] = {}
    for part in _setup_order(parts):
        setup.update(part.setup)
    said = _said(parts, engine_values(setup))
    winners = {key: max(claims, key=lambda claim: claim.rank) for key, claims in said.items()}
    values: dict[str, Any] = {}
    for part in parts:
        values.update(part.defaults)
    values.update({key: winner.value for key, winner in winners.items()})
    found = [finding for key, claims in said.items() for finding in _contradictions(key, claims, winners[key])]
    mapped, overruled = _settled(parts, values, winners)
    report = Report(
        mapped,
        tuple(one for part in parts for one in part.report.renamed),
        (*(one for part in parts for one in part.report.dropped), *overruled),
        tuple(one for part in parts for one in part.report.unknown),
        sort_findings([*(finding for part in parts for finding in part.report.findings), *findings, *found]),
    )
    return Merged(tuple(parts), values, setup, report)


def _setup_order(parts: Iterable[Imported]) -> list[Imported]:
    """Files first, then commands: the last one wins."""
    return sorted(parts, key=lambda part: RANKS[part.kind])


def _said(parts: Sequence[Imported], laid_over: Mapping[str, Any]) -> dict[str, list[Said]]:
    """Key -> everything that is said of it. `laid_over` is what all setups together decide."""
    said: dict[str, list[Said]] = {}
    for key, value in laid_over.items():
        speakers = [part for part in _setup_order(parts) if _speaks(part, key, parts)]
        claims = [Said(part, engine_values(part.setup)[key], OVERLAID) for part in speakers[:-1]]
        if speakers:
            said[key] = [*claims, Said(speakers[-1], value, BY_SETUP)]
    for order, part in enumerate(parts):
        own = engine_values(part.setup)
        for key, value in part.values.items():
            if own.get(key, ...) != value:
                ranks = ENGINE_RANKS if key in ENGINE_KEYS else RANKS
                said.setdefault(key, []).append(Said(part, value, ranks[part.kind] * MOST_PARTS + order))
    return said


def _speaks(part: Imported, key: str, parts: Sequence[Imported]) -> bool:
    """The setup of a part decides a key. That ZeRO is of stage 2 where none is named says nothing beside a file."""
    if key not in engine_values(part.setup):
        return False
    beside_file = any(other.kind == "deepspeed" for other in parts)
    by_default = str(part.setup.get("distributed_type")).upper() == "DEEPSPEED" and "zero_stage" not in part.setup
    return not (key == "engine.strategy" and beside_file and by_default)


def _contradictions(key: str, claims: Sequence[Said], winner: Said) -> Iterator[Finding]:
    for claim in claims:
        if claim is winner or _agree(key, claim, winner):
            continue
        # To override a file is what the options of a command are for.
        severity: Severity = "note" if winner.part.kind == "launch_command" else "warning"
        place = winner.part.place_of(key)
        message = tr(
            "{place} says {key} {value}, and {other_place} says {other}; {value} is taken.",
            place=place,
            key=key,
            value=shown(winner.value),
            other_place=claim.part.place_of(key),
            other=shown(claim.value),
        )
        yield Finding("contradiction", severity, place, message)


def _agree(key: str, claim: Said, winner: Said) -> bool:
    if same(claim.value, winner.value):
        return True
    # torchrun and its like start processes; that the script then shards contradicts nothing.
    weak = claim.part.kind == "launch_command" and claim.rank <= BY_SETUP and claim.value in WEAK_STRATEGIES
    return key == "engine.strategy" and weak


def same(one: Any, other: Any) -> bool:
    """Equal, or both bf16: whether the weights are too, a launcher does not say."""
    return bool(one == other) or (one in SAME_HALF and other in SAME_HALF if isinstance(one, str) else False)


def _settled(
    parts: Sequence[Imported], values: Mapping[str, Any], winners: Mapping[str, Said]
) -> tuple[tuple[Mapped, ...], tuple[Dropped, ...]]:
    """The settings that gave a value that counts, and those that another one overruled."""
    mapped: list[Mapped] = []
    overruled: list[Dropped] = []
    for part in parts:
        for one in part.report.mapped:
            value, winner = values.get(one.key), winners.get(one.key)
            if same(one.set_to, value):
                mapped.append(one)
            elif winner is not None and winner.part is part and part.values.get(one.key) == one.set_to:
                # The setups laid over each other changed the figure: processes of each node.
                mapped.append(replace(one, set_to=value))
            else:
                place = winner.part.place_of(one.key) if winner is not None else part.file
                why = tr("{place} says {value}, which wins.", place=place, value=shown(value))
                overruled.append(Dropped(one.name, one.value, why, one.line, one.file))
    return tuple(mapped), tuple(overruled)


# What the settings of one import, or of several together, say against themselves and leave open.

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
