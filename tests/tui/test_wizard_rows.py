"""What a row says of its value, and what a plan is judged by beside a remedy: pure functions of the state."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.telemetry.gpu import GpuHolder, GpuLoad
from trainwiz.tui.plan_keys import PLAN_KEYS
from trainwiz.tui.screens.plan_command import help_parts
from trainwiz.tui.screens.plan_fields import FIELD_BY_ID, FIELDS
from trainwiz.tui.screens.plan_maker import Effect, numbered_remedies
from trainwiz.tui.screens.plan_state import PlanState, Reading, start_obstacle
from trainwiz.tui.screens.plan_views import field_view
from trainwiz.tui.theme import UNICODE_MARKS
from trainwiz.tui.widgets.field_row import FieldView
from trainwiz.tui.widgets.gpu_choice import RowView, row_lines

from tests.tui.wizard_parts import MACHINE, MISSING, make_frozen_plan


def state_of(**overrides: object) -> PlanState:
    values = {key.replace("__", "."): value for key, value in overrides.items()}
    request = PlanRequest(profile="2080super", overrides=values)
    return PlanState(request, reading=Reading(plan=make_frozen_plan(request)), updating=False)


def row(field_id: str, **overrides: object) -> FieldView:
    return field_view(state_of(**overrides), FIELD_BY_ID[field_id], UNICODE_MARKS)


@pytest.mark.parametrize(
    ("field_id", "origin", "reason"),
    [
        ("precision", "detected", "the card has sm 7.5, bf16 needs 8.0"),
        ("micro_batch", "solved", "the largest that fits"),
        ("steps", "profile", ""),
        # Nobody chose it: "default" is its origin, and no reason too.
        ("weight_decay", "default", ""),
    ],
)
def test_a_row_says_who_chose_its_value_and_why(field_id: str, origin: str, reason: str) -> None:
    view = row(field_id)
    assert (view.origin, view.reason, view.changed) == (origin, reason, False)


def test_what_the_user_chose_is_marked_and_has_no_reason_but_that() -> None:
    view = row("precision", engine__precision="fp32")
    assert (view.value, view.origin, view.reason, view.changed) == ("fp32", "you", "", True)
    # The plan that is still on the screen was made before the choice.
    late = PlanState(
        PlanRequest(profile="2080super", overrides={"engine.precision": "fp32"}),
        reading=Reading(plan=make_frozen_plan(PlanRequest(profile="2080super"))),
    )
    view = field_view(late, FIELD_BY_ID["precision"], UNICODE_MARKS)
    assert (view.origin, view.reason, view.changed) == ("you", "", True)


def test_the_help_of_every_field_says_all_four_things() -> None:
    for spec in FIELDS:
        title, parts = help_parts(state_of(), spec, ())
        said = dict(parts)
        assert title == spec.label
        wanted = (said["What"], said["Why"], said["Safe choice"])
        assert wanted == (spec.what, spec.why, spec.safe) and all(wanted), spec.id
        assert said.get("What it costs", "") == spec.cost, spec.id


def test_the_help_says_who_chose_the_present_value_and_why() -> None:
    parts = dict(help_parts(state_of(), FIELD_BY_ID["precision"], ())[1])
    assert parts["Now"] == "fp16 (detected: the card has sm 7.5, bf16 needs 8.0)"
    assert parts["Command-line equivalent"] == "--set engine.precision=..."
    parts = dict(help_parts(state_of(engine__precision="fp32"), FIELD_BY_ID["precision"], ())[1])
    assert parts["Now"] == "fp32 (you)"


def test_a_plan_is_judged_by_its_peak_and_by_both_ends_of_its_time() -> None:
    plan = make_frozen_plan(PlanRequest())
    effect = Effect.of(plan)
    assert effect.memory_bytes == plan.memory.device_used_bytes
    assert (effect.verdict, effect.tier) == (plan.memory.verdict, plan.memory.tier)
    assert (effect.total_low_s, effect.total_high_s) == (plan.time.total_low_s, plan.time.total_high_s)
    assert plan.time.total_low_s != plan.time.total_high_s


@pytest.mark.parametrize(("holders", "said"), [(1, "held by p0 (100)"), (3, "p2 (102)"), (5, "p2 (102) and 2 more")])
def test_three_who_hold_a_card_are_named_and_the_others_counted(holders: int, said: str) -> None:
    gpu = MACHINE.gpus[0]
    load = GpuLoad(gpu.index, gpu.uuid, holders=tuple(GpuHolder(100 + n, f"p{n}", None) for n in range(holders)))
    lines = row_lines(RowView(gpu, load), 100, UNICODE_MARKS, focused=False, roomy=True)
    assert lines[1].plain.strip().endswith(said)


def test_as_many_remedies_have_a_number_as_there_are_digits() -> None:
    remedies = tuple(Remedy(f"remedy {n}", changes={"training.seed": n}) for n in range(12))
    by_hand = Remedy("nothing that a key could do")
    findings = (Finding("one", "note", "", "", (by_hand, *remedies[:5])), Finding("two", "note", "", "", remedies[5:]))
    digits = [key.key for key in PLAN_KEYS if key.id.startswith("plan.remedy_")]
    assert digits == list("123456789")
    assert numbered_remedies(findings) == list(remedies[: len(digits)])


@pytest.mark.parametrize(
    ("kind", "force", "hinders"),
    [("start", False, True), ("detached", False, True), ("write", False, False), ("start", True, False)],
)
def test_an_error_hinders_a_start_that_is_not_forced_and_no_writing(kind: str, force: bool, hinders: bool) -> None:
    request = PlanRequest(profile="2080super", force=force)
    reading = Reading(plan=make_frozen_plan(request, (replace(MISSING, severity="error"),)))
    state = PlanState(request, reading=reading, updating=False)
    assert start_obstacle(state, kind) == (MISSING.message if hinders else "")
