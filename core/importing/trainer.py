"""The arguments of the Trainer and of programs around it: from a file, a script or a command into a report."""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from trainwiz.core.config.values import Task
from trainwiz.core.data.formats import SAMPLES
from trainwiz.core.importing import names as table
from trainwiz.core.importing.names import words
from trainwiz.core.importing.places import DEFAULT_LEARNING_RATE, SPECIAL
from trainwiz.core.importing.report import Document, Imported, Setting, refusal
from trainwiz.core.importing.values import (
    Script,
    Unresolved,
    attempt,
    decimal_number,
    dotted,
    is_nothing,
    source,
    source_names,
    text_value,
    yes_or_no,
)
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text, within_bounds

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
    return imported.of_today(setting, table.RENAMED)


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
    if name in ("task_type", "lora_task_type"):
        return table.TASKS.get((attempt(text_value, setting.value) or "").rpartition(".")[2].upper())
    is_switch = name in ("mlm", "predict_with_generate")
    return table.TASK_OF_ARGUMENT.get(name) if not is_switch or imported.read(name, yes_or_no) else None


# What is left out.


def set_defaults(imported: Imported, defaults: Mapping[str, tuple[str, int | float]]) -> dict[str, int | float]:
    """Those that hold for what the text says nothing of; what it says and nobody can know has none."""
    open_ = {
        name: (key, value)
        for name, (key, value) in defaults.items()
        if table.CANONICAL.get(name, name) not in imported.settings and key not in imported.values
    }
    imported.defaults.update(open_.values())
    return {name: value for name, (_, value) in open_.items()}


def _set_defaults(imported: Imported, program: str) -> None:
    defaults = {**(table.SFT_DEFAULTS if program == "SFTConfig" else table.DEFAULTS)}
    defaults["learning_rate"] = ("training.learning_rate", table.RATES.get(program, DEFAULT_LEARNING_RATE))
    if "training.max_steps" in imported.values:
        del defaults["num_train_epochs"]
    said = {name: f"{value:g}" for name, value in set_defaults(imported, defaults).items()}
    if not _half_is_open(imported, program) and "engine.precision" not in imported.values:
        imported.defaults["engine.precision"] = "fp32"
        said["fp16"] = "off"
    # An adapter that is gone on from has its own.
    if (
        program == "SFTConfig"
        and imported.values.get("peft.method") == "lora"
        and "peft.adapter" not in imported.values
    ):
        set_defaults(imported, table.TRL_LORA)
        if "peft.targets" not in imported.values:
            imported.say(None, "other_targets")
    length = imported.settings.get("max_seq_length")
    if program == "SFTConfig" and length is not None and is_nothing(length.value):
        imported.say(length, "cuts_nothing")
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
    """The settings of a file, in sections or not; a mapping that is the value of a known setting stays whole."""
    imported = Imported("training_arguments", file)
    settings = [_as_spelt(one) for one in document.flat(lambda name: not is_known(name.rpartition(".")[2]))]
    axolotl = {"base_model", "datasets"} <= set(document.values)
    known = looks_like_arguments(setting.name for setting in settings) and not axolotl
    fill(imported, settings, program="TrainingArguments" if known else None)
    return imported


def _as_spelt(setting: Setting) -> Setting:
    """Files may spell names as on a command line: per-device-train-batch-size."""
    key, value = setting.name.rpartition(".")[2], setting.value
    if isinstance(value, str) and PLACEHOLDER.fullmatch(value.strip()):
        value = Unresolved(value.strip())
    return Setting(key.replace("-", "_").lstrip("_"), value, setting.line, key)


# Arguments as calls in Python source. The source is parsed, never imported or run.

ARGUMENT_ENDS = ("TrainingArguments", "TrainingArgs")
CONFIG_CLASSES = words(
    "SFTConfig DPOConfig KTOConfig ORPOConfig CPOConfig GRPOConfig RLOOConfig PPOConfig RewardConfig GKDConfig BCOConfig "
    "OnlineDPOConfig XPOConfig NashMDConfig PRMConfig"
)
"""TRL's children of TrainingArguments."""
FILE_READERS = words("json csv parquet text arrow")
"""First argument of load_dataset for data_files."""
DATA_FILES: Mapping[str, str] = {"train": "dataset_name", "validation": "validation_file", "test": "test_file"}
LORA = ("LoraConfig", "AdaLoraConfig", "get_peft_model")
LORA_NAMES = {"r": "lora_r", "target_modules": "lora_target_modules"}
NOT_OF_LORA = words("model peft_type use_gradient_checkpointing random_state max_seq_length")
FIRST: Mapping[str, tuple[str, ...]] = {
    "load_dataset": ("dataset_name", "dataset_config_name"), "SFTTrainer": ("model_name_or_path",),
    "Model": ("model_name_or_path",),
}  # fmt: skip
"""What is called -> the settings that its first arguments are; keywords are called as settings of a file."""
TAKES_KEYWORDS = ("Trainer", "BitsAndBytesConfig", "load_dataset", "Model")
CALLED = {"path": "dataset_name", "name": "dataset_config_name"}
CHANGES_ROWS = words("map filter train_test_split rename_column rename_columns remove_columns")
OWN_CODE = frozenset({"formatting_func", "compute_loss_func"})


# The calls that say how a script trains.


def read_python(text: str, file: str) -> Imported:
    """Raises NotImportable for what is no Python, and for a script that says nothing of a training."""
    imported = Imported("training_arguments", file)
    script = Script(parsed(text, file))
    settings: dict[str, Setting] = {}
    hints: list[Setting] = []
    programs: list[Setting] = []
    firsts: dict[str, ast.Call] = {}
    for call in script.calls:
        name, given = _name(call), _given(call)
        if name.endswith(ARGUMENT_ENDS) or name in CONFIG_CLASSES:
            programs.append(Setting("class", name, call.lineno))
            if len(programs) > 1:
                continue
            # What the Trainer is given counts before what other calls say.
            settings |= {setting.name: setting for setting in _all_keywords(script, call, imported)}
            if call.args:
                settings["output_dir"] = Setting("output_dir", script.value(call.args[0]), call.lineno)
        for setting in _settings(script, call, imported):
            settings.setdefault(setting.name, setting)
        hint = dotted(call.func).split(".")[-2:][0] if name in ("from_pretrained", "from_config") else name
        if task_of(hint) or other_training(hint):
            hints.append(Setting("class", hint, call.lineno))
        firsts.setdefault("parser" if name.endswith(("ArgumentParser", "TrlParser")) else name, call)
        if name in CHANGES_ROWS or OWN_CODE & set(given):
            firsts.setdefault("changes", call)
    for key, value in script.changed.items():
        # What a script changes of its arguments one by one, only a run could follow.
        if key in settings or (programs and is_known(key)):
            settings[key] = Setting(key, Unresolved(source(value)), value.lineno)
            imported.say(settings[key], "changed_later")
    parser, trl, changes = (firsts.get(name) for name in ("parser", "SFTTrainer", "changes"))
    if not programs and not settings:
        what = "not_importable.from_command" if parser else "not_importable.kinds"
        raise refusal(what, file, parser.lineno if parser else None)
    # SFTTrainer without arguments makes an SFTConfig of its own.
    alone = trl is not None and len(trl.args) < 2 and "args" not in _given(trl)
    fill(imported, settings.values(), hints, programs[0].value if programs else "SFTConfig" if alone else None)
    if "use_peft" in settings and settings["use_peft"].written in LORA:
        set_defaults(imported, table.LORA_DEFAULTS)
    if changes and (trl or imported.program == "SFTConfig"):
        imported.say(changes.lineno, "rows_changed")
    if len(programs) > 1:
        imported.say(programs[0].line, "several_trainings.several_calls", name=programs[0].value, count=len(programs))
    return imported


def _name(call: ast.Call) -> str:
    return dotted(call.func).rpartition(".")[2] or getattr(call.func, "attr", "")


def _given(call: ast.Call) -> dict[str, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def _settings(script: Script, call: ast.Call, imported: Imported) -> Iterator[Setting]:
    """What one call says. Of a setting that several calls have, the first counts: a second model is a teacher."""
    name, given, line = _name(call), _given(call), call.lineno
    kind, written = name, ""
    if name in LORA and ("r" in given or name != "get_peft_model"):
        yield Setting("use_peft", True, line, name)
        for setting in _all_keywords(script, call, imported):
            if setting.name not in NOT_OF_LORA:
                yield setting.called(LORA_NAMES.get(setting.name, setting.name))
    elif name == "from_pretrained":
        owner = dotted(call.func).split(".")[-2:][0]
        written = f"{owner}.{name}"
        if not owner.endswith(("Tokenizer", "TokenizerFast", "Processor", "Config")) and "AutoPeft" not in owner:
            kind = "Model"
    elif name == "load_dataset" and call.args and script.value(call.args[0]) in FILE_READERS:
        files = script.value(given["data_files"]) if "data_files" in given else {}
        for split, value in (files if isinstance(files, dict) else {"train": files}).items():
            if split in DATA_FILES:
                yield Setting(DATA_FILES[split], value, given["data_files"].lineno, f"data_files.{split}")
        return
    for role, node in zip(FIRST.get(kind, ()), call.args, strict=False):
        value = script.value(node)
        if kind != "SFTTrainer" or isinstance(value, str):
            yield Setting(role, value, node.lineno, written)
    # Of such a call only constants are taken: `model=model` names nothing.
    for keyword, node in given.items() if kind.endswith(TAKES_KEYWORDS) else ():
        role, value = CALLED.get(keyword, keyword) if kind == "load_dataset" else keyword, script.value(node)
        if is_known(role) and isinstance(value, str | int | float):
            yield Setting(role, value, node.lineno, keyword)


def _all_keywords(script: Script, call: ast.Call, imported: Imported) -> Iterator[Setting]:
    for keyword in call.keywords:
        value, line = script.value(keyword.value), keyword.value.lineno
        if keyword.arg is not None:
            yield Setting(keyword.arg, value, line)
        elif isinstance(value, dict):
            yield from (Setting(name, item, line) for name, item in value.items())
        else:
            imported.leave_unknown(Setting(f"**{source(keyword.value)}", source(keyword.value), line))


def parsed(text: str, file: str) -> ast.Module:
    """Raises NotImportable for what is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text)
    except SyntaxError as error:
        raise refusal("broken_file.python_at", file, error.lineno or 1, reason=plain_text(error.msg, 120)) from None
    except (ValueError, RecursionError, MemoryError):
        raise refusal("broken_file.python", file) from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            # Hexadecimal digits of any number are read, and then neither shown nor computed with.
            node.value = within_bounds(node.value)
    return tree
