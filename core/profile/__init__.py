"""Profiles: load, validate, list, compare, switch, save. What is named here is loaded with its first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwiz.core.profile.profile import Profile, ProfileHardware
    from trainwiz.core.profile.save import SavedProfile, save_profile
    from trainwiz.core.profile.store import (
        ProfileChange,
        current_profile,
        diff_profiles,
        list_profiles,
        load_as_written,
        load_profile,
        pick_variant,
        use_profile,
        user_folder,
    )
    from trainwiz.core.profile.validate import validate_profiles

__all__ = [
    "Profile",
    "ProfileChange",
    "ProfileHardware",
    "SavedProfile",
    "current_profile",
    "diff_profiles",
    "list_profiles",
    "load_as_written",
    "load_profile",
    "pick_variant",
    "save_profile",
    "use_profile",
    "user_folder",
    "validate_profiles",
]
_ELSEWHERE = {
    "Profile": "profile", "ProfileHardware": "profile", "SavedProfile": "save", "save_profile": "save",
    "validate_profiles": "validate",
}  # fmt: skip
"""Name -> its module, where that is not `store`: what reads data files is slow to load, and only saving needs it."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module(f"trainwiz.core.profile.{_ELSEWHERE.get(name, 'store')}"), name)
