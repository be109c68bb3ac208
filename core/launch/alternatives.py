"""The alternatives of a plan, measured against its own in alternating turns."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any, Literal

from trainwiz.core.data.lengths import packs_rows
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.errors import CannotRunError, Finding
from trainwiz.core.estimate.memory import estimate_memory
from trainwiz.core.export.training_arguments import uses_deepspeed
from trainwiz.core.language import mark, tr
from trainwiz.core.launch.probe import Probe
from trainwiz.core.launch.probe_order import ON_THE_LONGEST
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.words import gib

# Which other values of a plan's settings are worth a measurement here, and which are not, with the reason.

TORCH_ADAMW = ("adamw_torch", "adamw_torch_fused")
MOST_OF_RAM = 0.9
"""Of what is free now."""


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
    """Why it is not measured, or what ended it."""

    @property
    def key(self) -> str:
        return next(iter(self.changes))


def alternatives_of(plan: Plan) -> Iterator[Turns]:
    """The quickest to measure come first; what has a note is not measured."""
    for name, value, why_not in _others(plan):
        key = f"engine.{name}"
        turns = Turns({key: value}, {key: plan.config.value(key)}, "not_measured")
        if plan.config.origin(key).origin == "you":
            why_not = tr("you chose {value}", value=turns.base[key])
        yield replace(turns, note=why_not or _beyond_ram(plan, turns))


def _others(plan: Plan) -> Iterator[tuple[str, Any, str]]:
    """Setting, its other value, why that cannot be. What this machine cannot run fails at its first step, and says why."""
    engine = plan.config.engine
    packed = tr("not supported with packed rows (data.packing)") if packs_rows(plan.config) else ""
    on_gpu, in_half, has = engine.device == "cuda", engine.precision not in ("fp32", "tf32"), plan.machine.libraries.has
    attentions = {"sdpa": "", "eager": packed}
    if on_gpu and in_half:
        attentions["flash_attention_2"] = "" if has("flash_attn") else tr("flash-attn is not installed")
    yield from (("attention", value, why_not) for value, why_not in attentions.items() if value != engine.attention)
    if not uses_deepspeed(plan.config):
        # DeepSpeed has its own AdamW, and computes in fp32 on a CPU.
        if engine.optimizer in TORCH_ADAMW and engine.offload == "none":
            yield "optimizer", TORCH_ADAMW[1 - TORCH_ADAMW.index(engine.optimizer)], ""
        if engine.device == "cpu" and engine.precision in ("fp32", "bf16"):
            yield "precision", "fp32" if in_half else "bf16", ""
    without_triton = tr("Triton is not installed") if on_gpu and not has("triton") else ""
    yield "compile", not engine.compile, packed or without_triton


def with_value(plan: Plan, one: Turns) -> Plan:
    """The plan with another value of a setting that leaves batch, lengths and rows as they are."""
    name = one.key.removeprefix("engine.")
    work = plan.work
    if work is not None and name in ("precision", "attention", "optimizer"):
        work = replace(work, **{name: one.changes[one.key]})
    return replace(plan, config=plan.config.with_values(one.changes, "solved", {}), work=work)


def growth(plan: Plan, one: Turns) -> float:
    """Its memory over that of the plan's own settings, by formulas; at least 1."""
    changed = with_value(plan, one).work
    if plan.work is None or changed is None:
        return 1.0
    return max(1.0, estimate_memory(changed).needed_bytes / max(1, estimate_memory(plan.work).needed_bytes))


def _beyond_ram(plan: Plan, one: Turns) -> str:
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
KEPT_FREE = 0.8
"""Share of the memory that two processes side by side may need."""


class _Arm:
    """One set of settings in processes of its own, which wait between its turns."""

    def __init__(self, plan: Plan, data: DataSummary | None, ends_s: float, *, own: bool = False) -> None:
        """`own`: the plan's, without which nothing can be compared."""
        self._plan, self._data, self._ends_s, self._own = plan, data, ends_s, own
        self._stack, self._steps = ExitStack(), 0
        self._probe: Probe | None = None
        self.warm_s: float | None = None
        """Seconds of the first steps of all."""

    def take(self, steps: int) -> float:
        """Seconds of the next steps, those on the longest batch left out; where no process waits, some are started and
        warmed up first. Raises TimeoutError, and RuntimeError or CannotRunError with the reason where the processes ended."""
        if self._probe is None:
            left_s = self._ends_s - time.monotonic()
            self._probe = self._stack.enter_context(Probe(self._plan, self._data, left_s, in_turns=True))
            warm_s = self.take(WARM_STEPS)
            self.warm_s = warm_s if self.warm_s is None else self.warm_s
        self._steps += steps
        self._probe.allow(self._steps)
        while True:
            # Asked first: what a process wrote before it ended is there then.
            problem = self._probe.problem
            # The last step of an epoch is short: all do it, on the same rows.
            done = [float(line["seconds"]) for line in self._probe.look() if line.get("event") in ("step", "short")]
            if len(done) >= self._steps - ON_THE_LONGEST:
                return sum(done[-steps:])
            if problem and self._own:
                message = tr("The probe failed: {reason}", reason=problem)
                raise CannotRunError(Finding("probe_failed", "error", "bench", message))
            if problem:
                raise RuntimeError(problem)
            if time.monotonic() > self._ends_s:
                raise TimeoutError
            time.sleep(0.01)

    def close(self) -> None:
        """Ends the processes."""
        self._stack.close()
        self._probe, self._steps = None, 0


def compare(plan: Plan, data: DataSummary | None, limit_s: float, listener: Callable[[str], None]) -> Iterator[Turns]:
    """Each alternative beside the plan's own in its share of the time. Raises CannotRunError where the own ones fail."""
    ends_s = time.monotonic() + limit_s - CLOSING_S
    found = tuple(alternatives_of(plan))
    left = sum(not one.note for one in found)
    for turns in found:
        if turns.note:
            yield turns
            continue
        now_s = time.monotonic()
        yield _measured(turns, plan, data, now_s + (ends_s - now_s) / left, listener)
        left -= 1


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
    turns: Turns, plan: Plan, data: DataSummary | None, ends_s: float, listener: Callable[[str], None]
) -> Turns:
    """What a step takes with the plan's own settings and with the other ones, in each turn."""
    changed = ", ".join(f"{key}={value}" for key, value in turns.changes.items())
    pairs: list[tuple[float, float]] = []
    together, steps = _fit_together(plan, turns), 1
    own, other = _Arm(plan, data, ends_s, own=True), _Arm(with_value(plan, turns), data, ends_s)
    listener(tr("first steps with {settings}", settings=changed))
    try:
        with closing(own), closing(other):
            while len(pairs) < MOST_TURNS:
                step_s = {}
                for arm in (own, other) if len(pairs) % 2 == 0 else (other, own):
                    step_s[arm] = arm.take(steps) / steps
                    if not together:
                        arm.close()
                pairs.append((step_s[own], step_s[other]))
                turns, steps = judged(turns, pairs), max(1, round(TURN_S / max(step_s[own], 1e-3)))
                words = mark("round {turn} of at most {turns}: {settings}")
                listener(tr(words, turn=len(pairs), turns=MOST_TURNS, settings=changed))
    except TimeoutError:
        turns = turns if pairs else replace(turns, note=tr("the time limit was reached"))
    except (RuntimeError, OSError) as error:
        return replace(turns, verdict="failed", note=str(error))
    if not pairs or not turns.changes.get("engine.compile"):
        return turns
    return replace(turns, once_s=max(0.0, (other.warm_s or 0.0) - (own.warm_s or 0.0)))


def _fit_together(plan: Plan, one: Turns) -> bool:
    """Whether the memory holds two of them side by side; else each turn starts its own processes."""
    memory, grown = plan.memory, 1 + growth(plan, one)
    host = (memory.host_ram_high_bytes or memory.host_ram_bytes) * (grown if plan.config.engine.device == "cpu" else 2)
    fits = host <= KEPT_FREE * plan.machine.ram_available_bytes
    return fits and (
        memory.capacity_bytes is None or grown * memory.judged_high_bytes <= KEPT_FREE * memory.capacity_bytes
    )
