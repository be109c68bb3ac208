"""What one profile changes against another."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from trainwiz.core.language import tr
from trainwiz.core.profile.profile import Profile


@dataclass(frozen=True, slots=True)
class ProfileChange:
    """One key that differs. None for a value: the profile leaves the key to the plan."""

    key: str
    first: Any
    second: Any
    reason: str
    """Why the values differ, as the profiles say it: the second's reason for its value, else the first's for its own
    (with its name), else who gives the value."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def diff_profiles(first: Profile, second: Profile) -> list[ProfileChange]:
    """The differing keys, each with a reason: hardware first, then settings in the order of the files."""
    ours, theirs = asdict(first.hardware), asdict(second.hardware)
    changes = [
        ProfileChange(f"hardware.{key}", value, theirs[key], _machine_reason(first, second))
        for key, value in ours.items()
        if value != theirs[key]
    ]
    for key in dict.fromkeys([*first.values, *second.values]):
        one, other = first.values.get(key), second.values.get(key)
        if one != other:
            changes.append(ProfileChange(key, one, other, _reason(key, first, second)))
    return changes


def _machine_reason(first: Profile, second: Profile) -> str:
    return tr("what {first} and {second} are made for", first=first.name, second=second.name)


def _reason(key: str, first: Profile, second: Profile) -> str:
    if second.reasons.get(key):
        return tr(second.reasons[key])
    if first.reasons.get(key):
        return tr("{origin}: {reason}", origin=first.name, reason=tr(first.reasons[key]))
    if second.values.get(key) is None:
        return tr("{name} leaves it to the plan", name=second.name)
    setter = second.set_by.get(key, second.name)
    return tr("as {setter} has it", setter=setter)
