"""PlanReader: reads the world for the wizard, in a thread: the machine once, each data source once, a plan for each request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import trainwiz.core.history.rates as rates_of
import trainwiz.core.plan.gather as edge
from trainwiz.core.catalog.models import read_model_facts
from trainwiz.core.config import RunConfig
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.data.summary import Glance, glance_at, stamp_of
from trainwiz.core.errors import Finding, TrainwizError
from trainwiz.core.hardware.host import free_disk
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.measurement import Measurement, device_key, history_path, keys_of, load
from trainwiz.core.language import mark, tr
from trainwiz.core.launch.prepare import planned_texts, relative_to_folder, run_yaml_text
from trainwiz.core.plan.refine import Refiner, RefineTier
from trainwiz.core.plan.result import Plan
from trainwiz.core.profile.profile import Profile
from trainwiz.core.profile.store import profile_files
from trainwiz.core.run.folder import DEFAULT_ROOT, RUN_YAML, new_run_folder
from trainwiz.core.telemetry.gpu import GpuLoads, LoadReader
from trainwiz.core.tracing.worker import TraceWorker
from trainwiz.tui.screens.plan_state import FILES_FOLLOW, Reading, lacks_model
from trainwiz.tui.screens.plan_views import card_offers, data_offers, model_offers, profile_offers

PAINTED_WITHIN_S = 0.03
"""Nothing is worked on for so long while new figures are painted: two threads that both work hold each other up.
A key that follows within it also saves the files of a plan that nobody will see."""
LOOK_EVERY_S = 0.02

Load = Callable[[Machine], tuple[Measurement, ...]]


def when_changed(load: Load) -> Load:
    """The history of a machine; it is read again only when it has changed, since every keystroke asks."""
    kept: tuple[object, tuple[Measurement, ...]] = (None, ())

    def read(machine: Machine) -> tuple[Measurement, ...]:
        nonlocal kept
        try:
            state = history_path().stat()
        except OSError:
            return ()
        stamp = keys_of(machine), state.st_ino, state.st_mtime_ns, state.st_size
        if kept[0] != stamp:
            kept = stamp, load(machine)
        return kept[1]

    return read


class PlanReader:
    """Keeps what does not change between two requests. `read` may be called from several threads."""

    def __init__(
        self,
        machine: Machine | None = None,
        tier: RefineTier = "analytic",
        tracer: Callable[[], TraceWorker] = TraceWorker,
    ) -> None:
        """`machine` is this machine, where it is known already; a `tier` above "analytic" runs a `tracer` of its own."""
        self._machine = machine
        self._tier = tier
        self._new_tracer = tracer
        self._tracer: TraceWorker | None = None
        self._refiner: Refiner | None = None
        self._history = when_changed(load)
        self._tried: set[object] = set()
        """Devices that were measured, or could not be."""
        self._closed = threading.Event()
        self._loads = LoadReader()
        self._gathered: tuple[PlanRequest, edge.Gathered, Plan] | None = None
        self._written: tuple[Mapping[str, str], str] = {}, ""
        """Files and folder of the last plan that was complete."""
        self._profiles: dict[str, Profile | None] = {}
        self._readings: dict[str, Future[edge.DataAnswer]] = {}
        """Of data sources. One that is no longer waited for goes on, and is there when its source is wanted again."""
        self._glances: dict[str, Glance | None] = {}
        self._last_data: edge.DataAnswer = (None, ())
        self._base = Reading()
        self._lock = threading.Lock()
        self._refiner_lock = threading.Lock()

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
        self._offer_lists(here, request.profile)
        if lacks_model(request):
            message = tr("Choose a model: one from the list, a Hub ID, a folder or a config.json.")
            yield replace(self._base, findings=(Finding("no_model", "error", "model.name", message),))
            return
        profile = self._profile(request, here)
        known = edge.gather_known(request, profile, here)
        if known.model != self._base.model:
            facts = None if known.model is None else read_model_facts(known.model)
            self._base = replace(self._base, model=known.model, model_facts=facts)
        self._base = replace(self._base, profile_values={} if profile is None else profile.values)
        answer = edge.without_data(known, here)
        if answer is None:
            key = _data_key(known.config)
            reading = self._data(key, known.config)
            if not reading.done():
                # The rows of the last reading stand in until the new ones are counted.
                data, _ = self._last_data
                plan = self._warm().plan(replace(known, data=data))
                early = replace(self._base, plan=plan, data=data, data_findings=(), waits_for=mark("reading the data"))
                yield early
                yield replace(early, glance=self._glance(known.config))
            while not reading.done():
                if is_cancelled():
                    return
                wait([reading], LOOK_EVERY_S)
            if reading.exception() is not None:
                del self._readings[key]
            answer = reading.result()
        data, findings = self._last_data = answer
        gathered = edge.with_data(known, data, findings)
        plan = self._warm().plan(gathered)
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

    def _data(self, key: str, config: RunConfig) -> Future[edge.DataAnswer]:
        """The reading of the source of `config`, begun now where there is none."""
        if key not in self._readings:
            reading = self._readings[key] = Future()
            threading.Thread(target=_read_data, args=(reading, config), name="trainwiz-data", daemon=True).start()
        return self._readings[key]

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

    def _warm(self) -> Refiner:
        """What plans; its tracer is started by the first plan, unless the tier is "analytic"."""
        with self._refiner_lock:
            if self._refiner is None:
                if self._tier != "analytic":
                    self._tracer = self._new_tracer()
                    self._tracer.start()
                self._refiner = Refiner(self._tracer, self._history, rates_of.kept_rates)
            return self._refiner

    def improve(
        self, request: PlanRequest, is_cancelled: Callable[[], bool], on_reading: Callable[[Reading], None]
    ) -> None:
        """Better figures for what was read last, each as it comes; returns when there are no better ones, or soon after
        it is cancelled or closed. Another thread may read meanwhile."""
        read = self._gathered
        if self._tier == "analytic" or read is None or read[0] is not request:
            return
        refiner = self._warm()

        def take(plan: Plan) -> None:
            try:
                on_reading(self._complete(request, plan))
            except TrainwizError as error:
                on_reading(replace(self._base, findings=error.findings))

        refiner.improve(read[1], take, self._tier, lambda: is_cancelled() or self._refiner is not refiner)

    def measure(self) -> bool:
        """Measure and keep the rates of the devices that were planned last, where there are none: True where there are now.

        It takes seconds, and ends soon after `close`: then the cores and the card are a training's. Raises CannotRunError
        with the reason, once for each device.
        """
        read = self._gathered
        if self._tier == "analytic" or read is None:
            return False
        plan = read[2]
        device, gpus, threads = plan.devices.device, plan.devices.gpus, plan.config.engine.cpu_threads
        place = device_key(plan.machine, device, gpus), threads if device == "cpu" else None
        here = not plan.machine.hypothetical and plan.machine.libraries.has("torch") and place[0] is not None
        if not here or plan.evidence.rates or place in self._tried:
            return False
        self._tried.add(place)
        closed, niceness = self._closed.is_set, rates_of.BACKGROUND_NICENESS
        try:
            rates = rates_of.measure_rates(plan.machine, device, gpus, threads, niceness=niceness, is_cancelled=closed)
            rates_of.keep_rates(rates)
        except (TrainwizError, OSError) as error:
            if closed() or isinstance(error, OSError):
                return False
            raise
        return True

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
        """End the tracer, the measuring and the look at the GPUs; a later reading has a new tracer."""
        self._loads.close()
        self._closed.set()
        with self._refiner_lock:
            tracer, self._tracer, self._refiner = self._tracer, None, None
        if tracer is not None:
            tracer.close()

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

    def _offer_lists(self, here: Machine, profile: str | None) -> None:
        if not self._base.profiles:
            self._base = replace(
                self._base,
                profiles=profile_offers(here),
                models=model_offers(Path.cwd()),
                samples=data_offers(Path.cwd()),
                cards=card_offers(),
            )
        elif profile in profile_files().keys() - {offer.value for offer in self._base.profiles}:
            # It was kept since the lists were made.
            self._base = replace(self._base, profiles=profile_offers(here))


def _read_data(reading: Future[edge.DataAnswer], config: RunConfig) -> None:
    try:
        reading.set_result(edge.gather_data(config))
    except Exception as error:  # noqa: BLE001 - said in the thread that waits
        reading.set_exception(error)


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
