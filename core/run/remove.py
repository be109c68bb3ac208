"""Removing a run: the only place of the product that deletes what it did not just make."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from pathlib import Path

from trainwiz.core.errors import CannotRunError, os_reason, usage_error
from trainwiz.core.findings import Finding
from trainwiz.core.language import tr
from trainwiz.core.run.folder import LAUNCH_SH, PLAN_JSON, RunFolder
from trainwiz.core.run.lock import RunLock
from trainwiz.core.run.names import name_for_commands
from trainwiz.core.run.state import read_state

LOCK_PATIENCE_S = 1.0
"""Readers hold the lock for a moment."""


def check_removable(folder: RunFolder, lock: RunLock | None = None) -> None:
    """Raises UsageError when the folder is no run, is active, or holds the place that the user works in.

    `lock`: what the caller itself holds.
    """
    path = folder.path
    signs = [folder.run_yaml, folder.state_json, folder.file(PLAN_JSON), folder.file(LAUNCH_SH)]
    if path.is_symlink():
        message = tr(
            "{path} is a link and is not removed. The run that it leads to goes with: trainwiz runs remove {typed}",
            path=path,
            typed=shlex.quote(str(path.resolve())),
        )
        raise usage_error("not_a_run", str(path), message)
    if not all(sign.is_file() for sign in signs[:2]) or not any(s.is_file() for s in signs[2:]):
        raise usage_error(
            "not_a_run", str(path), tr("{path} is not removed: it is not a run folder of trainwiz.", path=path)
        )
    real = path.resolve()
    for place, what in ((Path.cwd(), tr("the folder you work in")), (Path.home(), tr("your home folder"))):
        if place.resolve().is_relative_to(real):
            message = tr("{path} is not removed: {what} is inside it.", path=path, what=what)
            raise usage_error("not_removable", str(path), message)
    state = read_state(folder, lock=lock)
    if state.status == "stopping":
        message = tr("{name} is being stopped; remove it when it has ended.", name=path.name)
        raise usage_error("run_is_active", str(path), message)
    if state.is_active:
        message = tr(
            "{name} is {status}; stop it first: trainwiz runs stop {typed}",
            name=path.name,
            status=tr(state.status),
            typed=name_for_commands(path),
        )
        raise usage_error("run_is_active", str(path), message)


def remove_run(folder: RunFolder) -> None:
    """Delete the folder of a run with all that is in it; follows no link out of it.

    Raises UsageError as check_removable does, and when it is being started at this moment;
    CannotRunError when it cannot be deleted whole.
    """
    check_removable(folder)
    path = folder.path
    try:
        lock = RunLock.take(path, wait_s=LOCK_PATIENCE_S)
        if lock is None:
            message = tr("{name} is being started or cleared up; try again.", name=path.name)
            raise usage_error("run_is_active", str(path), message)
        try:
            # It may have been started while we waited.
            check_removable(folder, lock)
            _delete(path)
        finally:
            lock.release()
    except OSError as error:
        message = tr("{path} could not be removed whole: {reason}.", path=path, reason=os_reason(error))
        raise CannotRunError(Finding("not_removable", "error", str(path), message)) from None


def _delete(path: Path) -> None:
    """Out of sight in one step: half a run is never found, and a start at this moment finds none."""
    hidden = path.with_name(f".{path.name}.removing")
    try:
        path.rename(hidden)
    except OSError:
        # A mount point, a name that gets too long, a closed parent: then where it stands.
        shutil.rmtree(path)
        return
    try:
        shutil.rmtree(hidden)
    except OSError:
        with contextlib.suppress(OSError):
            hidden.rename(path)
        raise


def size_bytes(path: Path) -> int:
    """Bytes that the files below `path` take on the disk; links are not followed."""
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512  # noqa: PTH118 - half the time
            except OSError:
                continue
    return total
