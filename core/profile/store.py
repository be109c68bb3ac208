"""Where profiles live, and loading them by name: the ones that ship with trainwiz and the user's own."""

from __future__ import annotations

import difflib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

import platformdirs
from trainwiz.core.config.keys import did_you_mean
from trainwiz.core.errors import TrainwizError, UsageError, usage_error
from trainwiz.core.findings import Finding, after
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.language import tr
from trainwiz.core.profile.profile import Profile, ProfileHardware
from trainwiz.core.profile.read import ProfileFile, read_profile_file
from trainwiz.core.profile.reasons import fitting_reasons

Origin = Literal["builtin", "user"]


def builtin_folder() -> Path:
    """The folder of profiles inside the package."""
    return Path(str(resources.files("trainwiz.profiles"))) / "hardware"


def user_folder() -> Path:
    """The folder of the user's own profiles; it need not exist."""
    return Path(platformdirs.user_config_dir("trainwiz")) / "profiles"


def profile_files() -> dict[str, tuple[Path, Origin]]:
    """Name -> (file, origin), built-in ones first. A user's file cannot take a built-in name."""
    files: dict[str, tuple[Path, Origin]] = {}
    for folder, origin in ((user_folder(), "user"), (builtin_folder(), "builtin")):
        if folder.is_dir():
            for path in [*folder.glob("*.yaml"), *folder.glob("*.yml")]:
                files[path.stem] = (path, "builtin" if origin == "builtin" else "user")
    return dict(sorted(files.items(), key=lambda item: (item[1][1] != "builtin", _natural(item[0]))))


def _natural(name: str) -> tuple[bool, str]:
    """cpu-demo first, for a first look at the list; then by name."""
    return name != "cpu-demo", name


def load_profile(name: str, machine: Machine | None = None) -> Profile:
    """The profile of this name, or in this file (`./mine.yaml`), with what it extends merged in.

    A name that stands for variants ("3080") gives the one that suits `machine` (this machine when None).
    Raises UsageError: unknown name with the nearest ones, or everything that is wrong in its file.
    """
    profile = _load(name, ())
    if not profile.variants:
        return profile
    return _load(pick_variant(profile, machine), (profile.name,))


def load_as_written(name: str) -> Profile:
    """Like `load_profile`, but a name that stands for variants stays itself."""
    return _load(name, ())


def _load(name: str, seen: tuple[str, ...]) -> Profile:
    file = find_profile_file(name)
    if file.name in seen:
        chain = " -> ".join((*seen, file.name))
        raise usage_error(
            "bad_value",
            str(file.path),
            tr("{path}: profiles extend each other in a circle ({chain}).", path=file.path, chain=chain),
        )
    parent = _parent(file, (*seen, file.name))
    hardware = {**(_hardware(parent) if parent else {}), **file.hardware}
    values = {**(parent.values if parent else {}), **file.values}
    # A changed value does not inherit the reason of the old one.
    inherited = {key: why for key, why in (parent.reasons if parent else {}).items() if key not in file.values}
    if parent is not None and file.origin == "user":
        # Nobody looked at them again, as for the profiles that ship with trainwiz.
        other_card = hardware.get("gpu") != parent.hardware.gpu
        inherited = fitting_reasons(inherited, parent.values, file.values, other_card=other_card)
    return Profile(
        name=file.name,
        description=file.description or (parent.description if parent else ""),
        extends=file.extends,
        hardware=ProfileHardware(**hardware),
        values=values,
        reasons={**inherited, **file.reasons},
        set_by={**(parent.set_by if parent else {}), **dict.fromkeys(file.values, file.name)},
        claims=file.claims,
        file=str(file.path),
        origin=file.origin,
        variants=file.variants,
    )


def _parent(file: ProfileFile, seen: tuple[str, ...]) -> Profile | None:
    if file.extends is None:
        return None
    try:
        return _load(file.extends, seen)
    except TrainwizError as error:
        line = file.lines.get("extends")
        place = f"{file.path}:{line}" if line else str(file.path)
        raise UsageError(
            Finding(
                found.code,
                found.severity,
                place,
                tr(
                    "{place}: `extends: {extends}`: {message}", place=place, extends=file.extends, message=found.message
                ),
            )
            for found in error.findings
        ) from None


def _hardware(profile: Profile) -> dict[str, object]:
    hardware = profile.hardware
    return {
        "gpu": hardware.gpu,
        "num_gpus": hardware.num_gpus,
        "ram_bytes": hardware.ram_bytes,
        "cpu_cores": hardware.cpu_cores,
    }


def find_profile_file(name: str) -> ProfileFile:
    """The file of this name or path, as it is written. Raises UsageError as `load_profile`."""
    if name.endswith((".yaml", ".yml")) or "/" in name:
        return read_profile_file(Path(name), "user")
    files = profile_files()
    if name not in files:
        near = difflib.get_close_matches(name.lower(), files, n=3, cutoff=0.5)
        message = tr("There is no profile {name}.", name=repr(name))
        message += did_you_mean(near) if near else after(tr("There are: {names}.", names=", ".join(files)))
        raise usage_error("unknown_profile", name, message)
    path, origin = files[name]
    return _read_builtin(path) if origin == "builtin" else read_profile_file(path, origin)


@cache
def _read_builtin(path: Path) -> ProfileFile:
    return read_profile_file(path, "builtin")


def pick_variant(profile: Profile, machine: Machine | None = None) -> str:
    """The variant whose GPU is the one of `machine`: the largest that fits its memory, else the smallest."""
    from trainwiz.core.catalog.gpus import load_gpus

    if machine is None:
        from trainwiz.core.hardware.probe import probe_machine

        machine = probe_machine()
    catalogue = load_gpus()
    sizes: list[tuple[int, str]] = []
    for name in profile.variants:
        gpu = _load(name, (profile.name,)).hardware.gpu
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
