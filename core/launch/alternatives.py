"""The alternatives of a plan, measured against its own in alternating turns."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal

from trainwiz.core.data.lengths import packs_rows
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.errors import CannotRunError
from trainwiz.core.export.training_arguments import uses_deepspeed
from trainwiz.core.language import tr
from trainwiz.core.launch.probe import Probe
from trainwiz.core.plan.result import Plan

# Which other values of a plan's settings are worth a measurement here, and which are not, with the reason.

TORCH_ADAMW = ("adamw_torch", "adamw_torch_fused")

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


def alternatives_of(plan: Plan) -> tuple[Turns, ...]:
    """What this machine may run, the quickest to measure first; what has a note is not measured.

    All need about as much memory as the plan. eager attention computes the same as the others with more, and is what
    models have that know no other.
    """
    engine, has = plan.config.engine, plan.machine.libraries.has
    others = list[tuple[str, Any]]()
    if engine.attention != "sdpa":
        others.append(("engine.attention", "sdpa"))
    elif engine.device == "cuda" and engine.precision not in ("fp32", "tf32") and has("flash_attn"):
        others.append(("engine.attention", "flash_attention_2"))
    # CPUs differ in whether they have products in bf16.
    if engine.device == "cpu" and engine.precision in ("fp32", "bf16") and not uses_deepspeed(plan.config):
        others.append(("engine.precision", "bf16" if engine.precision == "fp32" else "fp32"))
    # DeepSpeed has its own AdamW.
    if engine.optimizer in TORCH_ADAMW and engine.offload == "none" and not uses_deepspeed(plan.config):
        others.append(("engine.optimizer", TORCH_ADAMW[1 - TORCH_ADAMW.index(engine.optimizer)]))
    if not packs_rows(plan.config) and (engine.device != "cuda" or has("triton")):
        others.append(("engine.compile", not engine.compile))
    found = []
    for key, value in others:
        base = plan.config.value(key)
        chosen = tr("you chose {value}", value=base) if plan.config.origin(key).origin == "you" else ""
        found.append(Turns({key: value}, {key: base}, "not_measured", note=chosen))
    return tuple(found)


# A plan's settings and their alternatives, measured in alternating turns in processes of their own.

LONGEST_S = 240.0
MOST_TURNS, FEWEST_TURNS = 20, 5
"""Of each; fewer have a range that says little."""
TURN_S = 0.7
"""A turn has as many steps as this takes: other programs come and go within seconds, so turns are short."""
WARM_STEPS = 4
"""Two on the longest batch and two usual ones: torch.compile compiles at the first of each length."""
WORTH_IT = 1.03
"""Pace over pace that two processes of the very same settings hardly differ by: an assumption."""
KEPT_FREE = 0.8
"""Share of the memory that two processes side by side may need."""


def compare(plan: Plan, data: DataSummary | None, limit_s: float, listener: Callable[[str], None]) -> Iterator[Turns]:
    """Each alternative beside the plan's own in its share of the time. Raises CannotRunError where the own ones fail."""
    ends_s = time.monotonic() + limit_s
    found = alternatives_of(plan)
    left = sum(not turns.note for turns in found)
    for turns in found:
        if turns.note:
            yield turns
            continue
        yield _measured(turns, plan, data, (ends_s - time.monotonic()) / left, listener)
        left -= 1


def judged(turns: Turns, pairs: Sequence[tuple[float, float]]) -> Turns:
    """`pairs`: seconds of a step with the plan's own value and with the other one, turn by turn."""
    if not pairs:
        return replace(turns, note=tr("the time limit was reached"))
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
    turns: Turns, plan: Plan, data: DataSummary | None, limit_s: float, listener: Callable[[str], None]
) -> Turns:
    """What a step takes with the plan's own settings and with the other ones, in each turn."""
    listener(tr("measuring {settings}", settings=f"{turns.key}={turns.changes[turns.key]}"))
    plans = {"own": plan, "other": replace(plan, config=plan.config.with_values(turns.changes, "solved", {}))}
    together, ends_s, steps = _fit_together(plan), time.monotonic() + limit_s, 1
    arm, probes, warm_s, pairs = "own", dict[str, Probe](), dict[str, float](), list[tuple[float, float]]()
    try:
        with ExitStack() as held:
            for turn in range(MOST_TURNS):
                step_s = {}
                for arm in plans if turn % 2 == 0 else reversed(plans):
                    if arm not in probes:
                        probe = Probe(plans[arm], data, ends_s - time.monotonic(), in_turns=True)
                        probes[arm] = held.enter_context(probe)
                        warm_s.setdefault(arm, probe.take(WARM_STEPS))
                    step_s[arm] = probes[arm].take(steps) / steps
                    if not together:
                        held.close()
                        probes.clear()
                pairs.append((step_s["own"], step_s["other"]))
                steps = max(1, round(TURN_S / max(step_s["own"], 1e-3)))
    except TimeoutError:
        pass  # The turns so far count.
    except CannotRunError as error:
        if arm == "own":
            raise
        return replace(turns, verdict="failed", note=error.findings[0].message)
    found = judged(turns, pairs)
    if pairs and turns.changes.get("engine.compile"):
        return replace(found, once_s=max(0.0, warm_s["other"] - warm_s["own"]))
    return found


def _fit_together(plan: Plan) -> bool:
    """Whether the memory holds two of them side by side; else each turn starts its own processes."""
    memory = plan.memory
    host_bytes = memory.host_ram_high_bytes or memory.host_ram_bytes
    if 2 * host_bytes > KEPT_FREE * plan.machine.ram_available_bytes:
        return False
    return memory.capacity_bytes is None or 2 * memory.judged_high_bytes <= KEPT_FREE * memory.capacity_bytes
