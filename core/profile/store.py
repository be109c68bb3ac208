"""Where profiles live, loading them by name, the one that a folder uses, what one changes against another."""

from __future__ import annotations

import difflib
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
import yaml
from trainwiz.core.defaults import DEFAULT_PROFILE, GUIDE_SUFFIX, SETTINGS_FILE
from trainwiz.core.errors import TrainwizError, UsageError, after, os_reason, usage_error
from trainwiz.core.files import read_small
from trainwiz.core.language import mark, tr
from trainwiz.core.profile.profile import Profile, ProfileHardware, fitting_reasons
from trainwiz.core.run.folder import write_atomic

if TYPE_CHECKING:
    from trainwiz.core.config.yaml_text import YamlDocument
    from trainwiz.core.hardware.machine import Machine
    from trainwiz.core.profile.read import ProfileKeys

# Where profiles live, and loading them by name: the ones that ship with trainwiz and the user's own.


@cache
def builtin_folder() -> Path:
    """The folder of profiles inside the package."""
    return Path(str(resources.files("trainwiz.profiles"))) / "hardware"


def user_folder() -> Path:
    """The folder of the user's own profiles; it need not exist."""
    return Path(platformdirs.user_config_dir("trainwiz")) / "profiles"


def profile_files() -> dict[str, Path]:
    """Name -> file, built-in ones first. A user's file cannot take a built-in name."""
    ours, own = _files(builtin_folder()), _files(user_folder())
    # cpu-demo first, for a first look at the list.
    return {DEFAULT_PROFILE: ours[DEFAULT_PROFILE], **ours, **own, **ours}


def _files(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted(folder.glob("*.y*ml"))}


BY_MEMORY = {"3080": {"3080-10g": 0, "3080-12g": 11 << 30}}
"""Name -> profiles of one card in several sizes, the smallest first, with the bytes from which each is chosen."""


def load_profile(name: str, extending: tuple[str, ...] = (), machine: Machine | None = None) -> Profile:
    """The profile of this name, or in this file (`./mine.yaml`), with what it extends merged in. `extending`: the
    profiles that extend it. "3080" is the one for the memory of the card in `machine` (None: in this one).

    Raises UsageError: unknown name with the nearest ones, or everything that is wrong in its file.
    """
    document, keys = find_profile_file(_of_the_card(name, machine) if name in BY_MEMORY else name)
    path, place = document.path, document.where("extends")
    if path.stem in extending:
        chain = " -> ".join((*extending, path.stem))
        message = tr("{path}: profiles extend each other in a cycle ({chain}).", path=path, chain=chain)
        raise usage_error("bad_value", str(path), message)
    try:
        parent = load_profile(keys.extends, (*extending, path.stem)) if keys.extends is not None else Profile("")
    except TrainwizError as error:
        words = mark("{place}: `extends: {extends}`: {message}")
        raise UsageError(
            replace(one, where=place, message=tr(words, place=place, extends=keys.extends, message=one.message))
            for one in error.findings
        ) from None
    hardware = {**asdict(parent.hardware), **keys.hardware.model_dump(exclude_unset=True)}
    # A changed value does not inherit the reason of the old one.
    inherited = {key: why for key, why in parent.reasons.items() if key not in keys.values}
    ours = path.parent == builtin_folder()
    if not ours:
        # Nobody looked at them again, as for the profiles that ship with trainwiz.
        other_card = hardware["gpu"] != parent.hardware.gpu
        inherited = fitting_reasons(inherited, parent.values, keys.values, other_card=other_card)
    return Profile(
        name=path.stem,
        description=keys.description or parent.description,
        extends=keys.extends,
        hardware=ProfileHardware(**hardware),
        values={**parent.values, **keys.values},
        reasons={**inherited, **keys.reasons},
        set_by={**parent.set_by, **dict.fromkeys(keys.values, path.stem)},
        # Those of guides, which ship with trainwiz, are checked by its tests.
        claims=keys.claims if ours else {},
        file=str(path),
        origin="builtin" if ours else "user",
    )


def _of_the_card(name: str, machine: Machine | None) -> str:
    if machine is None:
        from trainwiz.core.hardware.read import probe_machine

        machine = probe_machine()
    memory = max((gpu.memory_total_bytes or 0 for gpu in machine.visible_gpus), default=0)
    return [one for one, least in BY_MEMORY[name].items() if memory >= least][-1]


def find_profile_file(name: str) -> tuple[YamlDocument, ProfileKeys]:
    """The file of this name or path, as it is written. Raises UsageError as `load_profile`."""
    # pydantic is slow to load, and the names of profiles need none of it.
    from trainwiz.core.config.keys import did_you_mean
    from trainwiz.core.profile.read import read_profile_file

    files = profile_files()
    if name.endswith((".yaml", ".yml")) or "/" in name:
        return read_profile_file(Path(name))
    if name not in files:
        begin_so = [known for known in files if known.startswith(f"{name}-") and not known.endswith(GUIDE_SUFFIX)]
        near = begin_so[:3] or difflib.get_close_matches(name.lower(), files, n=3, cutoff=0.5)
        message = tr("Unknown profile {name}.", name=repr(name))
        message += did_you_mean(near) if near else after(tr("All {n}: trainwiz profiles list.", n=len(files)))
        raise usage_error("unknown_profile", name, message)
    return _read_builtin(files[name]) if files[name].parent == builtin_folder() else read_profile_file(files[name])


@cache
def _read_builtin(path: Path) -> tuple[YamlDocument, ProfileKeys]:
    from trainwiz.core.profile.read import read_profile_file

    return read_profile_file(path)


def list_profiles() -> list[Profile]:
    """All profiles that load, built-in ones first; `validate_profiles` says what is wrong with the others."""
    profiles: list[Profile] = []
    for name in profile_files():
        with suppress(TrainwizError):
            profiles.append(load_profile(name))
    return profiles


# What one profile changes against another.


@dataclass(frozen=True, slots=True)
class ProfileChange:
    """One key that differs. None for a value: the profile leaves the key to the plan."""

    key: str
    first: Any
    second: Any
    reason: str
    """Why the values differ, as the profiles say it: the second's reason for its value, else the first's for its own
    (with its name), else who gives the value."""


def diff_profiles(first: Profile, second: Profile) -> list[ProfileChange]:
    """The differing keys, each with a reason: hardware first, then settings in the order of the files."""
    ours, theirs = (
        {**{f"hardware.{key}": value for key, value in asdict(profile.hardware).items()}, **profile.values}
        for profile in (first, second)
    )
    return [
        ProfileChange(key, ours.get(key), theirs.get(key), _reason(key, first, second))
        for key in {**ours, **theirs}
        if ours.get(key) != theirs.get(key)
    ]


def _reason(key: str, first: Profile, second: Profile) -> str:
    if key.startswith("hardware."):
        return tr("the hardware that {first} and {second} are for", first=first.name, second=second.name)
    if second.reasons.get(key):
        return tr(second.reasons[key])
    if first.reasons.get(key):
        return tr("{origin}: {reason}", origin=first.name, reason=tr(first.reasons[key]))
    if second.values.get(key) is None:
        return tr("{name} leaves it to the plan", name=second.name)
    return tr("as set in {setter}", setter=second.set_by[key])


# The profile that a folder uses by default: `profile:` in its .trainwiz.yaml.


def current_profile(folder: Path) -> str | None:
    """The name in the folder's .trainwiz.yaml, or None. Raises UsageError when the file is broken."""
    path = folder / SETTINGS_FILE
    if not path.is_file():
        return None
    from trainwiz.core.config.yaml_text import read_yaml

    value = read_yaml(path).values.get("profile")
    return None if value is None else str(value)


def cannot_write(path: Path, error: OSError) -> UsageError:
    message = tr("{path} cannot be written: {reason}.", path=path, reason=os_reason(error))
    return usage_error("unwritable", str(path), message)


def use_profile(name: str, folder: Path) -> Path:
    """Make `name` the default of later commands in `folder`; the other lines of the file stay as they are.

    Returns the file. Raises UsageError for an unknown profile or a file that cannot be read or written.
    """
    load_profile(name)
    chosen = str(Path(name).resolve()) if name.endswith((".yaml", ".yml")) else name
    path = folder / SETTINGS_FILE
    # A file that is broken is said to be, and not written over.
    current_profile(folder)
    old = read_small(path).decode() if path.is_file() else ""
    others = [line for line in old.splitlines() if not re.match(r"['\"]?profile['\"]?\s*:", line)]
    try:
        write_atomic(path, "\n".join([*others, yaml.safe_dump({"profile": chosen}, allow_unicode=True)]))
    except OSError as error:
        raise cannot_write(path, error) from None
    return path
