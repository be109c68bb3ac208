"""Several imports as one: who wins where two say different things, and a finding that names both places.

The order is that of accelerate and transformers: the command over the accelerate file that it names (launch.py,
_validate_launch_command), the Trainer's precision over the launcher's (TrainingArguments.__post_init__), and what
DeepSpeed does from its own file, because the Trainer refuses other values beside it (trainer_config_process).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainwiz.core.findings import Finding, Severity, sort_findings
from trainwiz.core.importing.report import Dropped, Imported, Kind, Mapped, Report
from trainwiz.core.importing.setup import engine_values
from trainwiz.core.importing.values import shown
from trainwiz.core.language import tr

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
