"""The CUDA context of a card: guessed, stated, or measured there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainwiz.core.estimate.memory import estimate_memory
from trainwiz.core.estimate.peak import CONTEXT_BYTES, CONTEXT_SPREAD_BYTES, KNOWN_CONTEXT_SPREAD_BYTES
from trainwiz.core.estimate.traced import Evidence, with_measured_context
from trainwiz.core.history.measurement import Measurement

from tests.core.estimate.test_peak import GIB, esm650
from tests.core.history.measurements import measurement_of
from tests.core.plan.machines import config, machine, plan
from tests.each import each

MIB = 2**20
WORK = esm650(precision="bf16")
STATED = replace(WORK, context_bytes=1343 * MIB, context_source="as stated")


def on_card(used: int | None, reserved: int | None = 4 * GIB, **changes: Any) -> Measurement:
    """Of other work on the same card."""
    found = measurement_of(replace(WORK, micro_batch=1), device_used_bytes=used, peak_reserved_bytes=reserved)
    return replace(found, **changes)


def test_a_stated_context_moves_what_nvidia_smi_shows_and_narrows_the_interval() -> None:
    usual, stated = estimate_memory(WORK), estimate_memory(STATED)
    more, surer = 1343 * MIB - CONTEXT_BYTES, CONTEXT_SPREAD_BYTES - KNOWN_CONTEXT_SPREAD_BYTES
    assert surer > 0
    assert stated.allocated_bytes == usual.allocated_bytes
    assert estimate_memory(replace(STATED, device="cpu")) == estimate_memory(replace(WORK, device="cpu"))
    assert stated.device_used_bytes == usual.device_used_bytes + more
    assert stated.low_bytes == usual.low_bytes + more + surer
    assert stated.high_bytes == usual.high_bytes + more - surer
    assert stated.needed_bytes == usual.needed_bytes + more
    assert stated.breakdown["context"] == 1343 * MIB
    assert stated.basis == "formulas; CUDA context as stated"


def test_what_another_run_measured_on_the_card_is_taken() -> None:
    newest, older = on_card(4 * GIB + 700 * MIB), on_card(5 * GIB)
    estimate = estimate_memory(WORK, Evidence(measurements=(newest, older)))
    assert estimate.breakdown["context"] == 700 * MIB
    assert estimate.basis == "formulas; CUDA context measured on this machine, 2026-11-21"


@each(
    "useless",
    [on_card(None), on_card(4 * GIB, None), on_card(3 * GIB), on_card(40 * GIB), on_card(5 * GIB, world_size=2)],
)
def test_figures_that_tell_no_context_are_passed_over(useless: Measurement) -> None:
    assert with_measured_context(WORK, (useless,)) is WORK
    assert with_measured_context(STATED, (on_card(5 * GIB),)) is STATED, "what is stated goes before"
    assert with_measured_context(WORK, (useless, on_card(4 * GIB + 600 * MIB))).context_bytes == 600 * MIB


def test_a_plan_follows_the_setting() -> None:
    asked = config("esm2-650m", batch__micro_batch_size=2, training__max_steps=10, planning__context_bytes="1343M")
    made = plan(machine("RTX 3090"), asked)
    assert made.memory.breakdown["context"] == 1343 * MIB and made.memory.basis.endswith("context as stated")
    choice = next(one for one in made.choices if one.key == "planning.context_bytes")
    assert (choice.value, choice.origin) == (1343 * MIB, "you")
