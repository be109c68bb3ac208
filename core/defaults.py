"""What holds when nothing is asked for. Imports nothing, so that the first frame can read it."""

from __future__ import annotations

from pathlib import Path

DEFAULT_PROFILE = "cpu-demo"
"""Trains on any machine, in a minute, without a network."""
GUIDE_SUFFIX = "-guide"
"""NAME-guide is a guide to the letter, beside the profile NAME that fits its card."""
NO_PROFILE = "none"
"""As `--profile`: none, also where one is in use."""
REPLAY_SPEED = 60.0
"""Seconds of a run in one second of its replay."""
SETTINGS_FILE = ".trainwiz.yaml"
"""Holds the profile that later commands in its folder use."""


def default_profile(folder: Path) -> str:
    """The profile in use in `folder` (`trainwiz profiles use`); without one, the demo."""
    return profile_in_use(folder) or DEFAULT_PROFILE


def profile_in_use(folder: Path) -> str | None:
    """The name in the folder's settings file, or None. Raises UsageError when the file is broken."""
    if not (folder / SETTINGS_FILE).is_file():
        return None
    # Reads YAML, which most starts do not need.
    from trainwiz.core.profile.store import current_profile

    return current_profile(folder)


def profile_words(name: str | None) -> list[str]:
    """The option of a printed command: it is pasted in this folder, whose own profile must not slip in."""
    name = name or (NO_PROFILE if profile_in_use(Path.cwd()) is not None else None)
    return ["--profile", name] if name is not None else []
