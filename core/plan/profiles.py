"""All profiles as rows of a list."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from trainwiz.core.catalog.models import resolve_model
from trainwiz.core.config.build import build_config
from trainwiz.core.config.run import RunConfig
from trainwiz.core.errors import TrainwizError
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.language import tr
from trainwiz.core.profile.profile import Profile
from trainwiz.core.profile.store import list_profiles, load_profile

if TYPE_CHECKING:
    from trainwiz.core.plan.result import Plan


NOT_ABOUT_FIT: frozenset[str] = frozenset(
    {"missing_data", "missing_model", "missing_tokenizer", "pickled_weights", "gated_model"}
)
"""Errors that a download or a word of the user cures; they say nothing about the machine."""


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One row of `trainwiz profiles list`; its JSON keys are stable."""

    name: str
    gpu: str | None
    num_gpus: int
    model: str
    task: str
    effective_samples: int | None
    effective_tokens: int | None
    fits_here: bool
    origin: str
    description: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def profile_rows(machine: Machine, words: Sequence[str] = (), without: Collection[str] = ()) -> list[ProfileRow]:
    """A row for each profile that loads and has all `words` in its name, card, model, task or description.

    Those whose names are in `without` are left out. Reads profiles and catalogues only: no data, no weights, no network.
    """
    wanted = [word.casefold() for word in words]
    named = (one for one in list_profiles() if one.name not in without)
    return [_row(one, machine) for one in named if all(word in _searched(one) for word in wanted)]


def made_for(profile: Profile, machine: Machine) -> bool:
    """Whether a card of the profile's kind is here."""
    gpu = profile.hardware.gpu
    return gpu is not None and any(one.catalogue_name == gpu for one in machine.visible_gpus)


def _searched(profile: Profile) -> str:
    hardware, values = profile.hardware, profile.values
    parts = (
        profile.name,
        f"{hardware.num_gpus} × {hardware.gpu}" if hardware.gpu else "",
        *(str(values.get(key, "")) for key in ("model.name", "task", "peft.method")),
        profile.description,
        tr(profile.description),
    )
    return " ".join(parts).casefold()


def _row(written: Profile, machine: Machine) -> ProfileRow:
    profile = load_profile(written.name, machine) if written.variants else written
    config = build_config(profile, {})
    plan = _plan(profile, config, machine)
    return ProfileRow(
        name=written.name,
        gpu=profile.hardware.gpu,
        num_gpus=profile.hardware.num_gpus,
        model=config.model.name,
        task=config.task,
        effective_samples=plan.batch.effective_samples if plan else None,
        effective_tokens=plan.batch.effective_tokens if plan else None,
        fits_here=plan is not None and _works(plan),
        origin=written.origin,
        description=written.description,
    )


def _plan(profile: Profile, config: RunConfig, machine: Machine) -> Plan | None:
    """The plan on this machine or, where the profile's GPU is missing, on its own; None when there is none."""
    from trainwiz.core.config.request import PlanRequest
    from trainwiz.core.plan.devices import choose_target
    from trainwiz.core.plan.make import make_plan

    try:
        target = choose_target(PlanRequest(profile=profile.name), profile, machine)
        model, findings = resolve_model(config.model)
        found = (*target.findings, *findings)
        return make_plan(target.machine, config, model=model, data=None, profile=profile, findings=found)
    except TrainwizError:
        return None


def _works(plan: Plan) -> bool:
    return plan.memory.verdict != "does_not_fit" and all(error.code in NOT_ABOUT_FIT for error in plan.errors)
