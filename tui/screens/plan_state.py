"""PlanState: everything the wizard knows, as one frozen value, and the functions that give the next one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from trainwiz.core.config.request import PlanRequest
from trainwiz.core.defaults import DEFAULT_PROFILE
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.language import language, mark, tr
from trainwiz.tui.screens.plan_fields import (
    GOAL,
    NAME,
    OUTPUT_DIR,
    PROFILE,
    STEPS,
    Setting,
    on_screen,
)
from trainwiz.tui.screens.plan_machine import is_machine_changed, is_of_the_machine, names_another, with_machine

if TYPE_CHECKING:
    from trainwiz.core.catalog.model_config import ModelSpec
    from trainwiz.core.catalog.models import ModelFacts
    from trainwiz.core.data.summary import DataSummary, Glance
    from trainwiz.core.hardware import Machine
    from trainwiz.core.plan.result import Plan

OWN = (PROFILE, OUTPUT_DIR, NAME)
"""Fields that are values of the request itself, and no key of a RunConfig."""
SOURCES = "data.sources"
FIRST_SOURCE = "data.sources.0."
INIT = "model.init"
INIT_OF_GOAL = {"fine-tune": "pretrained", "pretrain": "scratch"}
OF_THE_DEMO = {"model.name": "esm2-tiny", f"{FIRST_SOURCE}name": "sample-proteins"}
"""What the demo trains; with another model or other data it is the demo no more, and nothing of it stays."""


FILES_FOLLOW = mark("writing the files")
"""What a reading waits for whose figures are complete."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One entry of a list to choose from."""

    value: str
    label: str = ""
    note: str = ""
    before: str = ""
    """What stands before the note, and is not searched."""
    weights: str = ""
    """Of a model: "here", "published", or empty where there are none to begin from."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a worker read from the world for one request. What is not read yet is None."""

    machine: Machine | None = None
    model: ModelSpec | None = None
    model_facts: ModelFacts | None = None
    data: DataSummary | None = None
    glance: Glance | None = None
    """The first rows as their file has them, also where no summary of it can be made."""
    plan: Plan | None = None
    profiles: tuple[Offer, ...] = ()
    models: tuple[Offer, ...] = ()
    samples: tuple[Offer, ...] = ()
    cards: tuple[Offer, ...] = ()
    """The GPU catalogue, to plan for another machine."""
    profile_values: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Key path -> what the profile of the request says."""
    files: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """File name -> text, as a start would write them."""
    folder: str = ""
    findings: tuple[Finding, ...] = ()
    """Why there is no plan for the request; empty when there is one."""
    data_findings: tuple[Finding, ...] = ()
    """What is wrong with the data; they name files and lines, not keys."""
    waits_for: str = ""
    """What is still being read; empty when the reading is complete."""
    read_at: datetime | None = None
    """When it was read: a start then would be done after the planned time."""


@dataclass(frozen=True, slots=True)
class PlanState:
    """The wizard. `reading` belongs to an earlier request while `updating` is true."""

    request: PlanRequest
    step: int = 0
    reached: int = 0
    reading: Reading = Reading(waits_for=mark("reading this machine"))
    updating: bool = True
    slow: bool = False
    """The update takes long enough to be seen: the old values are dimmed."""
    invalid: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Field id -> why the text in it cannot be read."""
    details: bool = False
    """All figures of the plan and of this machine are shown, not only those that decide."""
    more: bool = False
    """The rarely changed fields are shown."""
    wanted_start: str = ""
    """ "start" or "detached" while the plan of a start is still being made."""
    busy: str = ""
    """What a start is doing now."""
    problem: str = ""
    """Why the last start did not work."""

    @property
    def plan(self) -> Plan | None:
        return self.reading.plan

    @property
    def is_old(self) -> bool:
        """The plan on the screen is of an earlier request, and that can be seen."""
        return self.plan is not None and (self.slow or bool(self.reading.findings))

    @property
    def changed(self) -> int:
        """How many values the user chose."""
        own = (self.request.output_dir, self.request.name, names_another(self.request) or None)
        return len(self.request.overrides) + sum(value is not None for value in own)


def go_to(state: PlanState, step: int) -> PlanState:
    """Another step; every step up to the furthest one counts as visited."""
    step = max(0, min(step, len(STEPS) - 1))
    return replace(state, step=step, reached=max(state.reached, step), problem="", wanted_start="")


def is_changed(state: PlanState, spec: Setting) -> bool:
    """True where the user chose the value of this field."""
    key, overrides = spec.keys[0], state.request.overrides
    if key in OWN:
        return key != PROFILE and getattr(state.request, key) is not None
    if is_of_the_machine(spec):
        return is_machine_changed(state.request, spec)
    return any(key in overrides for key in ((SOURCES, *spec.keys) if spec.id == "data" else spec.keys))


def with_values(request: PlanRequest, spec: Setting, values: Mapping[str, Any]) -> PlanRequest:
    """The request with the values of one field; an empty mapping takes the user's choice back.

    A new data source takes the columns of the old one with it.
    """
    key = spec.keys[0]
    if key == GOAL:
        return with_goal(request, values.get(GOAL, "profile"))
    if is_of_the_machine(spec):
        return with_machine(request, spec, values)
    gone = {key for key in request.overrides if key.startswith(SOURCES)} if spec.id == "data" else {*spec.keys}
    if key == PROFILE and request.profile is None:
        # Without one, the weights to begin with are the goal; a profile says them itself.
        gone = {INIT}
    kept = {key: value for key, value in request.overrides.items() if key not in gone}
    if key not in OWN:
        return _without_demo(replace(request, overrides={**kept, **values}))
    value = values.get(key) or None
    if key == OUTPUT_DIR and value is not None:
        # A shell would do so; the files name others by their way from this folder, and the command quotes it.
        value = os.path.expanduser(value)  # noqa: PTH111 - raises never
    own: dict[str, Any] = {key: value}
    return replace(request, overrides=kept, **own)


def with_goal(request: PlanRequest, goal: str) -> PlanRequest:
    """The request for a goal. Your values stay, but for the demo, which is a whole; "profile" waits for a name, "fit" for a row."""
    if goal == "demo":
        return replace(request, profile=DEFAULT_PROFILE, overrides={}, name=None)
    if goal in ("profile", "fit"):
        return request
    return replace(request, profile=None, overrides={**request.overrides, INIT: INIT_OF_GOAL[goal]})


def goal_of(state: PlanState) -> str:
    request = state.request
    if request.profile is not None:
        return "demo" if request.profile == DEFAULT_PROFILE else "profile"
    init = request.overrides.get(INIT) or (state.plan.config.model.init if state.plan is not None else None)
    return next((goal for goal, start in INIT_OF_GOAL.items() if start == init), "fine-tune")


def lacks_model(request: PlanRequest) -> bool:
    """A goal was chosen, and not yet the model: there is nothing to plan."""
    return request.profile is None and INIT in request.overrides and "model.name" not in request.overrides


def _without_demo(request: PlanRequest) -> PlanRequest:
    overrides = request.overrides
    is_another = SOURCES in overrides or any(overrides.get(key, own) != own for key, own in OF_THE_DEMO.items())
    return replace(request, profile=None) if request.profile == DEFAULT_PROFILE and is_another else request


def with_changes(request: PlanRequest, changes: Mapping[str, Any]) -> PlanRequest:
    """The request after a remedy: key path -> value, where `profile` and `output_dir` are the request's own."""
    own = {key: value for key, value in changes.items() if key in OWN}
    others = {key: value for key, value in changes.items() if key not in OWN}
    return _without_demo(replace(request, overrides={**request.overrides, **others}, **own))


def field_problem(state: PlanState, spec: Setting) -> str:
    """Why the value of a field cannot stay as it is; empty when it can."""
    if spec.id in state.invalid:
        return state.invalid[spec.id]
    findings = [one for one in state_findings(state) if one.severity == "error" or state.reading.findings]
    if spec.id == "data":
        # A broken file is named by its path; what names another field's key is said there.
        own = (one for one in state.reading.data_findings if one.severity == "error")
        findings += [on_screen(replace(one, where=SOURCES)) for one in own if not one.where.startswith(FIRST_SOURCE)]
    places = {*spec.keys, *((SOURCES, FIRST_SOURCE.rstrip(".")) if spec.id == "data" else ())}
    parts = tuple(f"{key}." for key in spec.keys) if spec.kind == "mapping" else ()
    about = (one.message for one in findings if one.where in places or one.where.startswith(parts))
    return next(about, "")


def start_obstacle(state: PlanState, kind: str = "start") -> str:
    """Why a start is not possible now, in one sentence; empty when it is. Errors in a plan do not hinder writing."""
    if state.busy or state.invalid:
        return state.busy or next(iter(state.invalid.values()))
    if state.reading.findings:
        return state_findings(state)[0].message
    if kind == "write":
        return ""
    if names_another(state.request):
        return tr(
            "This plan is for another machine: write the run folder here and start it there, or plan for this machine."
        )
    errors = [one.message for one in state_findings(state) if one.severity == "error"]
    if not is_ready(state) or not errors or state.request.force:
        return ""
    more = len(errors) - 1
    return tr("{first} (and {more} more)", first=errors[0], more=more) if more else errors[0]


def is_ready(state: PlanState) -> bool:
    """The plan belongs to the request as it stands, and everything for it was read."""
    return state.plan is not None and not state.updating and not state.reading.waits_for


def with_defect(state: PlanState, place: str, message: str) -> PlanState:
    """A thread broke off by a mistake of trainwiz's own: its sentence stands in the place of a plan."""
    reading = replace(state.reading, findings=(Finding("defect", "error", place, message),), waits_for="")
    return replace(state, reading=reading, updating=False, slow=False, busy="", problem=message)


def state_findings(state: PlanState) -> tuple[Finding, ...]:
    """What stands against the plan, or why there is none, in the words of the screen."""
    findings = state.reading.findings or (state.plan.findings if state.plan is not None else ())
    # Each field of each step asks for them at every key.
    if findings is not _findings[0] or language() != _findings[1]:
        _findings[:] = findings, language(), tuple(map(on_screen, findings))
    return cast("tuple[Finding, ...]", _findings[2])


MAX_REMEDIES = 9
"""As many as there are digits."""


def numbered_remedies(findings: tuple[Finding, ...]) -> list[Remedy]:
    """The remedies that a digit applies: number 1 is the first of the list. At most nine."""
    return [remedy for finding in findings for remedy in finding.remedies if remedy.is_taken][:MAX_REMEDIES]


_findings: list[object] = [None, "", ()]
"""Those of the plan that was asked for last, the language, and what the screen says of them."""
