"""Whether a name can be that of a profile of the user's own."""

from __future__ import annotations

from pathlib import Path

from trainwiz.core.config.run import RunConfig
from trainwiz.core.defaults import NO_PROFILE
from trainwiz.core.findings import Finding
from trainwiz.core.language import tr
from trainwiz.core.profile.store import profile_files, user_folder


def name_findings(name: str, replace: bool) -> list[Finding]:
    """Why `name` cannot be that of a new profile; with `replace` one of the user's own may be there."""
    try:
        RunConfig(name=name)
    except ValueError:
        return [
            bad_choice(
                "name", tr("{name} cannot be a profile's name: use letters, digits, '-', '_' and '.'.", name=repr(name))
            )
        ]
    if name.endswith((".yaml", ".yml")):
        return [bad_choice("name", tr("Give the profile a name, not a file: {stem}.", stem=Path(name).stem))]
    if name.lower() == NO_PROFILE:
        return [bad_choice("name", tr("{name} means no profile (--profile none); choose another.", name=repr(name)))]
    taken = {known.lower(): place for known, place in profile_files().items()}.get(name.lower())
    if taken is None:
        return []
    file, origin = taken
    if replace and origin != "builtin" and file == user_folder() / f"{name}.yaml":
        return []
    if origin == "builtin":
        message = tr(
            "{name} is the name of a built-in profile; choose another, for example my-{base}.",
            name=repr(name),
            base=name,
        )
    else:
        message = tr(
            "There is a profile {name} of yours already ({file}); choose another name, or remove that file.",
            name=repr(name),
            file=file,
        )
    return [Finding("name_taken", "error", str(file), message)]


def bad_choice(where: str, message: str) -> Finding:
    """A choice that cannot stand in a profile."""
    return Finding("bad_value", "error", where, message)
