"""The lists to choose from: profiles, models, data files and columns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from trainwiz.core.defaults import DEFAULT_PROFILE, GUIDE_SUFFIX
from trainwiz.core.language import tr
from trainwiz.tui.screens.plan_state import Offer, PlanState
from trainwiz.tui.text import number, pad, short_count, size

if TYPE_CHECKING:
    from trainwiz.core.catalog.gpus import GpuSpec
    from trainwiz.core.catalog.model_config import ModelSpec
    from trainwiz.core.config import RunConfig
    from trainwiz.core.data.summary import Glance
    from trainwiz.core.hardware.machine import Machine
    from trainwiz.core.plan.gather import DataAnswer
    from trainwiz.core.profile.profile import Profile
    from trainwiz.tui.screens.plan_fields import Setting
    from trainwiz.tui.widgets.file_picker import FilePicker


LOOK_EVERY_S = 0.02


class DataReadings:
    """A reading that is no longer waited for goes on, and is there when its source is wanted again."""

    def __init__(self, read: Callable[[RunConfig], DataAnswer]) -> None:
        self._read = read
        self._readings: dict[str, Future[DataAnswer]] = {}

    def known(self, key: str) -> DataAnswer | None:
        reading = self._readings.get(key)
        is_there = reading is not None and reading.done() and reading.exception() is None
        return reading.result() if reading is not None and is_there else None

    def wait(self, key: str, config: RunConfig, is_cancelled: Callable[[], bool]) -> DataAnswer | None:
        """The answer about the source of `config`, read now where it is not known; None when cancelled.

        Raises what the reading raised. Only one thread may call this at a time.
        """
        reading = self._readings.get(key)
        if reading is None:
            reading = self._readings[key] = Future()
            threading.Thread(target=self._work, args=(reading, config), name="trainwiz-data", daemon=True).start()
        while not reading.done():
            if is_cancelled():
                return None
            wait([reading], LOOK_EVERY_S)
        if reading.exception() is not None:
            del self._readings[key]
        return reading.result()

    def _work(self, reading: Future[DataAnswer], config: RunConfig) -> None:
        try:
            reading.set_result(self._read(config))
        except Exception as error:  # noqa: BLE001 - said in the thread that asks
            reading.set_exception(error)


# What the model step can be chosen from beside the catalogue: folders and config.json files of the disk.


def browse_model(state: PlanState) -> FilePicker:
    """The file picker, opened where the present model lies."""
    from trainwiz.tui.widgets.file_picker import FilePicker

    class ModelPicker(FilePicker):
        def answer(self, path: Path) -> None:
            # A bare config.json is a model without its weights, and those lie beside it.
            super().answer(path.parent if path.name == "config.json" and path.is_file() else path)

    model = state.reading.model
    start = model.name if model is not None and model.source in ("folder", "config") else ""
    return ModelPicker(tr("Model: a folder with a config.json, or a config.json file"), start, (".json",))


# What the data step can be chosen from: files of the disk, and the columns of the file that was chosen.


def browse_data(state: PlanState) -> FilePicker:
    """The file picker, opened where the present data lies."""
    from trainwiz.core.data.formats import file_endings
    from trainwiz.tui.widgets.file_picker import FilePicker

    plan = state.plan
    source = plan.config.data.sources[0].name if plan is not None and plan.config.data.sources else ""
    return FilePicker(tr("Data: a file, or a folder with files of one format"), source, file_endings())


def column_offers(glance: Glance | None) -> tuple[Offer, ...]:
    """The columns that hold text, each with the beginning of its first row."""
    if glance is None:
        return ()
    first = glance.rows[0] if glance.rows else (None,) * len(glance.columns)
    return tuple(
        Offer(
            glance.setting_of(place),
            column.name,
            tr("no value") if cell is None else cell[:80] if cell.strip() else tr("empty"),
        )
        for place, (column, cell) in enumerate(zip(glance.columns, first, strict=True))
        if glance.can_take(place) or glance.can_take(place, target=True)
    )


def found_column(state: PlanState, spec: Setting) -> str:
    """The column that is taken where none was named; what the row says without one is the field's own."""
    glance = state.reading.glance
    if glance is None or spec.id not in {"column", "target_column"}:
        return ""
    place = glance.text if spec.id == "column" else glance.target
    if place is not None:
        return glance.columns[place].name
    return tr("not found") if spec.id == "column" or glance.has_target else ""


# The lists to choose from: profiles, models of the catalogue, samples and the data files of this folder.

MOST_FILES = 100
SIZE_WIDTH = 6


def profile_offers(here: Machine) -> tuple[Offer, ...]:
    """All profiles, with the card that each is made for: those for a card that is here first, guides last."""
    from trainwiz.core.plan.gather import made_for
    from trainwiz.core.profile.store import list_profiles

    def rank(profile: Profile) -> int:
        if profile.name == DEFAULT_PROFILE or profile.origin == "user":
            return 0
        return 3 if profile.name.endswith(GUIDE_SUFFIX) else 1 if made_for(profile, here) else 2

    none = Offer("", tr("none"), tr("all values are derived from the model, the data and the machine"))
    return (none, *(Offer(profile.name, note=_about(profile)) for profile in sorted(list_profiles(), key=rank)))


def _about(profile: Profile) -> str:
    """What a profile is for, after the name of its card where the description does not say it."""
    about, gpu = tr(profile.description), profile.hardware.gpu
    # Cards are "RTX 3080 10GB" in the catalogue and "RTX 3080 10 GB" in sentences.
    if gpu and gpu.removesuffix(" SXM").replace(" ", "") in about.replace(" ", ""):
        return about
    return tr("{machine}: {about}", machine=gpu or tr("any machine"), about=about)


def model_offers(folder: Path) -> tuple[Offer, ...]:
    """Model folders of `folder`, then the catalogue, with size, task, and whether the weights are here."""
    from trainwiz.core.catalog.models import load_models

    here = (path for path in _entries(folder) if (path / "config.json").is_file())
    note = tr("a model in this folder")
    folders = []
    for path in islice(here, MOST_FILES):
        has_weights = any(
            one.suffix == ".safetensors" or one.name.startswith("pytorch_model") for one in _entries(path)
        )
        folders.append(Offer(f"./{path.name}", note=note, weights="here" if has_weights else ""))
    return (*folders, *(_model_offer(name, model) for name, model in load_models().items()))


def _entries(folder: Path) -> list[Path]:
    """What lies in a folder, but for hidden names; nothing where it cannot be read."""
    try:
        return [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    except OSError:
        return []


def _model_offer(name: str, model: ModelSpec) -> Offer:
    """A model of the catalogue. The description makes families findable."""
    from trainwiz.core.catalog.models import read_model_facts
    from trainwiz.core.estimate.families import read_architecture

    architecture, _ = read_architecture(model.architecture)
    parameters = short_count(architecture.parameters) if architecture is not None else tr("unknown")
    is_here = model.hub_id is not None and read_model_facts(model).weights_bytes is not None
    words = (pad(parameters, SIZE_WIDTH, right=True), model.task, tr("weights on disk") if is_here else "")
    note = "  ".join(part for part in (*words, tr(model.description)) if part)
    return Offer(name, note=note, weights="here" if is_here else "published" if model.hub_id is not None else "")


def card_offers() -> tuple[Offer, ...]:
    """The GPU catalogue, with memory, capability and rate."""
    from trainwiz.core.catalog.gpus import load_gpus

    return tuple(Offer(name, note=_card_words(spec)) for name, spec in load_gpus().items())


def _card_words(spec: GpuSpec) -> str:
    parts = [size(spec.memory_bytes)]
    if spec.compute_capability is not None:
        parts.append(f"sm {spec.compute_capability}")
    if spec.fp16_flops is not None:
        parts.append(f"{number(spec.fp16_flops / 1e12)} TFLOP/s")
    return ", ".join(parts)


def data_offers(folder: Path) -> tuple[Offer, ...]:
    """The files of `folder` that can be read as rows, then the samples."""
    from trainwiz.core.data.formats import SAMPLES, format_of

    files = []
    for path in _entries(folder):
        kind = format_of(path)
        if kind is not None and path.is_file():
            files.append(Offer(path.name, note=f"{kind}, {size(path.stat().st_size)}"))
    return (*files[:MOST_FILES], *(Offer(name, note=tr("ships with trainwiz")) for name in SAMPLES))
