"""Profiles: load, validate, list, compare, switch, save."""

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
