"""The arguments of the Trainer and of programs around it: from a file, a script or a command into a report."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trainwiz.core.config.values import Task
from trainwiz.core.data.formats import SAMPLES
from trainwiz.core.importing import names as table
from trainwiz.core.importing.places import DEFAULT_LEARNING_RATE, SPECIAL
from trainwiz.core.importing.report import Document, Imported, Setting
from trainwiz.core.importing.values import (
    Unresolved,
    attempt,
    decimal_number,
    is_nothing,
    source_names,
    text_value,
    yes_or_no,
)
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text

SEQ2SEQ_ARGUMENTS = frozenset({"max_source_length", "max_target_length", "val_max_target_length"})

AUTO = mark("auto leaves it to the plan.")


def fill(
    imported: Imported, settings: Iterable[Setting], hints: Iterable[Setting] = (), program: str | None = None
) -> None:
    """Put every setting into the report.

    `hints` are the classes and scripts that the text names. `program` is the class whose defaults hold for what is
    left out ("TrainingArguments", "SFTConfig", ...); None where that is not known.
    """
    imported.program = program or ""
    for setting in settings:
        _take(imported, _todays(imported, setting))
    for setting in imported.settings.values():
        imported.place(setting, SPECIAL.get(setting.name, table.TRAINER.get(setting.name)), AUTO)
    _place_task(imported, list(hints))
    for setting in imported.settings.values():
        loose = setting.written.replace("-", "_") in table.LOOSE and not isinstance(setting.value, Unresolved)
        if loose and setting.name == "per_device_train_batch_size":
            imported.say(setting, "assumed_meaning")
    _say_unknown_data(imported)
    if program == "SFTConfig" and "training.train_on" not in imported.values:
        imported.say(None, "trl_learns_more")
    if program is not None:
        _set_defaults(imported, program)


# Names: those of today, and of two spellings of one setting the one that counts.


def _todays(imported: Imported, setting: Setting) -> Setting:
    if setting.name == "deepspeed" and setting.value is True:
        # deepspeed.add_config_arguments has a bare --deepspeed, beside which --deepspeed_config names the file.
        return setting.called("use_deepspeed")
    new = table.RENAMED.get(setting.name)
    if new is not None:
        imported.rename(setting.as_written(), new, setting.line)
        switch = table.SWITCHES.get(setting.name)
        on = attempt(yes_or_no, setting.value)
        if switch is None or isinstance(setting.value, Unresolved):
            return setting.called(new)
        return setting.called(new, switch if on else None if on is False else setting.value)
    old = attempt(text_value, setting.value) if setting.name in ("optim", "optimizer") else None
    if old is not None and old in table.REMOVED_OPTIMIZERS:
        imported.rename(f"{setting.as_written()}={old}", f"optim={table.REMOVED_OPTIMIZERS[old]}", setting.line)
        return setting.called("optim", table.REMOVED_OPTIMIZERS[old])
    return setting


def _take(imported: Imported, setting: Setting) -> None:
    proper = table.CANONICAL.get(setting.name, setting.name)
    first = imported.settings.get(proper)
    if first is None:
        setting = setting if proper == setting.name else setting.called(proper)
    elif proper == setting.name and first.as_written() in table.CANONICAL:
        # An alias beside its proper name stays what it is called.
        imported.settings[first.as_written()] = Setting(first.as_written(), first.value, first.line)
    elif proper == setting.name:
        # The later one that says something; steps of a warmup win over its ratio (get_warmup_steps of 4.x).
        ordered = sorted((first, setting), key=lambda one: one.as_written() == "warmup_steps")
        counts = next((one for one in reversed(ordered) if not _says_nothing(one)), setting)
        if first.value != setting.value and not any(map(_says_nothing, ordered)):
            told = [plain_text(f"{one.as_written()}={one.as_given()}", 60) for one in (first, setting)]
            words = {"first": told[0], "second": told[1], "counts": counts.as_written()}
            imported.say(setting, "contradiction.two_values", **words)
        setting = counts
    imported.settings[setting.name] = setting


def _says_nothing(setting: Setting) -> bool:
    # A dump of transformers 4 has 0 steps of warmup beside a ratio.
    is_warmup = setting.name == "warmup_steps" and attempt(decimal_number, setting.value) == 0
    return is_nothing(setting.value) or is_warmup


def is_known(name: str) -> bool:
    """Some version of the Trainer, or a script around it, has an argument of this name."""
    return name in table.TRAINER or name in SPECIAL or name in table.RENAMED or name in table.CANONICAL


def looks_like_arguments(names: Iterable[str], least: int = 2) -> bool:
    """At least `least` of the names are the Trainer's own."""
    return len(table.TRAINERS_OWN & set(names)) >= least


def _say_unknown_data(imported: Imported) -> None:
    """Names of data that only another program's own list explains (LLaMA-Factory's dataset_info.json)."""
    for name in ("dataset_name", "validation_file", "dataset_mixer"):
        for data in imported.read(name, source_names) or ():
            if "/" not in data and data not in SAMPLES and not os.path.lexists(data) and not Path(data).suffix:
                imported.say(imported.settings[name], "unknown_data", data=data)


# The task, from what classes, scripts and arguments are called.


def task_of(name: str) -> Task | None:
    """The task that a class or a script is made for."""
    ending = next((task for end, task in table.TASK_OF_ENDING.items() if name.endswith(end)), None)
    return table.TASKS.get(name.removesuffix("_no_trainer"), ending)


def other_training(name: str) -> str:
    """What a class or script trains that trainwiz does not, marked for translation; "" for all others."""
    ending = next((what for end, what in table.OTHER_TRAININGS.items() if end[0] == "F" and name.endswith(end)), "")
    return table.OTHER_TRAININGS.get(name, ending)


def _place_task(imported: Imported, hints: list[Setting]) -> None:
    """Set the task where something names it, and say where the training is none that trainwiz does."""
    named = [(hint, task_of(hint.value)) for hint in sorted(hints, key=lambda hint: hint.name == "script")]
    named += [(setting, _task_of_argument(imported, setting)) for setting in imported.settings.values()]
    if "task" not in imported.values and (first := next((pair for pair in named if pair[1]), None)):
        imported.map(first[0], "task", first[1])
    others = [(hint, other_training(hint.value)) for hint in hints]
    others += [(setting, other_training(setting.name)) for setting in imported.settings.values()]
    if other := next((pair for pair in others if pair[1]), None):
        imported.say(other[0], "other_training", what=tr(other[1]))


def _task_of_argument(imported: Imported, setting: Setting) -> Task | None:
    name = setting.as_written()
    if name == "mlm_probability" or (name == "mlm" and imported.read("mlm", yes_or_no)):
        return "masked-lm"
    if name in SEQ2SEQ_ARGUMENTS or (name == "predict_with_generate" and imported.read(name, yes_or_no)):
        return "seq2seq"
    if name in ("task_type", "lora_task_type"):
        kind = (attempt(text_value, setting.value) or "").rpartition(".")[2].upper()
        return table.TASKS.get(kind)
    return None


# What is left out.


def _set_defaults(imported: Imported, program: str) -> None:
    """Defaults of the class for what the text says nothing of; what it says and nobody can know has none."""
    defaults = {
        name: (key, value)
        for name, (key, value) in table.DEFAULTS.items()
        if name not in imported.settings and key not in imported.values
    }
    length = imported.settings.get("max_seq_length")
    if program == "SFTConfig" and length is None:
        defaults |= [table.TRL_LENGTH]
    elif program == "SFTConfig" and length is not None and is_nothing(length.value):
        imported.say(length, "cuts_nothing")
    if "training.max_steps" in imported.values:
        defaults.pop("num_train_epochs", None)
    if "learning_rate" in defaults:
        defaults["learning_rate"] = ("training.learning_rate", table.RATES.get(program, DEFAULT_LEARNING_RATE))
    said = {name: f"{value:g}" for name, (_, value) in defaults.items()}
    imported.defaults.update(defaults.values())
    if not _half_is_open(imported, program) and "engine.precision" not in imported.values:
        imported.defaults["engine.precision"] = "fp32"
        said["fp16"] = "off"
    # An adapter that is gone on from has its own.
    new = imported.values.get("peft.method") == "lora" and "peft.adapter" not in imported.values
    if new and program == "SFTConfig":
        imported.defaults |= {key: value for key, value in table.TRL_LORA.items() if key not in imported.values}
        if "peft.targets" not in imported.values:
            imported.say(None, "other_targets")
    if said:
        words = ", ".join(f"{name} {value}" for name, value in said.items())
        imported.say(None, "library_defaults", program=program, said=words)


def _half_is_open(imported: Imported, program: str) -> bool:
    """fp16 or bf16 is on, nobody can know, or the class chooses by itself (TRL: bf16 from 0.20 on)."""
    named = [imported.settings[name] for name in ("fp16", "bf16") if name in imported.settings]
    if any(isinstance(setting.value, Unresolved) or imported.read(setting.name, yes_or_no) for setting in named):
        return True
    return not named and program in table.RATES


# Arguments in a file: YAML or JSON, flat or in sections.

PLACEHOLDER = re.compile(r"<[A-Z_]+>|\$\{[^}]*\}|\$\w+|\{\{[^}]*\}\}")
"""A value that is filled in later: <HUB_TOKEN>, ${oc.env:LR}, $LR, {{ lr }}."""


def read(document: Document, file: str) -> Imported:
    """The settings of a file, in sections or not."""
    imported = document.opened("training_arguments", file)
    settings = list(_settings(document, document.values, ""))
    axolotl = {"base_model", "datasets"} <= set(document.values)
    known = looks_like_arguments(setting.name for setting in settings) and not axolotl
    fill(imported, settings, program="TrainingArguments" if known else None)
    return imported


def _settings(document: Document, values: Mapping[Any, Any], above: str) -> Iterator[Setting]:
    """The settings of a mapping and of its sections; a mapping that is the value of a known setting stays whole."""
    for key, value in values.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and value and not is_known(str(key)):
            yield from _settings(document, value, f"{name}.")
            continue
        if isinstance(value, str) and PLACEHOLDER.fullmatch(value.strip()):
            value = Unresolved(value.strip())
        # Files may spell names as on a command line: per-device-train-batch-size.
        yield Setting(str(key).replace("-", "_").lstrip("_"), value, document.lines.get(name), str(key))
