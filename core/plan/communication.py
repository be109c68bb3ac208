"""Settles how several processes talk to each other: the environment variables of a run, and how long it waits."""

from __future__ import annotations

from trainwiz.core.catalog.variables import load_variable_rules
from trainwiz.core.config.keys import ENVIRONMENT
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.language import tr
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.draft import Draft
from trainwiz.core.plan.situation import situation_of, situation_words

DEFAULT_TIMEOUT_S = 1800
"""What transformers gives every process group."""


def settle_communication(draft: Draft, machine: Machine, devices: Devices, step_high_s: float | None) -> None:
    """The variables of the rules that hold here, and how long a process waits for the others."""
    if devices.world_size > 1:
        _timeout(draft, step_high_s)
    _variables(draft, machine, devices)


def _variables(draft: Draft, machine: Machine, devices: Devices) -> None:
    """Set what nobody chose; of two rules for one variable the first that holds."""
    config = draft.view()
    situation = situation_of(machine, devices, config)
    words = situation_words(machine, devices, config)
    done = set(draft.config.engine.environment)
    for rule in load_variable_rules().choices:
        if rule.variable in done or not situation.holds(rule.when):
            continue
        done.add(rule.variable)
        draft.put(f"{ENVIRONMENT}.{rule.variable}", rule.value.format(**words), tr(rule.text, **words))


def _timeout(draft: Draft, step_high_s: float | None) -> None:
    """Longer than a step may last: a process that runs ahead waits for the slowest at its end."""
    longest = 3 * (step_high_s or 0.0)
    if longest <= DEFAULT_TIMEOUT_S:
        draft.settle(
            "engine.process_timeout_s", DEFAULT_TIMEOUT_S, tr("half an hour: a save or an evaluation may take long")
        )
        return
    rounded = -(-int(longest) // 600) * 600
    draft.settle(
        "engine.process_timeout_s",
        rounded,
        tr("a step may take {step_high_s} s; three of them", step_high_s=f"{step_high_s:,.0f}"),
    )
