"""The alternatives of a plan, measured against its own in alternating turns."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any, Literal

from trainwiz.core.data.lengths import packs_rows
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.errors import CannotRunError, Finding
from trainwiz.core.estimate.memory import estimate_memory
from trainwiz.core.export.training_arguments import uses_deepspeed
from trainwiz.core.language import tr
from trainwiz.core.launch.probe import Probe
from trainwiz.core.launch.probe_order import ON_THE_LONGEST
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.words import gib

# Which other values of a plan's settings are worth a measurement here, and which are not, with the reason.

TORCH_ADAMW = ("adamw_torch", "adamw_torch_fused")
MOST_OF_RAM = 0.9
"""Of what is free now."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another value of one setting against the plan's own; with a note it is not measured."""

    key: str
    value: Any
    base: Any
    note: str = ""


def alternatives_of(plan: Plan) -> tuple[Alternative, ...]:
    """The quickest to measure come first."""
    return tuple(replace(one, note=_chosen(plan, one) or one.note or _beyond_ram(plan, one)) for one in _all(plan))


def with_value(plan: Plan, one: Alternative) -> Plan:
    """The plan with another value of a setting that leaves batch, lengths and rows as they are."""
    name = one.key.removeprefix("engine.")
    work = plan.work
    if work is not None and name in ("precision", "attention", "optimizer"):
        work = replace(work, **{name: one.value})
    return replace(plan, config=plan.config.with_values({one.key: one.value}, "solved", {}), work=work)


def growth(plan: Plan, one: Alternative) -> float:
    """Its memory over that of the plan's own settings, by formulas; at least 1."""
    changed = with_value(plan, one).work
    if plan.work is None or changed is None:
        return 1.0
    return max(1.0, estimate_memory(changed).needed_bytes / max(1, estimate_memory(plan.work).needed_bytes))


def _all(plan: Plan) -> Iterator[Alternative]:
    """What this machine cannot run fails at its first step, and says why."""
    engine = plan.config.engine
    packed = tr("not supported with packed rows (data.packing)") if packs_rows(plan.config) else ""
    flash = "" if plan.machine.libraries.has("flash_attn") else tr("flash-attn is not installed")
    notes = {"sdpa": "", "eager": packed}
    if engine.device == "cuda" and engine.precision not in ("fp32", "tf32"):
        notes["flash_attention_2"] = flash
    for value, note in notes.items():
        if value != engine.attention:
            yield Alternative("engine.attention", value, engine.attention, note)
    # DeepSpeed has its own AdamW, and computes in fp32 on a CPU.
    if engine.optimizer in TORCH_ADAMW and engine.offload == "none" and not uses_deepspeed(plan.config):
        other = TORCH_ADAMW[1 - TORCH_ADAMW.index(engine.optimizer)]
        yield Alternative("engine.optimizer", other, engine.optimizer)
    if engine.device == "cpu" and engine.precision in ("fp32", "bf16") and not uses_deepspeed(plan.config):
        yield Alternative("engine.precision", "bf16" if engine.precision == "fp32" else "fp32", engine.precision)
    without_triton = engine.device == "cuda" and not plan.machine.libraries.has("triton")
    note = packed or (tr("Triton is not installed") if without_triton else "")
    yield Alternative("engine.compile", not engine.compile, engine.compile, note)


def _chosen(plan: Plan, one: Alternative) -> str:
    return tr("you chose {value}", value=one.base) if plan.config.origin(one.key).origin == "you" else ""


def _beyond_ram(plan: Plan, one: Alternative) -> str:
    """A GPU that is full says so; a computer whose RAM is full ends other programs."""
    memory, free = plan.memory, plan.machine.ram_available_bytes
    needed = round(growth(plan, one) * (memory.host_ram_high_bytes or memory.host_ram_bytes))
    if plan.config.engine.device != "cpu" or plan.config.forced or not free or needed <= MOST_OF_RAM * free:
        return ""
    return tr("it may need {needed} of RAM, but only {free} is free", needed=gib(needed), free=gib(free))


# A plan's settings and their alternatives, measured in alternating turns in processes of their own.

LONGEST_S = 240.0
MOST_TURNS, FEWEST_TURNS = 20, 5
"""Of each; fewer have a range that says little."""
TURN_S = 0.7
"""A turn has as many steps as this takes: other programs come and go within seconds, so turns are short."""
WARM_STEPS = 4
"""Two on the longest batch and two usual ones: torch.compile compiles at the first of each length."""
CLOSING_S = 4.0
WORTH_IT = 1.03
"""Pace over pace that two processes of the very same settings hardly differ by: an assumption."""
CLEAR = 1.02
"""High over low of a range that needs no more turns."""
KEPT_FREE = 0.8
"""Share of the memory that two processes side by side may need."""
Verdict = Literal["faster", "slower", "no_difference", "unclear", "failed", "not_measured"]
"""`unclear`: too few turns."""


@dataclass(frozen=True, slots=True)
class Turns:
    """What became of one alternative. `gain` is the median of pace over pace, turn by turn: 1.4 is 1.4 times as fast."""

    changes: dict[str, Any]
    base: dict[str, Any]
    verdict: Verdict
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    """The range holds the median with 95 %, from six turns on."""
    turns: int = 0
    step_s: float | None = None
    """Of the plan's own settings, the median of the same turns."""
    once_s: float | None = None
    """Seconds that compiling takes: by so much are its first steps longer."""
    note: str = ""


class _Arm:
    """One set of settings in processes of its own, which wait between its turns."""

    def __init__(self, plan: Plan, data: DataSummary | None, ends_s: float, stack: ExitStack, *, own: bool) -> None:
        """`own`: the plan's, without which nothing can be compared."""
        self._probe = stack.enter_context(Probe(plan, data))
        self._ends_s, self._own, self._steps = ends_s, own, 0
        self._probe.begin_in_turns(ends_s)

    def load(self) -> None:
        self._wait(("ready",), 1)

    def take(self, steps: int) -> float:
        """Seconds of the next steps, those on the longest batch left out."""
        self._steps += steps
        self._probe.allow(self._steps)
        # The last step of an epoch is short: all do it, on the same rows.
        lines = self._wait(("step", "short"), self._steps - ON_THE_LONGEST)
        return sum(float(line["seconds"]) for line in lines[-steps:])

    def _wait(self, events: Sequence[str], count: int) -> list[dict[str, Any]]:
        """Raises TimeoutError, and RuntimeError or CannotRunError with the reason where the processes ended."""
        while True:
            # Asked first: what a process wrote before it ended is there then.
            problem = self._probe.problem
            found = [line for line in self._probe.look() if line.get("event") in events]
            if len(found) >= count:
                return found
            if problem and self._own:
                message = tr("The probe failed: {reason}", reason=problem)
                raise CannotRunError(Finding("probe_failed", "error", "bench", message))
            if problem:
                raise RuntimeError(problem)
            if time.monotonic() > self._ends_s:
                raise TimeoutError
            time.sleep(0.01)


def compare(plan: Plan, data: DataSummary | None, limit_s: float, listener: Callable[[str], None]) -> Iterator[Turns]:
    """Each alternative beside the plan's own in its share of the time. Raises CannotRunError where the own ones fail."""
    ends_s = time.monotonic() + limit_s - CLOSING_S
    found = alternatives_of(plan)
    left = sum(not one.note for one in found)
    for one in found:
        turns = Turns({one.key: one.value}, {one.key: one.base}, "not_measured", note=one.note)
        if not one.note:
            now_s = time.monotonic()
            turns = _measured(turns, _pairs(plan, data, one, now_s + (ends_s - now_s) / left), listener)
            left -= 1
        yield turns


def judged(turns: Turns, pairs: Sequence[tuple[float, float]]) -> Turns:
    """`pairs`: seconds of a step with the plan's own value and with the other one, turn by turn."""
    if not pairs:
        return turns
    gains = sorted(own / other for own, other in pairs)
    # Order statistics: between these two ranks lies the median with 95 %.
    rank = max(0, math.floor((len(gains) - 1.96 * math.sqrt(len(gains))) / 2) - 1)
    gain, low, high = statistics.median(gains), gains[rank], gains[-1 - rank]
    verdict: Verdict = "no_difference"
    if len(gains) < FEWEST_TURNS:
        verdict = "unclear"
    elif low > 1.0 and gain >= WORTH_IT:
        verdict = "faster"
    elif high < 1.0 and gain <= 1 / WORTH_IT:
        verdict = "slower"
    step_s = statistics.median(own for own, _ in pairs)
    return replace(turns, verdict=verdict, gain=gain, gain_low=low, gain_high=high, turns=len(gains), step_s=step_s)


def _measured(
    turns: Turns, pairs: Generator[tuple[float, float], None, None], listener: Callable[[str], None]
) -> Turns:
    changed = ", ".join(f"{key}={value}" for key, value in turns.changes.items())
    done: list[tuple[float, float]] = []
    listener(tr("first steps with {settings}", settings=changed))
    try:
        with closing(pairs):
            own_s, other_s = next(pairs)
            for pair in pairs:
                done.append(pair)
                turns = judged(turns, done)
                listener(
                    tr(
                        "round {turn} of at most {turns}: {settings}",
                        turn=len(done),
                        turns=MOST_TURNS,
                        settings=changed,
                    )
                )
                if len(done) > FEWEST_TURNS and (turns.gain_high or 0) <= CLEAR * (turns.gain_low or 0):
                    break
    except TimeoutError:
        turns = turns if done else replace(turns, note=tr("the time limit was reached"))
    except (RuntimeError, OSError) as error:
        return replace(turns, verdict="failed", note=str(error))
    return replace(turns, once_s=max(0.0, other_s - own_s)) if done and turns.changes.get("engine.compile") else turns


def _pairs(
    plan: Plan, data: DataSummary | None, one: Alternative, ends_s: float
) -> Generator[tuple[float, float], None, None]:
    """Seconds of the plan's own settings and of the other ones: of the first steps, then of a step in each turn."""
    plans, together, steps = (plan, with_value(plan, one)), _fit_together(plan, one), 1
    with ExitStack() as stack:
        arms = [_Arm(each, data, ends_s, stack, own=each is plan) for each in plans] if together else []
        for arm in arms:
            arm.load()
        warm = [arm.take(WARM_STEPS) for arm in arms]
        if together:
            yield warm[0], warm[1]
        for turn in range(MOST_TURNS):
            taken = [0.0, 0.0]
            for place in (0, 1) if turn % 2 == 0 else (1, 0):
                with ExitStack() as alone:
                    if not together:
                        arm = _Arm(plans[place], data, ends_s, alone, own=place == 0)
                        arm.load()
                        warm.append(arm.take(WARM_STEPS))
                    taken[place] = (arms[place] if together else arm).take(steps) / steps
            if not together and turn == 0:
                yield warm[0], warm[1]
            yield taken[0], taken[1]
            steps = max(1, round(TURN_S / max(taken[0], 1e-3)))


def _fit_together(plan: Plan, one: Alternative) -> bool:
    """Whether the memory holds two of them side by side; else each turn starts its own processes."""
    memory, grown = plan.memory, 1 + growth(plan, one)
    host = (memory.host_ram_high_bytes or memory.host_ram_bytes) * (grown if plan.config.engine.device == "cpu" else 2)
    fits = host <= KEPT_FREE * plan.machine.ram_available_bytes
    return fits and (
        memory.capacity_bytes is None or grown * memory.judged_high_bytes <= KEPT_FREE * memory.capacity_bytes
    )
