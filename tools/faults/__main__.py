"""`python -m tools.faults --faults 200 --seed N --jobs 3`: the campaign, its report on stdout and as JSON."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tools.faults.campaign_plan import earlier, plan
from tools.faults.fault import Fault
from tools.faults.judge import Problem, judge
from tools.faults.observation import Observation
from tools.faults.report import Verdict, line, table, write
from tools.faults.short_plan import short_plan
from tools.faults.trial import Trial
from tools.faults.workshop import NotUndisturbedError, Workshop

PATIENCE_S = 150.0
TRIES = 3
OWN_MOUNTS = "FAULT_OWN_MOUNTS"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=200, metavar="N", help="how many are drawn")
    parser.add_argument("--seed", type=int, default=None, help="draws the same faults again; printed when left out")
    parser.add_argument("--jobs", type=int, default=3, metavar="N", help="trials at the same time")
    parser.add_argument("--only", default="", metavar="N,M", help="of the faults drawn, only these numbers")
    parser.add_argument("--family", default="", metavar="NAME,NAME", help="only these families")
    parser.add_argument("--short", action="store_true", help="two, to see that the campaign runs")
    parser.add_argument("--report", type=Path, default=None, metavar="FILE", help="the JSON document")
    parser.add_argument("--keep", type=Path, default=None, metavar="FOLDER", help="keep the folders of the trials here")
    parser.add_argument("--patience", type=float, default=PATIENCE_S, metavar="S", help="what lasts longer hangs")
    parser.add_argument("--list", action="store_true", help="show the faults and leave")
    choices = parser.parse_args()
    if not choices.list:
        enter_own_mounts()
    seed = random.randrange(1_000_000) if choices.seed is None else choices.seed
    faults = short_plan() if choices.short else plan(choices.faults, seed)
    faults = _chosen(faults, choices.only, choices.family)
    print(f"seed {seed}, {len(faults)} faults, {choices.jobs} at a time", flush=True)
    if choices.list:
        print("\n".join(map(str, faults)))
        return 0
    root = choices.keep or Path(tempfile.mkdtemp(prefix="faults-"))
    began = time.monotonic()
    try:
        verdicts = run(faults, root.resolve(), choices.jobs, choices.patience, keep=choices.keep is not None)
    except NotUndisturbedError as error:
        print(f"An undisturbed run did not go well: {error}", file=sys.stderr)
        return 2
    finally:
        if choices.keep is None:
            shutil.rmtree(root, ignore_errors=True)
    seconds = time.monotonic() - began
    print("\n" + table(verdicts, seed, seconds))
    if choices.report is not None:
        write(choices.report, verdicts, seed, seconds)
    return 1 if len(verdicts) < len(faults) or any(verdict.problems for verdict in verdicts) else 0


def run(faults: list[Fault], root: Path, jobs: int, patience_s: float, *, keep: bool) -> list[Verdict]:
    """All trials, each reported as it ends. Raises NotUndisturbedError."""
    workshop = Workshop(root, patience_s)
    halves = {fault.scenario for fault in faults if fault.moment.kind == "rest"}
    verdicts: list[Verdict] = []
    pool = ThreadPoolExecutor(jobs)
    try:
        for done in [
            pool.submit(workshop.prepare, name, half=name in halves) for name in sorted({f.scenario for f in faults})
        ]:
            done.result()
        for finished in as_completed([pool.submit(try_fault, fault, workshop, keep) for fault in faults]):
            verdicts.append(finished.result())
            print(line(verdicts[-1]), flush=True)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("interrupted: the trials under way come to their end, no further one begins", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
    return sorted(verdicts, key=lambda verdict: verdict.seen.fault.number)


def try_fault(fault: Fault, workshop: Workshop, keep: bool) -> Verdict:
    try:
        seen = Trial(fault, workshop, keep=keep).run()
        for _ in range(TRIES - 1):
            if seen.injected or seen.not_done:
                break
            seen = Trial(earlier(seen.fault), workshop, keep=keep).run()
    except Exception as error:  # noqa: BLE001 - a trial that cannot be judged must not end the campaign, nor look good
        said = "".join(traceback.format_exception(error))
        return Verdict(Observation(fault, injected=True), (Problem("campaign", said),))
    return Verdict(seen, tuple(judge(seen)) if seen.injected else ())


def enter_own_mounts() -> None:
    """Start again with mounts of one's own, where the kernel allows them: for disks that fill up."""
    if OWN_MOUNTS in os.environ or sys.platform != "linux" or not shutil.which("unshare"):
        return
    flags = "-m" if os.geteuid() == 0 else "-rm"
    allowed = os.system(f"unshare {flags} mount -t tmpfs -o size=1m none /mnt 2>/dev/null") == 0
    variables = {**os.environ, OWN_MOUNTS: "1" if allowed else "0"}
    words = [sys.executable, "-m", "tools.faults", *sys.argv[1:]]
    os.execvpe("unshare" if allowed else sys.executable, ["unshare", flags, *words] if allowed else words, variables)


def _chosen(faults: list[Fault], only: str, family: str) -> list[Fault]:
    numbers = {int(word) for word in only.split(",") if word}
    families = {word for word in family.split(",") if word}
    return [
        fault
        for fault in faults
        if (not numbers or fault.number in numbers) and (not families or fault.family in families)
    ]


if __name__ == "__main__":
    # Ctrl-C ends the campaign and, with its terminal, nothing of the trials: they have their own.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
