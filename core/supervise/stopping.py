"""Who asked for a stop, how patiently, and whether a save still moves."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from trainwiz.core.files import bytes_below
from trainwiz.core.language import mark
from trainwiz.core.launch.actions import LAST_FILE
from trainwiz.core.run.checkpoints import CHECKPOINT_NAME
from trainwiz.core.run.folder import PARTIAL
from trainwiz.core.run.lost import ProcessId
from trainwiz.core.supervise.ties import send
from trainwiz.core.telemetry.processes import trainers_below

# SaveProgress: whether a save under way still moves, so that the end of a stop's patience does not cut it.

STALLED_AFTER_S = 60.0
"""A save that has written nothing for so long is not waited for: its disk hangs, or there is none."""


ENDS_WITHIN_S = 15.0
"""After a save that outlasted the patience, its processes still have to end."""


class SaveProgress:
    """Looks at what is half written in a run folder: checkpoints without their last file, and `*.partial`."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._seen: dict[str, int] = {}
        self._moved_at: float | None = None

    def moves(self) -> bool:
        """Whether something half written has grown within the last STALLED_AFTER_S; the first look counts as growth.

        True for ENDS_WITHIN_S more when it is whole.
        """
        now, found = self._clock(), self._half_written()
        if found and (self._moved_at is None or any(size != self._seen.get(name) for name, size in found.items())):
            self._moved_at = now
        self._seen = found
        patience_s = STALLED_AFTER_S if found else ENDS_WITHIN_S
        return self._moved_at is not None and now - self._moved_at <= patience_s

    def _half_written(self) -> dict[str, int]:
        """Name -> bytes so far."""
        try:
            paths = [path for path in self._folder.iterdir() if _is_half_written(path)]
        except OSError:
            return {}
        return {path.name: bytes_below(path) for path in paths}


def _is_half_written(path: Path) -> bool:
    if path.name.endswith(PARTIAL):
        return path.is_dir()
    return CHECKPOINT_NAME.fullmatch(path.name) is not None and not (path / LAST_FILE).exists()


# Stopping: who asked, how patiently, and what is done about it.

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
NOW_SIGNAL = signal.SIGUSR1
"""Ends at once, however soon after a stop signal."""

ONE_REQUEST_S = 3.0
"""Stop signals within this time are one request: two people who press stop at once, neither of whom has seen the
other's, or the SIGTERM and SIGHUP with which a session ends. A checkpoint must not be lost to that."""
EXEC_TAKES_AT_MOST_S = 0.3
LAUNCHER_MAY_LINGER_S = 10.0
PREPARING_MAY_LINGER_S = 5.0
"""A training that has not begun reads its rows, perhaps for many minutes: it has nothing to save and is not waited for."""


class Stopping:
    """The state of a stop.

    The first stop signal asks every training process (all ranks, for the others would wait for one
    that stopped alone) for a checkpoint and its end. A second one more than ONE_REQUEST_S later,
    NOW_SIGNAL, or the end of the window (core.run.stop_window) ends everything at once; a save that is
    still being written then is waited for as long as it grows.
    """

    def __init__(self, owner: ProcessId | None = None) -> None:
        self.owner = owner
        self.reason: str | None = None
        self.requested_s: float | None = None
        """Seconds since the epoch."""
        self.now = False
        self.killed = False
        self.verified: dict[str, Any] | None = None
        """What was found gone when it was over: see core.supervise.verify."""
        self._asked_at: float | None = None
        self._told: set[tuple[int, float]] = set()
        self._seen: dict[tuple[int, float], float] = {}
        self._last_trainer = time.monotonic()
        self._pipe = -1

    def listen(self) -> int:
        """Take over the signals; returns a descriptor that becomes readable with each, child exits included."""
        self._pipe, write_end = os.pipe()
        os.set_blocking(self._pipe, False)
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_stop)
        signal.signal(NOW_SIGNAL, self._on_now)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        return self._pipe

    def drain(self) -> None:
        """Forget the wake-ups so far."""
        try:
            while os.read(self._pipe, 4096):
                pass
        except BlockingIOError:
            return

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        insists = self._asked_at is not None and time.monotonic() - self._asked_at > ONE_REQUEST_S
        self.ask("you" if number == signal.SIGTERM else signal.Signals(number).name, now=insists)

    def _on_now(self, number: int, frame: FrameType | None) -> None:
        self.ask("you", now=True)

    def ask(self, reason: str, now: bool = False) -> None:
        """Note the request; `heed` acts on it."""
        if self.reason is None:
            self.reason, self.requested_s, self._asked_at = reason, time.time(), time.monotonic()
        self.now = self.now or now

    def heed(
        self, keeper_pid: int, starting: bool, grace_s: float, saves: Callable[[], bool] = lambda: False
    ) -> Literal["wait", "kill"]:
        """Do what the request asks for at this moment; "kill" when the patience is over.

        `starting`: no training process has said yet that it trains, so there is nothing to save. `saves`
        is asked once the patience is over: whether a save still grows.
        """
        if self.reason is None and self.owner is not None and not self.owner.is_alive():
            self.ask(mark("the end of the command that started it"))
        if self._asked_at is None:
            return "wait"
        now = time.monotonic()
        if self.now or (now - self._asked_at > grace_s and not saves()):
            self.killed = True
            return "kill"
        trainers = trainers_below(keeper_pid)
        for process in trainers:
            self._last_trainer = now
            # A child that is between fork and exec would lose the signal.
            key = (process.pid, process.start_ticks or process.create_time)
            if key not in self._told and now - self._seen.setdefault(key, now) >= EXEC_TAKES_AT_MOST_S:
                send(process.pid, signal.SIGTERM)
                self._told.add(key)
        nothing_to_save = starting and not self._told
        if not trainers and (nothing_to_save or now - self._last_trainer > LAUNCHER_MAY_LINGER_S):
            return "kill"
        if starting and now - self._asked_at > PREPARING_MAY_LINGER_S:
            return "kill"
        return "wait"

    def to_json(self) -> dict[str, Any] | None:
        if self.reason is None:
            return None
        document = {"requested_s": self.requested_s, "reason": self.reason, "now": self.now}
        return document if self.verified is None else {**document, "verified": self.verified}
