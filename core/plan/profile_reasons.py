"""What a profile says of a value holds for the profile's own model, data, sizes and card. Beside others it would be wrong."""

from __future__ import annotations

from typing import Any

from trainwiz.core.config import Origin, RunConfig
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.language import tr
from trainwiz.core.profile.profile import Profile
from trainwiz.core.profile.reasons import CARD, CAUSES, changed_causes


def with_fitting_reasons(config: RunConfig, profile: Profile | None, machine: Machine) -> RunConfig:
    """`config`, complete, where the reason of a profile's value says so when its cause is not the profile's any more."""
    if profile is None:
        return config
    changed = _changed(config, profile, machine)
    origins = dict(config.origins)
    for key, causes in CAUSES.items():
        origin = origins.get(key)
        cause = next((cause for cause in causes if cause in changed and cause != key), None)
        if origin is not None and origin.origin == "profile" and origin.reason and cause is not None:
            origins[key] = Origin(origin="profile", reason=_reason(cause, changed[cause]))
    return config.model_copy(update={"origins": origins}) if origins != config.origins else config


def _changed(config: RunConfig, profile: Profile, machine: Machine) -> dict[str, Any]:
    """Cause -> the profile's value: what the profile says itself and the plan has otherwise."""
    mine = {key: config.value(key) for causes in CAUSES.values() for key in causes if key != CARD}
    changed = {cause: profile.values[cause] for cause in changed_causes(profile.values, mine)}
    card = profile.hardware.gpu
    if card is not None and all(gpu.catalogue_name != card for gpu in machine.gpus):
        changed[CARD] = card
    return changed


def _reason(cause: str, theirs: Any) -> str:
    if cause == CARD:
        return tr("from the profile, which is made for {gpu}", gpu=theirs)
    if cause == "model.name":
        return tr("from the profile, which trains {model}", model=theirs)
    if cause == "data.sources":
        return tr("from the profile, which has other data")
    if cause == "model.architecture_overrides":
        return tr("from the profile, whose model has another shape")
    return tr("from the profile, where {key} is {value}", key=cause, value=theirs)
