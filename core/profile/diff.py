"""What one profile changes against another."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from trainwiz.core.profile.profile import Profile


@dataclass(frozen=True, slots=True)
class ProfileChange:
    """One key that differs. None for a value: the profile leaves the key to the plan."""

    key: str
    first: Any
    second: Any
    reason: str
    """Why the second one has its value, where it says so; else why the first one has."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def diff_profiles(first: Profile, second: Profile) -> list[ProfileChange]:
    """The differing keys: hardware first, then settings in the order of the files."""
    changes: list[ProfileChange] = []
    ours, theirs = asdict(first.hardware), asdict(second.hardware)
    for key, value in ours.items():
        if value != theirs[key]:
            changes.append(ProfileChange(f"hardware.{key}", value, theirs[key], ""))
    for key in dict.fromkeys([*first.values, *second.values]):
        one, other = first.values.get(key), second.values.get(key)
        if one != other:
            reason = second.reasons.get(key) or first.reasons.get(key, "")
            changes.append(ProfileChange(key, one, other, reason))
    return changes
