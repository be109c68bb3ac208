"""What it costs to be kept: CPU and memory of all processes beside the training, and the pace with them and without.

The pace is that of the same training entry with the same settings under the keeper and under plain
`accelerate launch`. Both live at once and take turns: one is frozen while the other trains, so that both
see the same machine within seconds. Steps that a freeze interrupts are not counted. Several pairs of
processes are taken, because two processes of the very same program differ by a percent for good.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

from tools.benchmarks.measure import Result
from tools.benchmarks.process_cost import Memory, OwnProcesses, cpu_seconds, memory_of
from tools.benchmarks.training_arms import Arm, KeptArm, PlainArm, environment

WATCHED_S = 75.0
SHARE_LIMIT_PERCENT = 1.0
MEMORY_LIMIT_MB = 60.0
LOOK_EVERY_S = 0.5
LAST_LOOKS_EVERY_S = 0.02

SPEED_LIMIT = 0.99
PAIRS_OF_PROCESSES = 3
TURNS = 10
"""Of each arm, in each pair of processes."""
TURN_S = 4.0
STEPS_IN_A_TURN = 10
"""At least; a slow machine gets longer turns."""
WARM_STEPS = 12


@dataclass(frozen=True)
class Cost:
    share_of_a_core: float
    watched_s: float
    memory: Memory
    """The highest, from the first step to the last process."""
    processes: int


def run() -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as place:
        yield from _costs(_cost(Path(place)))
        yield _speed(Path(place))


def _costs(cost: Cost) -> Iterator[Result]:
    share = 100 * cost.share_of_a_core
    detail = f"{share:.2f} % over {cost.watched_s:.0f} s of a run, {cost.processes} processes"
    yield Result("supervisor: share of a core, %", share, SHARE_LIMIT_PERCENT, detail)
    pss, uss, rss = (size / 1e6 for size in (cost.memory.pss, cost.memory.uss, cost.memory.rss))
    detail = (
        f"PSS of all together at its highest, the end of the run included; private {uss:.1f}, RSS added up {rss:.1f}"
    )
    yield Result("supervisor: memory, MB", pss, MEMORY_LIMIT_MB, detail)


def _cost(place: Path) -> Cost:
    """From the first step on, and then to the end of the run: its last word is written, its history kept."""
    with KeptArm(place / "cost", environment(place)) as arm:
        arm.wait_for_step(1)
        launcher, mark = arm.state().launcher, arm.state().mark
        if launcher is None or mark is None:
            raise RuntimeError("the run has no launcher")
        own = OwnProcesses(mark, launcher.pid)
        pids = own.now()
        most = memory_of(pids)
        before, began = cpu_seconds(pids), time.monotonic()
        while time.monotonic() - began < WATCHED_S:
            time.sleep(LOOK_EVERY_S)
            most = _larger(most, memory_of(own.now()))
        after, watched_s = cpu_seconds(own.now()), time.monotonic() - began
        spent = sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())
        with arm.stopping():
            while left := own.now():
                most = _larger(most, memory_of(left))
                time.sleep(LAST_LOOKS_EVERY_S)
        return Cost(spent / watched_s, watched_s, most, len(pids))


def _larger(one: Memory, other: Memory) -> Memory:
    return replace(one, pss=max(one.pss, other.pss), uss=max(one.uss, other.uss), rss=max(one.rss, other.rss))


def _speed(place: Path) -> Result:
    """Step time under the keeper over that under plain accelerate launch: the median over neighbouring turns."""
    ratios: list[float] = []
    of_pairs: list[float] = []
    steps: list[float] = []
    for number in range(PAIRS_OF_PROCESSES):
        own, spent = _pair(place / f"pair-{number}", environment(place))
        ratios += own
        of_pairs.append(median(own))
        steps += spent
    low, _, high = quantiles(ratios, n=4)
    detail = (
        f"steps of {1000 * median(steps):.0f} ms, {len(ratios)} pairs of turns, middle half {low:.3f} to {high:.3f}, "
        f"pairs of processes {', '.join(f'{ratio:.4f}' for ratio in of_pairs)}"
    )
    return Result("step under the keeper / plain accelerate launch", median(ratios), 1 / SPEED_LIMIT, detail)


def _pair(place: Path, variables: dict[str, str]) -> tuple[list[float], list[float]]:
    """(ratio of each pair of turns, seconds of each step under plain accelerate)."""
    with KeptArm(place / "kept", variables) as kept, PlainArm(place / "plain", variables) as plain:
        arms: tuple[Arm, Arm] = (kept, plain)
        for arm in arms:
            arm.wait_for_step(WARM_STEPS)
        warm = [float(row["step_s"]) for arm in arms for row in arm.rows()[1:]]
        turn_s = max(TURN_S, STEPS_IN_A_TURN * median(warm))
        for arm in arms:
            arm.freeze()
        turns: dict[Arm, list[tuple[float, float]]] = {kept: [], plain: []}
        for number in range(TURNS):
            # The other first each time: what a turn leaves to the next one falls on both.
            for arm in arms if number % 2 else reversed(arms):
                arm.thaw()
                began_s = time.time()
                time.sleep(turn_s)
                turns[arm].append((began_s, time.time()))
                arm.freeze()
        _same_training(kept, plain)
        ours, theirs = (_step_seconds(arm, turns[arm]) for arm in arms)
        # A turn that somebody else's work took whole has no step to compare.
        both = [(own, other) for own, other in zip(ours, theirs, strict=True) if own and other]
        ratios = [median(own) / median(other) for own, other in both]
        return ratios, [second for turn in theirs for second in turn]


def _step_seconds(arm: Arm, turns: list[tuple[float, float]]) -> list[list[float]]:
    """For each turn the seconds of the steps that began and ended in it, logging and callbacks included."""
    times = [float(row["time_s"]) for row in arm.rows()]
    spans = list(pairwise(times))
    return [[end - begin for begin, end in spans if first <= begin and end <= last] for first, last in turns]


def _same_training(kept: Arm, plain: Arm) -> None:
    """Both compute the same: equal losses at equal steps."""
    losses = [{row["step"]: row["loss"] for row in arm.rows()} for arm in (kept, plain)]
    shared = losses[0].keys() & losses[1].keys()
    different = [step for step in shared if losses[0][step] != losses[1][step]]
    if not shared or different:
        raise AssertionError(f"the two trainings are not the same one: {len(different)} of {len(shared)} steps differ")
