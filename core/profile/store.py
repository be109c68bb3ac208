"""Where profiles live, loading them by name, the one that a folder uses, what one changes against another."""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import platformdirs
import yaml
from trainwiz.core.defaults import SETTINGS_FILE
from trainwiz.core.errors import Finding, TrainwizError, UsageError, after, os_reason, usage_error
from trainwiz.core.files import read_small
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.language import tr
from trainwiz.core.profile.profile import Profile, ProfileHardware, fitting_reasons
from trainwiz.core.run.folder import write_atomic

if TYPE_CHECKING:
    from trainwiz.core.profile.read import ProfileFile

# Where profiles live, and loading them by name: the ones that ship with trainwiz and the user's own.

Origin = Literal["builtin", "user"]


def builtin_folder() -> Path:
    """The folder of profiles inside the package."""
    return Path(str(resources.files("trainwiz.profiles"))) / "hardware"


def user_folder() -> Path:
    """The folder of the user's own profiles; it need not exist."""
    return Path(platformdirs.user_config_dir("trainwiz")) / "profiles"


def profile_files() -> dict[str, tuple[Path, Origin]]:
    """Name -> (file, origin), built-in ones first. A user's file cannot take a built-in name."""
    folders: tuple[tuple[Path, Origin], ...] = ((user_folder(), "user"), (builtin_folder(), "builtin"))
    files = {path.stem: (path, origin) for folder, origin in folders for path in sorted(folder.glob("*.y*ml"))}
    # cpu-demo first, for a first look at the list.
    return dict(sorted(files.items(), key=lambda item: (item[1][1] != "builtin", item[0] != "cpu-demo", item[0])))


def load_profile(name: str, machine: Machine | None = None) -> Profile:
    """The profile of this name, or in this file (`./mine.yaml`), with what it extends merged in.

    A name that stands for variants ("3080") gives the one that suits `machine` (this machine when None).
    Raises UsageError: unknown name with the nearest ones, or everything that is wrong in its file.
    """
    profile = load_as_written(name)
    return load_as_written(pick_variant(profile, machine), (profile.name,)) if profile.variants else profile


def load_as_written(name: str, seen: tuple[str, ...] = ()) -> Profile:
    """Like `load_profile`, but a name that stands for variants stays itself. `seen`: those that extend it."""
    file = find_profile_file(name)
    keys, own_name = file.keys, file.path.stem
    if own_name in seen:
        chain = " -> ".join((*seen, own_name))
        message = tr("{path}: profiles extend each other in a cycle ({chain}).", path=file.path, chain=chain)
        raise usage_error("bad_value", str(file.path), message)
    parent = _parent(file, (*seen, own_name))
    hardware = {**asdict(parent.hardware), **keys.hardware.model_dump(exclude_unset=True)}
    # A changed value does not inherit the reason of the old one.
    inherited = {key: why for key, why in parent.reasons.items() if key not in keys.values}
    if file.origin == "user":
        # Nobody looked at them again, as for the profiles that ship with trainwiz.
        other_card = hardware.get("gpu") != parent.hardware.gpu
        inherited = fitting_reasons(inherited, parent.values, keys.values, other_card=other_card)
    return Profile(
        name=own_name,
        description=keys.description or parent.description,
        extends=keys.extends,
        hardware=ProfileHardware(**hardware),
        values={**parent.values, **keys.values},
        reasons={**inherited, **keys.reasons},
        set_by={**parent.set_by, **dict.fromkeys(keys.values, own_name)},
        claims=keys.claims,
        file=str(file.path),
        origin=file.origin,
        variants=keys.variants,
    )


def _parent(file: ProfileFile, seen: tuple[str, ...]) -> Profile:
    """What it extends; where that is nothing, an empty profile."""
    extends = file.keys.extends
    if extends is None:
        return Profile("")
    try:
        return load_as_written(extends, seen)
    except TrainwizError as error:
        place = file.where("extends")

        def words(found: Finding) -> str:
            return tr("{place}: `extends: {extends}`: {message}", place=place, extends=extends, message=found.message)

        raise UsageError(Finding(found.code, found.severity, place, words(found)) for found in error.findings) from None


def find_profile_file(name: str) -> ProfileFile:
    """The file of this name or path, as it is written. Raises UsageError as `load_profile`."""
    # pydantic is slow to load, and the names of profiles need none of it.
    from trainwiz.core.config.keys import did_you_mean
    from trainwiz.core.profile.read import read_profile_file

    if name.endswith((".yaml", ".yml")) or "/" in name:
        return read_profile_file(Path(name), "user")
    files = profile_files()
    if name not in files:
        near = difflib.get_close_matches(name.lower(), files, n=3, cutoff=0.5)
        message = tr("Unknown profile {name}.", name=repr(name))
        message += did_you_mean(near) if near else after(tr("All {n}: trainwiz profiles list.", n=len(files)))
        raise usage_error("unknown_profile", name, message)
    path, origin = files[name]
    return _read_builtin(path) if origin == "builtin" else read_profile_file(path, origin)


@cache
def _read_builtin(path: Path) -> ProfileFile:
    from trainwiz.core.profile.read import read_profile_file

    return read_profile_file(path, "builtin")


def pick_variant(profile: Profile, machine: Machine | None = None) -> str:
    """The variant whose GPU is the one of `machine`: the largest that fits its memory, else the smallest."""
    from trainwiz.core.catalog.gpus import load_gpus

    if machine is None:
        from trainwiz.core.hardware.read import probe_machine

        machine = probe_machine()
    catalogue = load_gpus()
    sizes: list[tuple[int, str]] = []
    for name in profile.variants:
        gpu = load_as_written(name, (profile.name,)).hardware.gpu
        sizes.append((catalogue[gpu].memory_bytes if gpu is not None and gpu in catalogue else 0, name))
    # What drivers report is a few per cent below the nominal size.
    memory = max((gpu.memory_total_bytes or 0 for gpu in machine.visible_gpus), default=0) * 1.1
    fitting = [entry for entry in sizes if entry[0] <= memory]
    return max(fitting)[1] if fitting else min(sizes)[1]


def list_profiles() -> list[Profile]:
    """All profiles that load, built-in ones first; `validate_profiles` says what is wrong with the others."""
    profiles: list[Profile] = []
    for name in profile_files():
        try:
            profiles.append(load_as_written(name))
        except TrainwizError:
            continue
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def diff_profiles(first: Profile, second: Profile) -> list[ProfileChange]:
    """The differing keys, each with a reason: hardware first, then settings in the order of the files."""
    ours, theirs = asdict(first.hardware), asdict(second.hardware)
    why = tr("the hardware that {first} and {second} are for", first=first.name, second=second.name)
    changes = [
        ProfileChange(f"hardware.{key}", value, theirs[key], why) for key, value in ours.items() if value != theirs[key]
    ]
    for key in dict.fromkeys([*first.values, *second.values]):
        one, other = first.values.get(key), second.values.get(key)
        if one != other:
            changes.append(ProfileChange(key, one, other, _reason(key, first, second)))
    return changes


def _reason(key: str, first: Profile, second: Profile) -> str:
    if second.reasons.get(key):
        return tr(second.reasons[key])
    if first.reasons.get(key):
        return tr("{origin}: {reason}", origin=first.name, reason=tr(first.reasons[key]))
    if second.values.get(key) is None:
        return tr("{name} leaves it to the plan", name=second.name)
    setter = second.set_by.get(key, second.name)
    return tr("as set in {setter}", setter=setter)


# The profile that a folder uses by default: `profile:` in its .trainwiz.yaml.


def current_profile(folder: Path) -> str | None:
    """The name in the folder's .trainwiz.yaml, or None. Raises UsageError when the file is broken."""
    path = folder / SETTINGS_FILE
    if not path.is_file():
        return None
    from trainwiz.core.config.yaml_text import read_yaml

    value = read_yaml(path).values.get("profile")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is not None and not isinstance(value, str):
        raise usage_error("bad_value", str(path), tr("{path}: `profile` must be the name of a profile.", path=path))
    return value


def cannot_write(path: Path, error: OSError) -> UsageError:
    return usage_error(
        "unwritable", str(path), tr("{path} cannot be written: {reason}.", path=path, reason=os_reason(error))
    )


def use_profile(name: str, folder: Path) -> Path:
    """Make `name` the default of later commands in `folder`; whatever else is in the file stays as it is.

    Returns the file. Raises UsageError for an unknown profile or a file that cannot be read or written.
    """
    profile = load_as_written(name)
    chosen = str(Path(name).resolve()) if profile.origin == "user" and name.endswith((".yaml", ".yml")) else name
    path = folder / SETTINGS_FILE
    old = read_small(path).decode() if current_profile(folder) is not None or path.is_file() else ""
    try:
        write_atomic(path, _with_profile(old, chosen, path))
    except OSError as error:
        raise cannot_write(path, error) from None
    return path


def _with_profile(text: str, name: str, path: Path) -> str:
    """`text` with its top-level `profile:` line replaced or added; comments and other keys untouched."""
    line = yaml.safe_dump({"profile": name}, default_flow_style=False, allow_unicode=True).rstrip("\n")
    if not text.strip():
        return f"{line}\n"
    from trainwiz.core.config.yaml_text import parse_yaml

    lines = text.splitlines()
    at = parse_yaml(text, path).lines.get("profile")
    if at is None:
        return "\n".join([*lines, line]) + "\n"
    _, comment, rest = lines[at - 1].partition(" #")
    lines[at - 1] = line + comment + rest
    return "\n".join(lines) + "\n"
