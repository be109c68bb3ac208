"""Trial: one fault from the start of its run to the comparison with the undisturbed one."""

from __future__ import annotations

import json
import shutil
import time

from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import read_state

from tools.faults.box import Box, can_mount
from tools.faults.broken_data import BROKEN_DATA
from tools.faults.damage import damage, newest_checkpoint
from tools.faults.fault import Fault
from tools.faults.front import Front
from tools.faults.injectors import INJECTORS
from tools.faults.moments import wait_for
from tools.faults.observation import End, Observation, last_step, read_text, starts_of, with_what_came_after
from tools.faults.processes import kill_all, of_trial, wait_until_gone
from tools.faults.scenario import SCENARIOS
from tools.faults.tensors import compare
from tools.faults.workshop import Workshop

GONE_AFTER_S = 12.0
SETTINGS = ("run.yaml", "accelerate.yaml", "deepspeed.json")
"""Files that a person must put right: they are restored before the run is taken up again."""
VIEWERS = {
    "runs show": ("runs", "show"),
    "monitor --once": ("monitor", "--once"),
    "monitor --once --json": ("monitor", "--once", "--json"),
    "diagnose": ("diagnose",),
    "diagnose --json": ("diagnose", "--json"),
}
CHECKPOINT = "{checkpoint}"
"""In the name of a file: the newest one."""
AT_ONCE = "both at once"
KEYS_TO_START = b"\r"
KEY_TO_LEAVE = b"q"


class Trial:
    """`run` does it all and leaves nothing behind but, with `keep`, its folder."""

    def __init__(self, fault: Fault, workshop: Workshop, *, keep: bool = False) -> None:
        self.fault = fault
        self.workshop = workshop
        self.keep = keep
        shutil.rmtree(workshop.root / f"fault-{fault.number}", ignore_errors=True)
        self.box = Box(workshop.root / f"fault-{fault.number}")
        self.seen = Observation(fault)
        self.scenario = SCENARIOS[fault.scenario]
        self._log = ""

    def run(self) -> Observation:
        began = time.monotonic()
        try:
            self._hurt()
            if self.seen.injected:
                self._take_up_again()
                self._compare()
        finally:
            self.seen.seconds = time.monotonic() - began
            kill_all(self.box.mark)
            # What struck nothing is tried again in the same place.
            if not (self.keep and self.seen.injected):
                self.box.remove()
        return self.seen

    # The run, and the fault.

    def _hurt(self) -> None:
        fault, seen = self.fault, self.seen
        if fault.family == "disk":
            if not can_mount():
                seen.not_done = "this machine does not allow a file system of one's own"
                return
            self.box.mount()
        if fault.moment.kind == "rest":
            self._hurt_at_rest()
        elif fault.how == AT_ONCE:
            self._start_twice_at_once()
        else:
            self._hurt_while_it_runs()
        if seen.injected:
            self._look()

    def _hurt_at_rest(self) -> None:
        self.workshop.copy_half(self.fault.scenario, self.box.run)
        self._log = read_text(self.box.run / "train.log")
        self.seen.starts_before_resume = starts_of(self._log)
        newest = newest_checkpoint(self.box.run)
        assert newest is not None
        if self.fault.target.startswith(CHECKPOINT):
            self.seen.damaged = frozenset({int(newest.name[11:])})
        target = self.box.run / self.fault.target.replace(CHECKPOINT, newest.name)
        target.touch()
        damage(target, self.fault.how, self.fault.number)
        self.seen.injected = True

    def _start_twice_at_once(self) -> None:
        """Two people start a prepared folder in the same moment: one of them gets it."""
        seen, patience_s = self.seen, self.workshop.patience_s
        prepared = self.box.new_run(self.scenario, "--dry-run")
        prepared.wait(patience_s)
        prepared.end()
        fronts = [self.box.resume() for _ in range(2)]
        codes = [front.wait(patience_s) for front in fronts]
        for number, (front, code) in enumerate(zip(fronts, codes, strict=True), start=1):
            front.end()
            seen.codes[f"start {number}"], seen.shown[f"start {number}"] = code, front.text()
        if sorted(map(str, codes)) != ["0", "2"]:
            seen.hung.append(f"of two starts at once one has to be refused; they ended with {codes}")
        seen.orphans += wait_until_gone(self.box.mark, GONE_AFTER_S)
        seen.injected = True

    def _hurt_while_it_runs(self) -> None:
        fault, seen, box = self.fault, self.seen, self.box
        variables = {"TRAINWIZ_FAULTS": fault.how} if fault.family == "training" else {}
        more = ["--dataset", str(BROKEN_DATA[fault.how](box.root))] if fault.family == "data" else []
        screen = fault.front == "screen"
        front = box.new_run(self.scenario, *more, screen=screen, **variables)
        if screen:
            self._start_on_screen(front)

        def over() -> bool:
            is_gone = front.process.poll() is not None
            # The full screen may leave a run behind; without one there is nothing to wait for.
            return self._status() in ENDED or (is_gone and self._status() == "none") if screen else is_gone

        undisturbed_s = self.workshop.undisturbed[fault.scenario].seconds
        struck = (
            wait_for(fault.moment, box.run, undisturbed_s, over) if fault.family not in ("training", "data") else True
        )
        self._log = read_text(box.run / "train.log")
        seen.injected = struck and INJECTORS[fault.family](box, front, fault, over, seen)
        self._wait_for_end(front, screen)

    def _start_on_screen(self, front: Front) -> None:
        """Enter goes from step to step of the wizard, and at the last one it starts."""
        deadline = time.monotonic() + self.workshop.patience_s
        while (
            not (self.box.run / "state.json").exists() and time.monotonic() < deadline and front.process.poll() is None
        ):
            time.sleep(1.0)
            front.type(KEYS_TO_START)

    def _wait_for_end(self, front: Front, screen: bool) -> None:
        """Of the front end, then of the run, which may outlive it."""
        patience_s, seen = self.workshop.patience_s, self.seen
        if not screen:
            seen.codes["start"] = front.wait(patience_s)
            if seen.codes["start"] is None:
                seen.hung.append(f"the command did not end in {patience_s:.0f} s")
        if not self._wait_for_status(patience_s):
            seen.hung.append(f"the run did not end in {patience_s:.0f} s: it is {self._status()}")
        if screen and front.process.poll() is None:
            time.sleep(1.0)
            front.type(KEY_TO_LEAVE)
            if front.wait(20.0) is None:
                seen.hung.append("the screen did not close")
        front.end()
        seen.shown["start"] = front.text()
        seen.orphans += wait_until_gone(self.box.mark, GONE_AFTER_S)

    def _wait_for_status(self, patience_s: float) -> bool:
        """Until the run has ended, or was not even started and nothing of it is left."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            status = self._status()
            if status in ENDED or (status in ("none", "prepared") and not of_trial(self.box.mark)):
                return True
            time.sleep(0.1)
        return False

    # What became of it.

    def _look(self) -> None:
        """What state and log say, and what each viewer shows of it."""
        seen = self.seen
        seen.end = self._end()
        if self.fault.moment.kind != "rest":
            seen.starts_before_resume = self._starts()
        if self.box.run.is_dir() and (self.box.run / "run.yaml").exists():
            for name, words in VIEWERS.items():
                self._view(name, [*words, str(self.box.run)])
            if self.fault.moment.kind != "rest":
                seen.diagnosed = cause_in(seen.shown["diagnose --json"])

    def _view(self, name: str, words: list[str]) -> None:
        front = self.box.command(*words)
        self.seen.codes[name] = front.wait(60.0)
        front.end()
        self.seen.shown[name] = front.text()
        if self.seen.codes[name] is None:
            self.seen.hung.append(f"`{name}` did not end in 60 s")

    def _take_up_again(self) -> None:
        if self.seen.end.status == "finished" or self.fault.family == "data":
            self.seen.last = self.seen.end if self.fault.family != "data" else End("refused")
            return
        if not self._resume("resume") or self._status() != "finished":
            self._put_right()
            self._resume("resume again")
        self.seen.last = self._end()
        if self.fault.moment.kind == "rest":
            self.seen.end = self._first_of_resume()

    def _resume(self, name: str) -> bool:
        patience_s = self.workshop.patience_s
        whole = (self.box.run / "run.yaml").exists()
        if not whole:
            # Hit while it planned: there is no run yet.
            shutil.rmtree(self.box.run, ignore_errors=True)
        front = self.box.resume() if whole else self.box.new_run(self.scenario)
        code = front.wait(patience_s)
        front.end()
        self.seen.codes[name], self.seen.shown[name] = code, front.text()
        if code is None or not self._wait_for_status(patience_s):
            self.seen.hung.append(f"`{name}` did not end in {patience_s:.0f} s")
        self.seen.orphans += wait_until_gone(self.box.mark, GONE_AFTER_S)
        return code == 0

    def _put_right(self) -> None:
        if self.fault.target in SETTINGS and self.fault.scenario in self.workshop.half:
            shutil.copy2(self.workshop.half[self.fault.scenario] / self.fault.target, self.box.run / self.fault.target)

    def _first_of_resume(self) -> End:
        """A run that was hurt at rest shows what it makes of it when it is taken up."""
        first = self._ends_of_attempts()
        refused = self.seen.codes.get("resume") in (2, 3)
        return End("finished") if refused else (first[0] if first else self.seen.last)

    def _ends_of_attempts(self) -> list[End]:
        attempts = read_state(RunFolder(self.box.run)).attempts
        had = len(self.seen.starts_before_resume)
        found = []
        for attempt in attempts:
            said = attempt.exit or {}
            if attempt.number > had and attempt.status:
                found.append(End(attempt.status, said.get("cause"), str(said.get("message", ""))))
        return found

    def _end(self) -> End:
        if not (self.box.run / "run.yaml").exists():
            return End("none")
        state = read_state(RunFolder(self.box.run))
        failed = tuple(
            ((one.exit or {}).get("cause"), str((one.exit or {}).get("message", "")))
            for one in state.attempts[:-1]
            if one.status == "failed" and self.fault.moment.kind != "rest"
        )
        exit_ = state.exit
        return End(
            state.status,
            exit_.cause if exit_ else None,
            exit_.message if exit_ else "",
            failed,
            last_step(self.box.run),
            bool((state.stop or {}).get("now")),
        )

    def _starts(self) -> list:
        """A damaged train.log is read as it was before the damage, with what came after."""
        now = read_text(self.box.run / "train.log")
        if self.fault.family == "file" and self.fault.target == "train.log":
            return starts_of(with_what_came_after(self._log, now))
        return starts_of(now)

    def _compare(self) -> None:
        seen = self.seen
        if self.fault.family == "data":
            seen.compared = 1
            return
        seen.starts = self._starts()
        undisturbed = self.workshop.undisturbed[self.fault.scenario].run
        other_batch = self.fault.how.startswith("oom@") and "during" not in self.fault.how
        seen.differences, seen.compared = compare(undisturbed, self.box.run, exact=not other_batch)
        log = read_text(self.box.run / "supervisor.log")
        damaged = self.fault.target == "supervisor.log"
        if "Traceback" in log and not damaged:
            seen.keeper_failures.append(log[log.find("Traceback") :][-800:])

    def _status(self) -> str:
        if not (self.box.run / "run.yaml").exists():
            return "none"
        return read_state(RunFolder(self.box.run)).status


ENDED = ("finished", "failed", "stopped", "lost")


def cause_in(shown: str) -> str | None:
    """The cause that `diagnose --json` printed; a word for what is no such document."""
    try:
        cause = json.loads(shown)["cause"]
    except (ValueError, LookupError, TypeError):
        return "(no document)"
    return None if cause is None else str(cause)
