"""The written rule for `lost`: when can the keeper of a run never write again? The table is in docs/runs.md.

A run that is wrongly called lost may be started twice; one that is wrongly called running waits for
nothing. So a proof is needed: the process is not there, the computer was restarted, or nobody holds the
lock and there was no sign of life for HEARTBEAT_LOST_S. A clock alone proves nothing where processes can be seen.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trainwiz.core.language import tr
from trainwiz.core.moments import moment_words
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.lock import LockSeen, RunLock, look_at_lock
from trainwiz.core.run.processid import ProcessId, ProcessSeen, boot_time_s, look_for, machine_identity

if TYPE_CHECKING:
    from trainwiz.core.run.state import RunState

HEARTBEAT_LOST_S = 60.0

Why = Literal["copied", "no_process", "restarted", "silent"]
"""copied: the keeper that the state names keeps another folder. no_process: it does not run any more.
restarted: its computer was started again since. silent: it cannot be seen, and gives no sign of life."""


@dataclass(frozen=True, slots=True)
class Place:
    """A computer, its boot, and the process numbers that can be seen: what `machine_identity` puts in words."""

    host: str
    boot: str = ""
    pids: str = ""

    @classmethod
    def of(cls, identity: str) -> Place:
        host, boot, pids, *_ = [*identity.split(" "), "", ""]
        return cls(host, boot, pids)


@dataclass(frozen=True, slots=True)
class Sight:
    """What a reader of a run folder can see. The functions are asked only where the rule needs them."""

    machine: str
    """As machine_identity() gives it."""
    now_s: float
    process: Callable[[ProcessId], ProcessSeen]
    lock: Callable[[], LockSeen]
    written_s: Callable[[], float | None]
    """When state.json was written, by the clock of its file system."""
    is_elsewhere: Callable[[str], bool]
    """Whether the folder that was recorded exists and is not the one that is read."""
    boot_s: Callable[[], float]
    """When this computer was started; 0.0 where it is not known."""

    @classmethod
    def of(cls, run: RunFolder, now_s: float | None = None, lock: RunLock | None = None) -> Sight:
        """`lock`: the run's lock where the reader holds it itself."""
        return cls(
            machine=machine_identity(),
            now_s=time.time() if now_s is None else now_s,
            process=look_for,
            lock=lambda: look_at_lock(run.path) if lock is None else lock.seen_by_holder,
            written_s=lambda: _written_s(run.state_json),
            is_elsewhere=lambda recorded: _is_elsewhere(run.path, recorded),
            boot_s=boot_time_s,
        )


def why_lost(state: RunState, sight: Sight) -> Why | None:
    """Why an active run is lost; None when it is not, or when nothing proves it."""
    if not state.is_active:
        return None
    if state.folder is not None and state.machine == sight.machine and sight.is_elsewhere(state.folder):
        return "copied"
    if state.machine == sight.machine and state.supervisor is not None:
        seen = sight.process(state.supervisor)
        if seen != "hidden":
            return "no_process" if seen == "gone" else None
    lock = sight.lock()
    if lock == "held":
        return None
    if _was_restarted(state, sight):
        return "restarted"
    return "silent" if _is_silent(state, sight, lock) else None


def lost_words(why: Why, state: RunState, folder: Path) -> str:
    """One sentence for people: how the keeper of the run in `folder` was lost, and when it was last heard of."""
    last = tr("an unknown time") if state.heartbeat_s is None else moment_words(state.heartbeat_s, "%Y-%m-%d %H:%M:%S")
    if why == "copied":
        return tr("This folder is a copy of {path}, made while that run went on; nothing runs here.", path=state.folder)
    if why == "restarted":
        return tr("The computer was restarted while this run went on (last heartbeat {time}).", time=last)
    if why == "no_process" and state.folder is not None and Path(state.folder) != folder.resolve():
        return tr(
            "This folder was {path} when the process that kept its run was last heard of ({time}); "
            "a run ends when its folder is moved.",
            path=state.folder,
            time=last,
        )
    if why == "silent" and state.host and state.host != platform.node():
        return tr(
            "The process that kept this run on {host} is gone without a last word (last heartbeat {time}).",
            host=state.host,
            time=last,
        )
    return tr("The process that kept this run is gone without a last word (last heartbeat {time}).", time=last)


def _was_restarted(state: RunState, sight: Sight) -> bool:
    """Same host, another boot, and no heartbeat in this boot: another computer of that name would have one."""
    then, now = Place.of(state.machine or ""), Place.of(sight.machine)
    if not then.boot or not now.boot or then.boot == now.boot or then.host != now.host:
        return False
    return state.heartbeat_s is not None and state.heartbeat_s < sight.boot_s()


def _is_silent(state: RunState, sight: Sight, lock: LockSeen) -> bool:
    """Neither a heartbeat nor a written state.json within HEARTBEAT_LOST_S: the two may go by different clocks."""
    age_s = None if state.heartbeat_s is None else sight.now_s - state.heartbeat_s
    written_s = sight.written_s()
    if any(abs(age) <= HEARTBEAT_LOST_S for age in (age_s, written_s and sight.now_s - written_s) if age is not None):
        return False
    # A heartbeat from the future comes from a clock that is wrong: only a lock that is free says more.
    return lock == "free" or age_s is None or age_s > 0


def _written_s(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _is_elsewhere(folder: Path, recorded: str) -> bool:
    try:
        return RunFolder(Path(recorded)).is_run() and not Path(recorded).samefile(folder)
    except (OSError, ValueError):
        return False
