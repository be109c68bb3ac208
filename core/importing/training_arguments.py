"""The arguments of the Trainer from a file, into a report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainwiz.core.importing.document import Document, read_document, say_twice
from trainwiz.core.importing.report import Collector, Imported, refusal
from trainwiz.core.importing.settings import Place, Setting, Sheet, Unresolved, yes_or_no
from trainwiz.core.importing.training_arguments_dropped import WHY, WHY_OF_SCRIPTS, Hint, place_stage, place_task
from trainwiz.core.importing.training_arguments_model import DATA_PLACES, MODEL_PLACES, say_unknown_data
from trainwiz.core.importing.training_arguments_names import (
    CANONICAL,
    LOOSE,
    ONLY_THE_TRAINERS,
    is_argument,
    with_todays_names,
)
from trainwiz.core.importing.training_arguments_schedule import TRAINER_PLACES
from trainwiz.core.language import mark, tr

# Settings of a training, from whatever text, into a report: renamed, placed, left out, or unknown.

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


# Arguments of the Trainer in a file: YAML or JSON, flat or in sections, and what a Trainer printed or dumped.

PRINTED = re.compile(r"(?P<program>\w*(?:TrainingArguments|Config))\(\s*$", re.MULTILINE)
"""`print(training_args)`: the name of the class, a bracket, then one name=value, a line."""
PRINTED_SETTING = re.compile(r"^\s*(?P<name>[A-Za-z_]\w*)=(?P<value>.*?),?\s*$")
PLACEHOLDER = re.compile(r"<[A-Z_]+>|\$\{[^}]*\}|\$\w+|\{\{[^}]*\}\}")
"""A value that is filled in later: <HUB_TOKEN>, ${oc.env:LR}, $LR, {{ lr }}."""

ADAPTER_NAMES = (frozenset({"peft_type", "lora_alpha"}), frozenset({"r", "lora_alpha"}))
"""Either of these together stands in a LoraConfig only."""
_OF_MODEL = dict.fromkeys(("name", "path", "id", "name_or_path"), "model_name_or_path")
_OF_TOKENIZER = dict.fromkeys(("name", "path", "id", "name_or_path"), "tokenizer_name")
_OF_DATA = dict.fromkeys(("name", "path", "id"), "dataset_name")
SECTIONS_THAT_NAME: Mapping[str, Mapping[str, str]] = {
    "model": _OF_MODEL,
    "base_model": _OF_MODEL,
    "tokenizer": _OF_TOKENIZER,
    "dataset": _OF_DATA,
    "data": _OF_DATA,
}
"""Sections that people write in place of one setting, and what `name` or `path` means there."""
ADAPTER_SETTINGS: Mapping[str, str] = {
    "r": "lora_r",
    "base_model_name_or_path": "model_name_or_path",
    "target_modules": "lora_target_modules",
}
"""LoraConfig's own names -> those of scripts around it."""


def read(text: str, file_name: str) -> Imported:
    """Raises NotImportable for what holds no argument of the Trainer."""
    printed = PRINTED.search(text)
    if printed is not None:
        return _printed(text, file_name, printed)
    return read_settings(read_document(text, file_name), file_name)


def read_settings(document: Document, file_name: str) -> Imported:
    """The same for a document that was parsed already."""
    collector = Collector("training_arguments", file_name)
    say_twice(collector, document)
    settings = list(_settings(document.values, document, ()))
    names = [setting.name for setting in settings]
    if not any(_is_known(name) for name in names):
        message = tr(
            "{file} holds no argument of the Trainer; expected are settings like learning_rate or max_steps.",
            file=file_name,
        )
        raise refusal(file_name, message)
    fill(collector, settings, program="TrainingArguments" if looks_like_arguments(names) else None)
    return collector.done()


def _is_known(name: str) -> bool:
    return is_argument(name) or name in CANONICAL or name in PLACES or name in REASONS


def _settings(values: Mapping[Any, Any], document: Document, above: tuple[str, ...]) -> Iterator[Setting]:
    """The settings of a mapping and of its sections; a mapping that is the value of a known setting stays whole."""
    given = {str(name) for name in values}
    adapters = any(names <= given for names in ADAPTER_NAMES)
    named = SECTIONS_THAT_NAME.get(above[-1], {}) if above else {}
    for key, value in values.items():
        name = str(key)
        if isinstance(value, Mapping) and value and _is_section(name, value):
            yield from _settings(value, document, (*above, name))
        elif name in named and not isinstance(value, Mapping):
            yield Setting(named[name], _value(value), document.line(*above, name), ".".join((*above[-1:], name)))
        elif adapters or (above and above[-1] in ("lora", "peft", "lora_config", "peft_config")):
            yield Setting(ADAPTER_SETTINGS.get(name, name), _value(value), document.line(*above, name), name)
        else:
            # Names of a command line stand in files too: per-device-train-batch-size.
            yield Setting(name.replace("-", "_").lstrip("_"), _value(value), document.line(*above, name), name)


def _is_section(name: str, value: Mapping[Any, Any]) -> bool:
    """A section, and not the value of a setting: `dataset: {path: ...}` is one, shares of data sets are a value."""
    if name in SECTIONS_THAT_NAME:
        return not all(isinstance(item, int | float) for item in value.values())
    return not _is_known(name)


def _value(value: Any) -> Any:
    if isinstance(value, str) and PLACEHOLDER.fullmatch(value.strip()):
        return Unresolved(value.strip())
    return value


def _printed(text: str, file_name: str, printed: re.Match[str]) -> Imported:
    """What `print(training_args)` gives; a bracket alone ends it, and without that it was cut off."""
    collector = Collector("training_arguments", file_name)
    start = text.count("\n", 0, printed.end()) + 1
    settings: list[Setting] = []
    for number, line in enumerate(text.splitlines()[start:], start + 1):
        if line.strip() == ")":
            break
        setting = PRINTED_SETTING.match(line)
        if setting is not None:
            settings.append(Setting(setting["name"], _literal(setting["value"]), number))
    else:
        message = tr("{file} ends before the printed arguments do; get the whole print.", file=file_name)
        raise refusal(file_name, message)
    fill(collector, settings, [Hint(printed["program"], start)], program=printed["program"])
    return collector.done()


def _literal(text: str) -> Any:
    """The value behind a printed `name=`: texts stand there without quotes."""
    import ast

    if PLACEHOLDER.fullmatch(text):
        return Unresolved(text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
