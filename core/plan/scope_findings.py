"""What RunConfig can say and this version cannot train yet: refused in the plan, never ignored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwiz.core.findings import Finding
from trainwiz.core.plan.facts import Facts

TRAINABLE_TASKS = ("masked-lm",)
STRATEGIES_TO_COME = ("fsdp", "zero3")
REPORTERS = ("tensorboard", "none")


def scope_findings(facts: Facts) -> list[Finding]:
    return list(_findings(facts))


def _findings(facts: Facts) -> Iterator[Finding]:
    config = facts.config
    if config.task not in TRAINABLE_TASKS:
        message = f"This version trains {', '.join(TRAINABLE_TASKS)} models; {config.task} can be planned, not started."
        yield _error("task_not_supported", "task", message)
    if config.peft.method != "none":
        message = f"This version trains all weights; {config.peft.method} adapters can be planned, not started."
        yield _error("peft_not_supported", "peft.method", message, facts, {"peft.method": "none"}, "train all weights")
    if config.engine.strategy in STRATEGIES_TO_COME:
        message = f"This version cannot start engine.strategy {config.engine.strategy}; zero2 shards as well."
        remedy: dict[str, Any] = {"engine.strategy": "zero2"}
        yield _error("strategy_not_supported", "engine.strategy", message, facts, remedy, "shard with ZeRO-2")
    if config.engine.nodes > 1:
        message = f"This version starts runs on one machine; engine.nodes is {config.engine.nodes}."
        yield _error("nodes_not_supported", "engine.nodes", message, facts, {"engine.nodes": 1}, "use this machine")
    if config.mode.trace_steps is not None:
        yield _error("trace_not_supported", "mode.trace_steps", "This version writes no profiler traces yet.")
    if config.logging.memory_every_steps is not None:
        message = "This version writes memory with every logged step; leave logging.memory_every_steps out."
        changes = {"logging.memory_every_steps": None}
        yield _error("memory_log_not_supported", "logging.memory_every_steps", message, facts, changes, "leave it out")
    if config.engine.gpus and facts.devices.device == "cpu":
        wanted = ", ".join(config.engine.gpus)
        message = f"GPU {wanted} is asked for (engine.gpus), and this run would compute on the CPU."
        yield _error("missing_hardware", "engine.gpus", message, facts, {"engine.gpus": None}, "use the CPU")
    others = [name for name in config.logging.report_to if name not in REPORTERS]
    if others:
        message = f"This version reports to {' or '.join(REPORTERS)}, not to {', '.join(others)} (logging.report_to)."
        fallback = {"logging.report_to": ["tensorboard"]}
        yield _error("reporter_not_supported", "logging.report_to", message, facts, fallback, "report to TensorBoard")


def _error(
    code: str,
    where: str,
    message: str,
    facts: Facts | None = None,
    changes: dict[str, Any] | None = None,
    instead: str = "",
) -> Finding:
    remedies = (facts.remedy(instead, changes),) if facts is not None and changes is not None else ()
    return Finding(code, "error", where, message, remedies)
