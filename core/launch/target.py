"""The folder that a run will be written to: may it be, can it be, does it have room?"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

from trainwiz.core.errors import CannotRunError, TrainwizError, UsageError, os_reason
from trainwiz.core.findings import Finding, Remedy
from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.core.run.lock import LOCK_FILE

IGNORED = frozenset({"lost+found"})
"""What a file system puts into its own top folder."""


def claim_folder(folder: Path, needed_bytes: int, forced: bool = False) -> bool:
    """Make `folder` and take it for one run; True when it had to be made.

    Raises UsageError when it is not empty, is no folder, or is taken by another start in the same
    moment; CannotRunError when it cannot be written or its disk has fewer than `needed_bytes` free
    (`forced` lets the last one pass). Nothing is left behind then.
    """
    _refuse_what_is_there(folder)
    shortage = _shortage(folder, needed_bytes)
    if shortage is not None and not forced:
        raise CannotRunError(shortage)
    made: list[Path] = []
    claimed = False
    try:
        for path in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
            with suppress(FileExistsError):  # By another start, in the same moment; the lock decides between the two.
                path.mkdir()
                made.append(path)
        # Two commands in the same moment: exactly one of them makes this file.
        os.close(os.open(folder / LOCK_FILE, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        claimed = True
        _write_probe(folder)
    except OSError as error:
        if claimed:
            (folder / LOCK_FILE).unlink(missing_ok=True)
        for path in reversed(made):
            _remove_if_empty(path)
        raise _refusal(folder, error) from None
    return folder in made


def release_folder(folder: Path, files: list[Path], made: bool) -> None:
    """Take back a claim after a failure: only what this start has written goes."""
    for path in [*files, folder / LOCK_FILE]:
        path.unlink(missing_ok=True)
    if made:
        _remove_if_empty(folder)


def _refuse_what_is_there(folder: Path) -> None:
    try:
        entries = {path.name for path in folder.iterdir()} - IGNORED
    except FileNotFoundError:
        return
    except NotADirectoryError:
        blocker = next((path for path in (folder, *folder.parents) if path.exists()), folder)
        raise _usage(
            "output_not_a_folder", folder, tr("{path} is a file; a run needs a folder.", path=blocker)
        ) from None
    except PermissionError:
        message = tr("{path} may not be read by you.", path=folder)
        raise CannotRunError(_finding("output_not_writable", folder, message)) from None
    except OSError as error:  # A name that is too long, links that go in circles, a disk that does not answer.
        raise _refusal(folder, error) from None
    if "run.yaml" in entries:
        message = tr("{path} holds a run already. Go on with it: trainwiz --resume --output-dir {path}", path=folder)
        raise _usage("output_not_empty", folder, message)
    if entries:
        message = tr("{path} is not empty; nothing is ever overwritten. Name a new one.", path=folder)
        raise _usage("output_not_empty", folder, message)


def _shortage(folder: Path, needed_bytes: int) -> Finding | None:
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    try:
        free = shutil.disk_usage(place).free
    except OSError:
        return None
    if free >= needed_bytes:
        return None
    message = tr(
        "The disk of {path} has {free} free; the run needs {needed} for checkpoints and model.",
        path=place,
        free=_gib(free),
        needed=_gib(needed_bytes),
    )
    keep = Remedy(tr("Keep fewer checkpoints."), changes={"checkpoint.keep": 1})
    return Finding("disk_too_small", "error", str(folder), message, (_elsewhere(), keep))


def _write_probe(folder: Path) -> None:
    # Permission bits say little (root, network disks, quotas): only a real file proves it.
    probe = folder / f".probe-{os.getpid()}"
    try:
        with probe.open("xb") as file:
            file.write(b"\0" * 65_536)
            file.flush()
            os.fsync(file.fileno())
    finally:
        probe.unlink(missing_ok=True)


def _refusal(folder: Path, error: OSError) -> TrainwizError:
    if error.errno == errno.EEXIST:
        return _usage(
            "output_taken", folder, tr("Another start has just taken {path}. Name a new folder.", path=folder)
        )
    if error.errno in (errno.ENOTDIR, errno.ENAMETOOLONG):
        message = tr("{path} cannot be a folder: {reason}.", path=plain_text(folder, 100), reason=os_reason(error))
        return _usage("output_not_a_folder", folder, message)
    reasons = {
        errno.EROFS: ("output_read_only", tr("its disk is read-only")),
        errno.EACCES: ("output_not_writable", tr("you may not write there")),
        errno.EPERM: ("output_not_writable", tr("you may not write there")),
        errno.ENOSPC: ("disk_full", tr("its disk is full")),
        errno.EDQUOT: ("disk_full", tr("your disk quota is used up")),
    }
    code, reason = reasons.get(error.errno or 0, ("output_not_writable", os_reason(error)))
    message = tr("The run folder {path} cannot be written: {reason}.", path=folder, reason=reason)
    return CannotRunError(_finding(code, folder, message))


def _finding(code: str, folder: Path, message: str) -> Finding:
    return Finding(code, "error", str(folder), message, (_elsewhere(),))


def _elsewhere() -> Remedy:
    return Remedy(tr("Choose a folder on another disk with --output-dir."))


def _usage(code: str, folder: Path, message: str) -> UsageError:
    return UsageError(Finding(code, "error", str(folder), message))


def _remove_if_empty(path: Path) -> None:
    try:
        path.rmdir()
    except OSError:
        return


def _gib(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB" if count >= 2**29 else f"{count / 2**20:,.1f} MiB"
