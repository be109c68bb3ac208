"""find_run: the one run that a user means."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from trainwiz.core.errors import UsageError, usage_error
from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.listing import run_folders
from trainwiz.core.run.names import DEFAULT_ROOT
from trainwiz.core.run.registry import recorded_runs

MOST_SHOWN = 5
LONGEST_SHOWN = 120


def find_run(text: str, root: Path = DEFAULT_ROOT, *, whole: bool = False) -> RunFolder:
    """The run that `text` means: a name below `root`, a path, a unique beginning or part of a name, or the
    name of a run that was started elsewhere.

    With `whole` only a whole name or a path will do: for what cannot be taken back.

    Raises UsageError when there is none (with the nearest names) or more than one.
    """
    if "\0" in text:
        raise usage_error("no_such_run", "RUN", tr("The name of a run holds no zero byte."))
    # "." and ".." are folders and no names.
    is_name = bool(text) and Path(text).name == text and text != ".."
    if is_name and RunFolder(root / text).is_run():
        return RunFolder(root / text)
    if text and RunFolder(Path(text)).is_run():
        path = Path(text)
        return RunFolder(path if path.name not in ("", "..") else path.resolve())
    here = sorted(run_folders(root), key=lambda folder: folder.path.name, reverse=True)
    elsewhere = recorded_runs() if is_name else []
    named = [folder for folder in elsewhere if folder.path.name == text]
    for found in (named, _fitting(text, here), _fitting(text, elsewhere)) if is_name else ():
        if len(found) == 1 and (found is named or not whole):
            return found[0]
        if len(found) > 1:
            raise _ambiguous(text, found)
    raise _none_such(text, root, is_name, [*here, *elsewhere])


def _quoted(text: str) -> str:
    """As Python writes it, so that what cannot be seen is seen; of a very long one its beginning."""
    return repr(text) if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]!r}..."


def _fitting(text: str, folders: list[RunFolder]) -> list[RunFolder]:
    """Those whose name begins with the text; where none does, those that hold it."""
    begin = [folder for folder in folders if folder.path.name.startswith(text)]
    return begin or [folder for folder in folders if text in folder.path.name]


def _ambiguous(text: str, found: list[RunFolder]) -> UsageError:
    names = [folder.path.name for folder in found]
    if len(set(names)) < len(names):
        names = [str(folder.path) for folder in found]
    shown = ", ".join(names[:MOST_SHOWN]) + (", ..." if len(names) > MOST_SHOWN else "")
    message = tr("{text} fits {n} runs: {names}. Give more of the name.", text=_quoted(text), n=len(names), names=shown)
    return usage_error("ambiguous_run", text, message)


def _none_such(text: str, root: Path, is_name: bool, folders: list[RunFolder]) -> UsageError:
    for path in (root / text, root) if is_name else (Path(text),):
        # Path.is_dir() raises below a closed folder.
        if text and os.path.isdir(path) and not os.access(path, os.R_OK | os.X_OK):  # noqa: PTH112
            message = tr("{path} cannot be read: {reason}.", path=path, reason=tr("Permission denied"))
            return usage_error("not_readable", str(path), message)
    if text and os.path.isdir(text) and not is_name:  # noqa: PTH112
        return usage_error("not_a_run", text, tr("The folder {path} is not a run: it holds no run.yaml.", path=text))
    names = [folder.path.name for folder in folders]
    near = [folder.path.name for folder in _fitting(text, folders)][:3] if is_name else []
    near = near or difflib.get_close_matches(text, names, n=3, cutoff=0.4)
    if not names:
        message = tr(
            "There is no run {text}. There are no runs in {root}/ yet; `trainwiz --profile cpu-demo --yes` makes one.",
            text=_quoted(text),
            root=root,
        )
    elif near:
        guess = tr(" or ").join(near)
        message = tr("There is no run {text}. Did you mean {guess}?", text=_quoted(text), guess=guess)
    else:
        message = tr("There is no run {text}. `trainwiz runs list` shows them.", text=_quoted(text))
    return usage_error("no_such_run", text, message)
