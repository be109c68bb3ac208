"""Several imports as one: who wins where two say different things, and a finding that names both places.

The order is that of accelerate and transformers: the command over the accelerate file that it names (launch.py,
_validate_launch_command), the Trainer's precision over the launcher's (TrainingArguments.__post_init__), and what
DeepSpeed does from its own file, because the Trainer refuses other values beside it (trainer_config_process).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainwiz.core.config.build import build_config, check_values
from trainwiz.core.config.run import RunConfig
from trainwiz.core.errors import Finding, Severity, UsageError, sort_findings
from trainwiz.core.importing.engines import engine_values
from trainwiz.core.importing.report import Dropped, Imported, Kind, Unknown, finding
from trainwiz.core.importing.sentences import SENTENCES
from trainwiz.core.importing.values import gpu_list, shown
from trainwiz.core.language import mark, tr

ORDER: Sequence[Kind] = ("accelerate", "deepspeed", "training_arguments", "launch_command")
"""The later one wins."""
ENGINE_ORDER: Sequence[Kind] = ("accelerate", "training_arguments", "launch_command", "deepspeed")
"""The same for the keys of ENGINE_KEYS: ZeRO stage and offload are what the DeepSpeed file says."""
ENGINE_KEYS = ("engine.strategy", "engine.offload")
SAME_HALF = frozenset({"bf16", "bf16-true"})
WEAK_STRATEGIES = ("ddp", "single")
"""What a launcher alone comes to; that the script then uses DeepSpeed or FSDP contradicts nothing."""
BATCH = ("batch.target_samples", "batch.micro_batch_size", "batch.gradient_accumulation_steps")

Claim = tuple[Imported, Any, bool]
"""Who says a value, the value, and whether only a setup decides it."""


def merge(parts: Sequence[Imported], findings: Iterable[Finding] = ()) -> Imported:
    """One import of all `parts`, which are in the order in which they were given; there must be one."""
    merged = Imported(parts[0].kind, parts[0].file, parts=list(parts))
    for part in sorted(parts, key=lambda part: ORDER.index(part.kind)):
        merged.setup |= part.setup
    for part in parts:
        merged.values |= part.defaults
        merged.renamed += part.renamed
        merged.unknown += part.unknown
        merged.dropped += part.dropped
        merged.findings += part.findings
    merged.findings += findings
    winners: dict[str, Imported] = {}
    for key, claims in _claims(parts, engine_values(merged.setup)).items():
        winners[key], merged.values[key], _ = claims[-1]
        merged.findings += [
            _contradiction(key, claim, claims[-1]) for claim in claims if _differs(key, claim, claims[-1])
        ]
    _keep_what_counts(merged, winners)
    return merged


def _claims(parts: Sequence[Imported], laid_over: Mapping[str, Any]) -> dict[str, list[Claim]]:
    """Key -> everything that is said of it; the last counts. `laid_over` is what all setups together decide."""
    claims: dict[str, list[Claim]] = {}
    # That ZeRO is of stage 2 where none is named says nothing beside a file.
    beside_file = any(part.kind == "deepspeed" for part in parts)
    setups = {id(part): engine_values(part.setup) for part in parts}
    for part in sorted(parts, key=lambda part: ORDER.index(part.kind)):
        vague = beside_file and part.setup.get("distributed_type") == "DEEPSPEED" and "zero_stage" not in part.setup
        for key, value in setups[id(part)].items():
            if key in laid_over and not (vague and key == "engine.strategy"):
                claims.setdefault(key, []).append((part, value, True))
    for key, made in claims.items():
        # The last setup stands for all of them.
        made[-1] = (made[-1][0], laid_over[key], True)
    for order in (ORDER, ENGINE_ORDER):
        for part in sorted(parts, key=lambda part: order.index(part.kind)):
            for key, value in part.values.items():
                if (key in ENGINE_KEYS) == (order is ENGINE_ORDER) and setups[id(part)].get(key, ...) != value:
                    claims.setdefault(key, []).append((part, value, False))
    return claims


def _contradiction(key: str, claim: Claim, winner: Claim) -> Finding:
    # To override a file is what the options of a command are for.
    severity: Severity = "note" if winner[0].kind == "launch_command" else "warning"
    place, other_place = winner[0].place_of(key), claim[0].place_of(key)
    words = {"key": key, "value": shown(winner[1]), "other": shown(claim[1])}
    return finding("contradiction.two_places", place, severity, place=place, other_place=other_place, **words)


def _differs(key: str, claim: Claim, winner: Claim) -> bool:
    part, value, of_setup = claim
    # torchrun and its like start processes; that the script then shards contradicts nothing.
    weak = key == "engine.strategy" and part.kind == "launch_command" and of_setup and value in WEAK_STRATEGIES
    return not weak and not _same(value, winner[1])


def _same(one: Any, other: Any) -> bool:
    """Equal, or both bf16: whether the weights are too, a launcher does not say."""
    return bool(one == other) or (isinstance(one, str) and {one, other} <= SAME_HALF)


def _keep_what_counts(merged: Imported, winners: Mapping[str, Imported]) -> None:
    """The settings that gave a value that counts; those that another one overruled are dropped."""
    for part in merged.parts:
        for entry in part.mapped:
            value, winner = merged.values.get(entry.key), winners.get(entry.key, part)
            if _same(entry.set_to, value):
                merged.mapped.append(entry)
            elif winner is part and part.values.get(entry.key) == entry.set_to:
                # The setups laid over each other changed the figure: processes of each node.
                merged.mapped.append(replace(entry, set_to=value))
            else:
                place = winner.place_of(entry.key)
                why = tr("{place} sets {value}, which takes precedence.", place=place, value=shown(value))
                merged.dropped.append(Dropped(entry.name, entry.value, entry.line, entry.file, why))


# All texts of one import, checked together.


def checked(merged: Imported) -> Imported:
    """The same without values that no run can have, and with a finding for each thing that is wrong or missing."""
    _leave_out_refused(merged)
    _whole_batch(merged)
    _say_data_parallel(merged)
    if not merged.values:
        merged.say(None, "nothing_mapped")
    if "model.name" not in merged.values:
        merged.say(None, "missing_model", default=shown(RunConfig().value("model.name")))
    if not any(key.startswith("data.sources") for key in merged.values):
        merged.say(None, "missing_data")
    merged.findings = list(sort_findings(merged.findings))
    return merged


def _leave_out_refused(merged: Imported) -> None:
    """Values that no run can have are kept in the report as unknown."""
    good, findings = check_values(RunConfig(), merged.values, merged.place_of)
    good = good if findings else dict(merged.values)
    try:
        build_config(None, good)
    except UsageError as error:
        for one in error.findings:
            findings.append(replace(one, where=merged.place_of(one.where)))
            good.pop(one.where, None)
    for entry in [entry for entry in merged.mapped if entry.key in merged.values and entry.key not in good]:
        merged.mapped.remove(entry)
        merged.unknown.append(Unknown(entry.name, entry.value, entry.line, entry.file))
    for one in findings:
        message = finding("bad_value.is_left_out", one.where, message=one.message).message
        merged.findings.append(replace(one, severity="warning", message=message))
    merged.values = good


def _whole_batch(merged: Imported) -> None:
    """Sequences of a step = micro-batch x accumulation x processes; what two of them say decides the third."""
    values = merged.values
    total, micro, accumulation = (values.get(key) for key in BATCH)
    processes = values.get("engine.processes")
    world = None if processes is None else int(processes) * int(values.get("engine.nodes") or 1)
    if micro is None or {"batch.target_tokens", "batch.target_real_tokens"} & set(values):
        return
    window, place = micro * (accumulation or 1), merged.place_of(BATCH[0])
    words = {"place": place, "total": total, "micro": micro, "accumulation": accumulation or 1, "window": window}
    if total is None and accumulation is not None:
        # A plan for another number of GPUs keeps what a step sees, so the profile says how much that is.
        if world is not None:
            values[BATCH[0]] = words["total"] = window * world
        what = "follows.any_number" if world is None else "follows.kept"
        merged.findings.append(finding(what, merged.place_of(BATCH[1]), world=world, **words))
    elif total is None or (world is None and accumulation is None):
        return
    elif world is None:
        # The only number of processes with which the figures are true; DeepSpeed refuses every other one.
        if total % window == 0 and "engine.device" not in values:
            values["engine.processes"] = total // window
            merged.findings.append(finding("follows.so_many", place, world=total // window, **words))
    elif total % (micro * world) if accumulation is None else total != window * world:
        product = window * world
        merged.findings.append(finding("contradiction.contradicts", place, world=world, product=product, **words))
        why = mark("It contradicts micro-batch, gradient accumulation and the number of processes.")
        merged.take_back(BATCH[0], why)
        values[BATCH[0]] = product


def _say_data_parallel(merged: Imported) -> None:
    """A training that plain python starts on several GPUs, or may.

    Source: Trainer._wrap_model and TrainingArguments.train_batch_size (transformers 5.23): with more than one visible GPU
    and no process group, the model is wrapped in torch.nn.DataParallel, and the batch of the one process is
    per_device_train_batch_size x GPUs.
    """
    setup, values = merged.setup, merged.values
    gpus = len(gpu_list(setup.get("gpu_ids")))
    if setup.get("launcher") != "python" or values.get("engine.device") in ("cpu", "mps") or gpus == 1:
        return
    window = (values.get(BATCH[1]) or 0) * (values.get(BATCH[2]) or 1)
    what = f"data_parallel.{'one_wraps' if gpus else 'wraps'}{'_batch' if window else ''}"
    said = tr(SENTENCES[what], gpus=gpus, window=window, total=window * gpus, four=window * 4)
    merged.say(None, "data_parallel.each_its_own", said=said)
