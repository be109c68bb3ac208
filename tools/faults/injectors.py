"""One injector for each family of faults that strike a run while it goes on. True: it struck."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable

from tools.faults.box import Box
from tools.faults.damage import damage
from tools.faults.fault import Fault
from tools.faults.front import Front
from tools.faults.observation import Observation
from tools.faults.processes import of_trial, victim

SUSPENDED = "suspended"
ASLEEP_S = 6.0
LOOK_EVERY_S = 0.01
PAUSED_LONG_ENOUGH_S = 3.0
DISK_STAYS_FULL_S = 60.0


def strike_with_signal(box: Box, front: Front, fault: Fault, over: Callable[[], bool], seen: Observation) -> bool:
    number = signal.Signals[fault.how]
    while not over():
        pid = front.process.pid if fault.target == "front" else victim(box.mark, fault.target)
        if pid is not None:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
            return True
        time.sleep(LOOK_EVERY_S)
    return False


def strike_with_stop(box: Box, front: Front, fault: Fault, over: Callable[[], bool], seen: Observation) -> bool:
    """As a user stops: in another terminal, or by closing this one."""
    if fault.how == "closed terminal":
        front.close_terminal()
        return True
    if not (box.run / "state.json").exists():
        return False
    words = ["runs", "stop", str(box.run), *(["--now"] if fault.how == "now" else [])]
    _shown(box, seen, "runs stop", words)
    return True


def strike_clock(box: Box, front: Front, fault: Fault, over: Callable[[], bool], seen: Observation) -> bool:
    if fault.how == SUSPENDED:
        return _suspend(box)
    box.clock.write_text(fault.how)
    return True


def _suspend(box: Box) -> bool:
    """A lid that is closed: every process of the trial stands still, and goes on later."""
    asleep = [process.pid for process in of_trial(box.mark)]
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in asleep:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(ASLEEP_S if number == signal.SIGSTOP else 0.0)
    return True


def strike_disk(box: Box, front: Front, fault: Fault, over: Callable[[], bool], seen: Observation) -> bool:
    """The disk fills, and has room again later: when the run has ended, or waits for it."""
    box.fill_disk()
    deadline = time.monotonic() + DISK_STAYS_FULL_S
    paused_since: float | None = None
    while time.monotonic() < deadline and not over():
        paused = _phase(box) == "paused"
        paused_since = (paused_since or time.monotonic()) if paused else None
        if paused_since and time.monotonic() - paused_since > PAUSED_LONG_ENOUGH_S:
            seen.notes.append("paused")
            break
        time.sleep(0.1)
    box.free_disk()
    return True


def strike_file(box: Box, front: Front, fault: Fault, over: Callable[[], bool], seen: Observation) -> bool:
    """Damage to a file while the run goes on."""
    while not over():
        try:
            damage(box.run / fault.target, fault.how, fault.number)
            return True
        except OSError:
            time.sleep(LOOK_EVERY_S)
    return False


def strike_with_second_start(box: Box, front: Front, fault: Fault, over: Callable[[], bool], seen: Observation) -> bool:
    """Somebody starts the same folder in another terminal."""
    while not (box.run / "state.json").exists():
        if over():
            return False
        time.sleep(LOOK_EVERY_S)
    words = {
        "resumed": ["--resume", "--output-dir", str(box.run), "--plain"],
        "resumed by name": ["runs", "resume", str(box.run)],
    }[fault.how]
    code = _shown(box, seen, "second start", words)
    if code == 0 and not over():
        seen.hung.append("the second start was not refused")
    return True


def strike_nothing(box: Box, front: Front, fault: Fault, over: Callable[[], bool], seen: Observation) -> bool:
    """The fault is in the data or in the environment already."""
    return True


INJECTORS: dict[str, Callable[[Box, Front, Fault, Callable[[], bool], Observation], bool]] = {
    "signal": strike_with_signal,
    "stop": strike_with_stop,
    "clock": strike_clock,
    "disk": strike_disk,
    "file": strike_file,
    "start": strike_with_second_start,
    "training": strike_nothing,
    "data": strike_nothing,
}


def _shown(box: Box, seen: Observation, name: str, words: list[str]) -> int | None:
    front = box.command(*words)
    code = front.wait(90.0)
    front.end()
    seen.shown[name], seen.codes[name] = front.text(), code
    if code is None:
        seen.hung.append(f"`{name}` did not end")
    return code


def _phase(box: Box) -> str | None:
    try:
        found = json.loads((box.run / "phase.json").read_text()).get("phase")
    except (OSError, ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None
