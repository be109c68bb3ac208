"""PlanReader: reads the world for the wizard, in a thread: the machine once, each data source once, a plan for each request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import trainwiz.core.plan.gather as edge
from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.catalog.models import ModelFacts, read_model_facts
from trainwiz.core.config import RunConfig
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.data.summary import Glance, glance_at, stamp_of
from trainwiz.core.errors import Finding, TrainwizError
from trainwiz.core.hardware.host import free_disk
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.language import mark, tr
from trainwiz.core.launch.prepare import planned_texts, relative_to_folder, run_yaml_text
from trainwiz.core.plan.refine import RefineTier
from trainwiz.core.plan.result import Plan
from trainwiz.core.profile.profile import Profile
from trainwiz.core.profile.store import profile_files
from trainwiz.core.run.folder import DEFAULT_ROOT, RUN_YAML, new_run_folder
from trainwiz.core.telemetry.gpu import GpuLoads, LoadReader
from trainwiz.tui.screens.plan_maker import (
    PlanMaker,
    effect_key,
    new_tracer,
    numbered_remedies,
)
from trainwiz.tui.screens.plan_offers import DataReadings, card_offers, data_offers, model_offers, profile_offers
from trainwiz.tui.screens.plan_state import FILES_FOLLOW, Reading, lacks_model, with_changes

if TYPE_CHECKING:
    from trainwiz.core.tracing.worker import TraceWorker

PAINTED_WITHIN_S = 0.03
"""Nothing is worked on for so long while new figures are painted: two threads that both work hold each other up.
A key that follows within it also saves the files of a plan that nobody will see."""


class PlanReader:
    """Keeps what does not change between two requests. `read` may be called from several threads."""

    def __init__(
        self,
        machine: Machine | None = None,
        tier: RefineTier = "analytic",
        tracer: Callable[[], TraceWorker] = new_tracer,
    ) -> None:
        """`machine` is this machine, where it is known already; a `tier` above "analytic" runs a `tracer` of its own."""
        self._machine = machine
        self._plans = PlanMaker(tier, tracer)
        self._loads = LoadReader()
        self._model_facts: tuple[ModelSpec, ModelFacts] | None = None
        self._gathered: tuple[PlanRequest, edge.Gathered, Plan] | None = None
        self._written: tuple[Mapping[str, str], str] = {}, ""
        """Files and folder of the last plan that was complete."""
        self._profiles: dict[str, Profile | None] = {}
        self._data = DataReadings(lambda config: edge.gather_data(config))
        self._glances: dict[str, Glance | None] = {}
        self._last_data: edge.DataAnswer = (None, ())
        self._base = Reading()
        self._lock = threading.Lock()

    def read(self, request: PlanRequest, is_cancelled: Callable[[], bool]) -> Iterator[Reading]:
        """What is known, as it becomes known; the last reading has the plan, or the findings that say why not."""
        with self._lock:
            if is_cancelled():
                return
            try:
                yield from self._steps(request, is_cancelled)
            except TrainwizError as error:
                yield replace(self._base, findings=error.findings)
            except OSError as error:
                place = error.filename or tr("a file")
                message = tr("Can't read {place}: {reason}.", place=place, reason=error.strerror or error)
                yield replace(self._base, findings=(Finding("unreadable", "error", str(place), message),))

    def _steps(self, request: PlanRequest, is_cancelled: Callable[[], bool]) -> Iterator[Reading]:
        is_fresh = self._machine is None or self._base.machine is None
        here = self._here(request)
        if is_fresh:
            self._base = replace(self._base, machine=here)
            yield replace(self._base, waits_for=mark("reading profile and model"))
        if lacks_model(request):
            self._offer_lists(here, request.profile)
            message = tr("Choose a model: one from the list, a Hub ID, a folder or a config.json.")
            yield replace(self._base, findings=(Finding("no_model", "error", "model.name", message),))
            return
        profile = self._profile(request, here)
        known = edge.gather_known(request, profile, here)
        self._offer_lists(here, request.profile)
        values = {} if profile is None else profile.values
        facts = self._facts(known.model)
        self._base = replace(self._base, model=known.model, model_facts=facts, profile_values=values)
        key = _data_key(known.config)
        answer = edge.without_data(known, here) or self._data.known(key)
        if answer is None:
            # The rows of the last reading stand in until the new ones are counted.
            data, _ = self._last_data
            plan = self._plans.plan(replace(known, data=data))
            yield replace(self._base, plan=plan, data=data, data_findings=(), waits_for=mark("reading the data"))
            self._base = replace(self._base, glance=self._glance(known.config))
            yield replace(self._base, plan=plan, data=data, data_findings=(), waits_for=mark("reading the data"))
            answer = self._data.wait(key, known.config, is_cancelled)
            if answer is None:
                return
        data, findings = self._last_data = answer
        gathered = edge.with_data(known, data, findings)
        plan = self._plans.plan(gathered)
        self._base = replace(self._base, data=data, glance=self._glance(known.config), data_findings=findings)
        # The figures first; the files that follow from them take twice as long.
        files, folder = self._written
        quick = replace(self._base, plan=plan, files=files, folder=folder, read_at=datetime.now())
        yield replace(quick, waits_for=FILES_FOLLOW)
        time.sleep(PAINTED_WITHIN_S)
        if is_cancelled():
            return
        self._gathered = request, gathered, plan
        yield self._complete(request, plan)

    def _glance(self, config: RunConfig) -> Glance | None:
        """The first rows of the data, looked at once."""
        key = f"{config.row_kind} {config.data.sources[0].model_dump_json()} {stamp_of(config)}"
        if key not in self._glances:
            self._glances[key] = glance_at(config)
        return self._glances[key]

    def _complete(self, request: PlanRequest, plan: Plan) -> Reading:
        """With the files as a start would write them. Raises UsageError as the export does."""
        folder = Path(request.output_dir) if request.output_dir else new_run_folder(DEFAULT_ROOT, plan.config.name)
        config = relative_to_folder(plan.config, folder)
        self._written = {RUN_YAML: run_yaml_text(config), **planned_texts(plan, config)}, str(folder)
        files, place = self._written
        return replace(self._base, plan=plan, files=files, folder=place, read_at=datetime.now())

    def improve(
        self, request: PlanRequest, is_cancelled: Callable[[], bool], on_reading: Callable[[Reading], None]
    ) -> None:
        """Better figures for what was read last, each as it comes. Another thread may read meanwhile."""
        if self._gathered is None or self._gathered[0] is not request:
            return
        _, gathered, plan = self._gathered

        def take(plan: Plan) -> None:
            try:
                reading = self._complete(request, plan)
            except TrainwizError as error:
                reading = replace(self._base, findings=error.findings)
            on_reading(reading)
            # The remedies may be others than before, and what they bring is known as well as the plan.
            effects = self._effects(request, plan, is_cancelled)
            if effects and not is_cancelled():
                on_reading(replace(reading, effects=effects))

        effects = self._effects(request, plan, is_cancelled)
        if effects and not is_cancelled():
            on_reading(replace(self._complete(request, plan), effects=effects))
        self._plans.improve(gathered, take, is_cancelled)

    def measure(self) -> bool:
        """The rates of the devices that were planned last, where they are not known: see PlanMaker."""
        return self._gathered is not None and self._plans.measure(self._gathered[2])

    def _effects(self, request: PlanRequest, plan: Plan, is_cancelled: Callable[[], bool]) -> Mapping[str, Plan]:
        """What the remedies of a plan bring, as far as they can be planned."""
        effects: dict[str, Plan] = {}
        for remedy in numbered_remedies(plan.findings):
            if is_cancelled():
                break
            if remedy.opens:
                continue
            try:
                changed = self._planned(with_changes(request, remedy.changes))
            except (TrainwizError, OSError):
                continue
            if changed.model.parameters is not None:
                effects[effect_key(remedy.changes)] = changed
        return effects

    def _planned(self, request: PlanRequest) -> Plan:
        """The plan of a request by what is known now; data that was not read yet counts as the last that was."""
        here = self._here(request)
        known = edge.gather_known(request, self._profile(request, here), here)
        answer = edge.without_data(known, here) or self._data.known(_data_key(known.config)) or self._last_data
        return self._plans.plan(edge.with_data(known, *answer))

    def loads(self) -> GpuLoads:
        """What the GPUs of this machine do now."""
        return self._loads.read()

    def rest(self) -> None:
        """Nobody looks at the loads: end the driver's session."""
        self._loads.close()

    def forget_machine(self) -> None:
        """GPUs have come or gone: the next reading probes this machine again, and picks profiles by what it finds."""
        # A driver's session that stays open would answer as before.
        self._loads.close()
        with self._lock:
            self._machine = None
            self._profiles = {}

    def close(self) -> None:
        """End the tracer and the look at the GPUs; a later reading starts them again."""
        self._loads.close()
        self._plans.close()

    def _here(self, request: PlanRequest) -> Machine:
        """This machine, probed once; only the free disk is read again for another folder."""
        if self._machine is None:
            # Its own disk is that of runs/: a folder that is named can be taken back.
            self._machine = edge.probe_here(replace(request, output_dir=None))
        if request.output_dir is None:
            return self._machine
        free = free_disk(Path(request.output_dir))
        return replace(self._machine, disk_path=request.output_dir, disk_free_bytes=free)

    def _profile(self, request: PlanRequest, here: Machine) -> Profile | None:
        name = request.profile or ""
        if name not in self._profiles:
            self._profiles[name] = edge.gather_profile(request, here)
        return self._profiles[name]

    def _facts(self, model: ModelSpec | None) -> ModelFacts | None:
        """Of the model on the disk; read once for each model."""
        if model is None:
            return None
        if self._model_facts is None or self._model_facts[0] != model:
            self._model_facts = model, read_model_facts(model)
        return self._model_facts[1]

    def _offer_lists(self, here: Machine, profile: str | None) -> None:
        if not self._base.profiles:
            self._base = replace(
                self._base,
                profiles=profile_offers(here),
                models=model_offers(Path.cwd()),
                samples=data_offers(Path.cwd()),
                cards=card_offers(),
            )
        elif profile in profile_files() and profile not in {offer.value for offer in self._base.profiles}:
            # It was kept since the lists were made.
            self._base = replace(self._base, profiles=profile_offers(here))


def _data_key(config: RunConfig) -> str:
    """What decides the summary of the data: what is asked for, who asked, and the file as it is now."""
    parts: list[object] = [
        config.task,
        config.batch.sequence_length,
        config.origin("data.sources").origin,
        config.data.model_dump_json(),
    ]
    if config.row_kind != "proteins":
        # Texts are counted by the model's tokenizer; whether they are joined is a matter of adapters too.
        parts += [config.model.model_dump_json(), config.peft.method]
    return f"{parts} {stamp_of(config)}"
