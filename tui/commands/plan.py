"""`trainwiz plan`: the preview alone, as text or as JSON, writes nothing; and the few lines before a start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from trainwiz.core.config import OriginKind
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import sort_findings
from trainwiz.core.history.measurement import load
from trainwiz.core.history.rates import kept_rates
from trainwiz.core.language import mark, tr
from trainwiz.core.plan.gather import Gathered, gather
from trainwiz.core.plan.refine import Refiner, RefineTier
from trainwiz.core.plan.result import Choice, Plan
from trainwiz.core.text import plain_text
from trainwiz.tui.choices import parse_choices
from trainwiz.tui.commands.profiles import say_table, value_words
from trainwiz.tui.options import wanted_tier
from trainwiz.tui.output import Row, Waiting, paint, say, say_findings, say_json, say_rows, under
from trainwiz.tui.plan_words import (
    batch_lines,
    finish_words,
    memory_lines,
    memory_title,
    method_words,
    of_capacity,
    time_lines,
    trained_words,
    unknown_time_words,
)
from trainwiz.tui.text import count, duration_range, gib, short_count

# What a run would be, one subject a line: the numbers of `trainwiz plan`.

VERDICTS: dict[str, tuple[str, str, str]] = {
    "fits": ("✓", mark("fits"), "good"),
    "tight": ("!", mark("tight"), "warning"),
    "does_not_fit": ("✗", mark("does not fit"), "error"),
}
TIME_WORDS: dict[str, str] = {
    "implausible": mark("! implausible"),
    "impossible": mark("✗ impossible"),
    "idle": mark("! GPU mostly idle"),
}


def plan_rows(plan: Plan) -> list[Row]:
    """What is shown before a start: of each subject its first line."""
    return [row for row in number_rows(plan, datetime.now()) if row[0]]


def model_text(plan: Plan) -> str:
    """ "esm2-tiny (0.9M)", "mistral-7b (7.3B, 42.0M of them trained)"."""
    model = plan.model
    if not model.parameters:
        return plain_text(model.name, 60)
    trained = trained_words(model.parameters, model.trainable_parameters)
    return f"{plain_text(model.name, 60)} ({', '.join(filter(None, (short_count(model.parameters), trained)))})"


def data_text(plan: Plan) -> str:
    if any(finding.code == "no_data_named" for finding in plan.findings):
        return tr("no dataset specified")
    sources = plan.config.data.sources
    name = plain_text(Path(sources[0].name).name or sources[0].name, 40)
    if len(sources) > 1:
        name = tr("{name} and {count} more", name=name, count=len(sources) - 1)
    if plan.data is None:
        return name
    return tr("{rows} rows of {name}", rows=count(plan.data.rows), name=name)


def memory_text(plan: Plan) -> str:
    """ "needs 5.1 of 9.6 GiB on GPU 0 · RTX 3080 10GB   ✓ fits"."""
    memory = plan.memory
    if memory.verdict is None and memory.allocated_bytes == 0:
        return tr("unknown (the model size is unknown)")
    amount, capacity = gib(memory.judged_bytes), memory.capacity_bytes
    device = tr("this machine") if memory.device == "host RAM" else plain_text(memory.device)
    if capacity is not None and memory.judged_bytes > capacity:
        said = tr("needs {needed} GiB, {device} has {total} GiB", needed=amount, device=device, total=gib(capacity))
    else:
        if capacity is not None:
            amount = tr("{amount} of {whole}", amount=amount, whole=gib(capacity))
        said = tr("needs {amount} GiB on {device}", amount=amount, device=device)
    return f"{said}   {verdict(plan)}".rstrip()


def verdict(plan: Plan) -> str:
    if plan.memory.verdict is None:
        return ""
    sign, word, style = VERDICTS[plan.memory.verdict]
    return paint(f"{sign} {tr(word)}", style)


def time_text(plan: Plan) -> str:
    """ "40 to 70 s"; a word where it cannot be."""
    if plan.time.total_low_s is None or plan.time.total_high_s is None:
        return unknown_time_words(plan)
    word = TIME_WORDS.get(plan.time.verdict or "")
    return duration_range(plan.time.total_low_s, plan.time.total_high_s) + (f"   {tr(word)}" if word else "")


def number_rows(plan: Plan, now: datetime) -> Iterator[Row]:
    """`now` is when the run would start."""
    memory = plan.memory
    yield tr("Profile"), plain_text(plan.profile or tr("none"))
    yield tr("Machine"), machine_text(plan)
    yield tr("Plan"), f"{model_text(plan)} · {data_text(plan)}"
    yield tr("Method"), method_words(plan)
    yield from under(tr("Batch"), *batch_lines(plan))
    yield from under(memory_title(memory.device), memory_text(plan), *memory_lines(plan))
    yield tr("RAM"), of_disk(memory.host_ram_bytes, memory.host_ram_capacity_bytes)
    yield tr("Disk"), of_disk(memory.disk_bytes, memory.disk_capacity_bytes)
    done = finish_words(plan.time, now)
    yield from under(tr("Time"), "   ".join(filter(None, (time_text(plan), done))), *time_lines(plan))


def machine_text(plan: Plan) -> str:
    machine = plan.machine
    words = plain_text(machine.description)
    nodes = plan.config.engine.nodes
    if nodes > 1:
        words = tr("{n} nodes, each with {machine}", n=nodes, machine=words)
    return tr("{machine} (not this machine)", machine=words) if machine.hypothetical else words


def of_disk(needed: int, capacity: int | None) -> str:
    amount = of_capacity(needed, capacity)
    if capacity is None:
        return amount
    verdict = (tr("✓ fits"), "good") if needed <= capacity else (tr("✗ not enough"), "error")
    return f"{amount}   {paint(*verdict)}"


ORIGIN_WORDS: dict[OriginKind, str] = {
    "detected": mark("detected"),
    "profile": mark("profile"),
    "you": mark("you"),
    "solved": mark("auto"),
}
LIMIT_S = 120.0
"""For all traces of one plan; each is killed at 60 s."""


def run_plan(values: Mapping[str, Any], *, verbose: bool) -> None:
    """`values` are the choices as they were typed. Errors in the plan are shown and are not an exit code."""
    choices = parse_choices(values)
    plan = best_plan(choices.request, wanted_tier(choices.tier, "full"))
    if choices.json:
        say_json(plan.to_json())
        return
    say_rows(number_rows(plan, datetime.now()))
    # All settings, or those that were not simply given by the profile.
    shown = [choice for choice in plan.choices if verbose or choice.origin in ("detected", "solved", "you")]
    if shown:
        say()
        say(tr("Choices"))
        say_table([_choice_cells(choice) for choice in shown], head=False)
    if shown and len(shown) < len(plan.choices):
        say("  " + tr("{n} more from the profile: --verbose", n=len(plan.choices) - len(shown)))
    findings = sort_findings(plan.findings)
    if findings:
        say()
        say_findings(findings)


def _choice_cells(choice: Choice) -> list[str]:
    value = plain_text(value_words(choice.value), 40)
    return [f"  {choice.key}", value, tr(ORIGIN_WORDS[choice.origin]), tr(choice.reason)]


def best_plan(request: PlanRequest, tier: RefineTier) -> Plan:
    """Ctrl-C takes the estimate by formulas, once machine, model and data are read."""
    with refining(tier) as refiner:
        with Waiting(tr("reading machine, model and data")):
            gathered = gather(request)
        try:
            return improved(refiner, gathered, tier, limit_s=LIMIT_S)
        except KeyboardInterrupt:
            return refiner.plan(gathered)


# Plans with better figures: a tracer of their own, and what the terminal says meanwhile.


@contextmanager
def refining(tier: RefineTier) -> Iterator[Refiner]:
    """A Refiner with the measurements of this machine, and, for a tier above "analytic", a tracer of its own.

    The tracer starts at once, so that it loads while the machine and the data are read; it is gone at the end.
    """
    if tier == "analytic":
        yield Refiner(None, load, kept_rates)
        return
    from trainwiz.core.tracing.worker import TraceWorker

    worker = TraceWorker()
    try:
        worker.start()
        yield Refiner(worker, load, kept_rates)
    finally:
        worker.close()


def improved(refiner: Refiner, gathered: Gathered, tier: RefineTier, *, limit_s: float | None = None) -> Plan:
    """The best plan of `tier`; says on the terminal what is under way. `limit_s` ends it with what there is."""
    with Waiting(tr("estimating")) as waiting:
        return refiner.improve(
            gathered, lambda plan: waiting.say(plan.memory.waiting or tr("estimating")), tier, limit_s=limit_s
        )
