"""The lists to choose from: profiles, models of the catalogue, samples and the data files of this folder."""

from __future__ import annotations

from pathlib import Path

from trainwiz.core.catalog.gpu import GpuSpec
from trainwiz.core.catalog.gpus import load_gpus
from trainwiz.core.catalog.model import ModelSpec
from trainwiz.core.catalog.model_facts import read_model_facts
from trainwiz.core.catalog.models import load_models
from trainwiz.core.data.formats import format_of
from trainwiz.core.data.samples import SAMPLES
from trainwiz.core.defaults import DEFAULT_PROFILE, GUIDE_SUFFIX
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.language import tr
from trainwiz.core.profile.overview import made_for
from trainwiz.core.profile.profile import Profile
from trainwiz.core.profile.store import list_profiles
from trainwiz.tui.cells import pad
from trainwiz.tui.figures import number, short_count, size
from trainwiz.tui.screens.plan_state import Offer

MOST_FILES = 100
SIZE_WIDTH = 6


def profile_offers(here: Machine) -> tuple[Offer, ...]:
    """All profiles, with the card that each is made for: those for a card that is here first, guides last."""

    def rank(profile: Profile) -> int:
        if profile.name == DEFAULT_PROFILE or profile.origin == "user":
            return 0
        return 3 if profile.name.endswith(GUIDE_SUFFIX) else 1 if made_for(profile, here) else 2

    none = Offer("", tr("none"), tr("every value follows from the model, the data and the machine"))
    return (none, *(Offer(profile.name, note=_about(profile)) for profile in sorted(list_profiles(), key=rank)))


def _about(profile: Profile) -> str:
    """What a profile is for, after the name of its card where the description does not say it."""
    about, gpu = tr(profile.description), profile.hardware.gpu
    if gpu and _without_spaces(gpu.removesuffix(" SXM")) in _without_spaces(about):
        return about
    return tr("{machine}: {about}", machine=gpu or tr("any machine"), about=about)


def _without_spaces(text: str) -> str:
    """Cards are "RTX 3080 10GB" in the catalogue and "RTX 3080 10 GB" in sentences."""
    return text.replace(" ", "")


def model_offers(folder: Path) -> tuple[Offer, ...]:
    """Model folders of `folder`, then the catalogue, with size, task, and whether the weights are here."""
    here = (path for path in _entries(folder) if (path / "config.json").is_file())
    folders = [Offer(f"./{path.name}", note=tr("a model in this folder")) for path in here]
    # The description makes families findable.
    return (*folders[:MOST_FILES], *(Offer(name, note=_model_words(model)) for name, model in load_models().items()))


def _entries(folder: Path) -> list[Path]:
    """What lies in a folder, but for hidden names; nothing where it cannot be read."""
    try:
        return [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    except OSError:
        return []


def _model_words(model: ModelSpec) -> str:
    architecture, _ = read_architecture(model.architecture)
    parameters = short_count(architecture.parameters) if architecture is not None else tr("unknown")
    is_here = model.hub_id is not None and read_model_facts(model).weights_bytes is not None
    here = tr("weights here") if is_here else ""
    about = tr(model.description)
    return "  ".join(part for part in (pad(parameters, SIZE_WIDTH, right=True), model.task, here, about) if part)


def card_offers() -> tuple[Offer, ...]:
    """The GPU catalogue, with memory, capability and rate."""
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
    files = []
    for path in _entries(folder):
        kind = format_of(path)
        if kind is not None and path.is_file():
            files.append(Offer(path.name, note=f"{kind}, {size(path.stat().st_size)}"))
    return (*files[:MOST_FILES], *(Offer(name, note=tr("ships with trainwiz")) for name in SAMPLES))
