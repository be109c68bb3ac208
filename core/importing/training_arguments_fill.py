"""Settings of a training, from whatever text, into a report: renamed, placed, left out, or unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainwiz.core.importing.report import Collector
from trainwiz.core.importing.training_arguments_aliases import CANONICAL, LOOSE
from trainwiz.core.importing.training_arguments_data import DATA_PLACES, say_unknown_data
from trainwiz.core.importing.training_arguments_dropped import WHY, WHY_OF_SCRIPTS
from trainwiz.core.importing.training_arguments_model import MODEL_PLACES
from trainwiz.core.importing.training_arguments_names import ONLY_THE_TRAINERS, is_argument
from trainwiz.core.importing.training_arguments_old import with_todays_names
from trainwiz.core.importing.training_arguments_places import TRAINER_PLACES
from trainwiz.core.importing.training_arguments_setting import Setting, Unresolved, yes_or_no
from trainwiz.core.importing.training_arguments_sheet import Place, Sheet
from trainwiz.core.importing.training_arguments_task import Hint, place_stage, place_task
from trainwiz.core.language import mark, tr

TASK_IS_NAMED = mark("It names the task.")

PLACES: Mapping[str, Place] = {**TRAINER_PLACES, **MODEL_PLACES, **DATA_PLACES, "stage": place_stage}
REASONS: Mapping[str, str] = {
    **WHY,
    **WHY_OF_SCRIPTS,
    **dict.fromkeys(("task_type", "lora_task_type", "mlm"), TASK_IS_NAMED),
}

DEFAULTS: Mapping[str, tuple[str, Any]] = {
    "per_device_train_batch_size": ("batch.micro_batch_size", 8),
    "gradient_accumulation_steps": ("batch.gradient_accumulation_steps", 1),
    "num_train_epochs": ("training.epochs", 3.0),
    "learning_rate": ("training.learning_rate", 5e-5),
    "weight_decay": ("training.weight_decay", 0.0),
}
"""What TrainingArguments takes for what is left out (transformers 2.11 to 5.23 alike), where trainwiz takes or solves
something else."""

RATES: Mapping[str, float] = {"SFTConfig": 2e-5, "DPOConfig": 1e-6}
"""Learning rates that TRL's own classes take instead (0.12 to 1.16)."""


def fill(
    collector: Collector, settings: Iterable[Setting], hints: Iterable[Hint] = (), program: str | None = None
) -> None:
    """Put every setting into the report of `collector`.

    `hints` are the classes and scripts that the text names. `program` is the class whose defaults hold for what is
    left out ("TrainingArguments", "SFTConfig", ...); None where that is not known.
    """
    sheet = Sheet(collector, _named_alike(with_todays_names(collector, settings)))
    hints = list(hints)
    for setting in sheet.place(PLACES, REASONS):
        sheet.unknown(setting)
    place_task(sheet, hints)
    _say_loose(sheet)
    say_unknown_data(sheet)
    if program is not None:
        _set_defaults(sheet, program)


def _named_alike(settings: list[Setting]) -> list[Setting]:
    """Settings under the names that the places know; an alias beside its proper name stays what it is called."""
    settings = [_as_switch(setting) for setting in settings]
    taken = {setting.name for setting in settings}
    found = []
    for setting in settings:
        name = CANONICAL.get(setting.name, setting.name)
        if name != setting.name and name not in taken and not is_argument(setting.name):
            taken.add(name)
            setting = setting.called(name)
        found.append(setting)
    return found


def _as_switch(setting: Setting) -> Setting:
    """deepspeed.add_config_arguments has a bare --deepspeed, beside which --deepspeed_config names the file."""
    return setting.called("use_deepspeed") if setting.name == "deepspeed" and setting.value is True else setting


def _say_loose(sheet: Sheet) -> None:
    for setting in sheet.settings.values():
        said = setting.written.replace("-", "_") in LOOSE and not isinstance(setting.value, Unresolved)
        if said and setting.name == "per_device_train_batch_size":
            message = tr(
                "{name} is read as the sequences that one process computes at once; if the script means all processes "
                "together, set batch.micro_batch_size.",
                name=setting.written,
            )
            sheet.collector.find("assumed_meaning", "note", message, setting.line)


def _set_defaults(sheet: Sheet, program: str) -> None:
    """Defaults of the class for what the text says nothing of; what it says and nobody can know has none."""
    collector = sheet.collector
    defaults = {name: place for name, place in DEFAULTS.items() if name not in sheet}
    if "training.max_steps" in collector.values:
        defaults.pop("num_train_epochs", None)
    if "learning_rate" in defaults:
        defaults["learning_rate"] = ("training.learning_rate", RATES.get(program, defaults["learning_rate"][1]))
    if not _half_is_open(sheet, program):
        defaults["fp16"] = ("engine.precision", "fp32")
    defaults = {name: (key, value) for name, (key, value) in defaults.items() if key not in collector.values}
    collector.defaults.update(dict(defaults.values()))
    if defaults:
        said = ", ".join(f"{name} {_shown(name, value)}" for name, (_, value) in defaults.items())
        message = tr("What is left out has the defaults of {program}: {said}.", program=program, said=said)
        collector.find("library_defaults", "note", message)


def _half_is_open(sheet: Sheet, program: str) -> bool:
    """fp16 or bf16 is on, nobody can know, or the class chooses by itself (TRL: bf16 from 0.20 on)."""
    named = [sheet.settings[name] for name in ("fp16", "bf16") if name in sheet]
    if any(isinstance(setting.value, Unresolved) or sheet.read(setting.name, yes_or_no) for setting in named):
        return True
    return not named and program in RATES


def _shown(name: str, value: Any) -> str:
    return "off" if name == "fp16" else f"{value:g}"


def looks_like_arguments(names: Iterable[str], least: int = 2) -> bool:
    """At least `least` of the names are the Trainer's own."""
    return len(ONLY_THE_TRAINERS & set(names)) >= least
