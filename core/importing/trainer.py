"""The arguments of the Trainer and of programs around it: what becomes of each, and of what is left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainwiz.core.config.yaml_text import YamlDocument
from trainwiz.core.estimate.architecture import ALL_LINEAR
from trainwiz.core.importing import names as table
from trainwiz.core.importing.engines import named_file, read_deepspeed, settings_of
from trainwiz.core.importing.report import (
    UNSET,
    Became,
    Imported,
    Rule,
    Setting,
    Unresolved,
    WrongValue,
    for_each,
    number,
    shown,
    word,
)
from trainwiz.core.language import mark
from trainwiz.core.text import parse_json

WEIGHTS_ARE_BF16 = mark("The weights are loaded in bf16, which decides the precision.")

# Settings with which others decide.


def _micro_batch(imported: Imported, setting: Setting) -> Became:
    if setting.as_written().replace("-", "_") in table.LOOSE:
        imported.say(setting, "assumed_meaning")
    return {"batch.micro_batch_size": setting.value}


def _schedule_options(imported: Imported, setting: Setting) -> Became:
    """The learning rate of the last step, where the options say it."""
    options = setting.value
    with suppress(ValueError):
        # A command has it as JSON.
        options = parse_json(options) if isinstance(options, str) else options
    if not isinstance(options, Mapping):
        raise WrongValue
    end = options.get("min_lr", options.get("lr_end"))
    share, peak = number(options.get("min_lr_rate")), imported.number("learning_rate")
    if end is None and share is not None and peak is not None:
        end = float(f"{peak * share:.6g}")
    if end is None:
        return mark("trainwiz has no setting for these schedule options.")
    return {"training.final_learning_rate": end}


def _warmup(imported: Imported, setting: Setting) -> Became:
    warmup = number(setting.value)
    if setting.as_written() == "warmup_ratio" and warmup is not None and warmup >= 1:
        # A ratio of 1 would be read as one step.
        raise WrongValue
    if warmup and imported.word("lr_scheduler_type") == "constant":
        return mark("The `constant` schedule has no warmup.")
    if warmup == 0 and ("training.warmup" in imported.values or imported.settings["warmup_steps"] is not setting):
        # A dump of transformers 4 has 0 steps of warmup beside a ratio, or a ratio of 0 beside steps.
        return UNSET
    return {"training.warmup": setting.value}


STEPS = {
    "logging_steps": "logging.every_steps", "save_steps": "checkpoint.every_steps", "eval_steps": "evaluation.every_steps",
}  # fmt: skip


def _every(imported: Imported, setting: Setting) -> Became:
    """Every so many steps, unless the strategy beside it counts something else. Without a strategy the Trainer would not
    evaluate; scripts that take eval_steps alone mean steps."""
    if imported.word(setting.name.replace("_steps", "_strategy")) not in ("", "steps"):
        return mark("The corresponding strategy does not count steps.")
    return {STEPS[setting.name]: setting.value}


def _eval_strategy(imported: Imported, setting: Setting) -> Became:
    strategy = word(setting.value)
    if strategy == "epoch":
        return {"evaluation.every_epoch": True}
    if strategy == "steps":
        steps = imported.number("eval_steps") or imported.number("logging_steps")
        return {"evaluation.every_steps": steps or 500}  # TrainingArguments.logging_steps
    if strategy != "no":
        raise WrongValue
    if imported.word("do_eval") == "yes":
        return mark("With do_eval, the model is evaluated at the end, as in every run.")
    return {"data.validation_rows": 0}


def _bf16(imported: Imported, setting: Setting) -> Became:
    return WEIGHTS_ARE_BF16 if _weights_are_bf16(imported) else table.BF16(imported, setting)


def _weights_are_bf16(imported: Imported) -> bool:
    """Weights that are loaded in bf16 and all trained stay in bf16."""
    is_bf16 = imported.word("dtype") in ("bfloat16", "bf16")
    return is_bf16 and not wants_adapters(imported) and imported.word("fp16") != "yes"


def _dtype(imported: Imported, setting: Setting) -> Became:
    if _weights_are_bf16(imported):
        return {"engine.precision": "bf16-true"}
    if word(setting.value) in ("float32", "fp32") and "yes" not in (imported.word("fp16"), imported.word("bf16")):
        return {"engine.precision": "fp32"}
    return mark("Weights are loaded in the format that the precision needs.")


def _deepspeed(imported: Imported, setting: Setting) -> Became:
    """A file's name, or the settings themselves, which are read as the file would be."""
    given = setting.value
    if isinstance(given, Mapping):
        imported.inner.append(read_deepspeed(YamlDocument(Path(imported.file), dict(given), {}), imported.file))
        return table.IN_THAT_FILE
    if given is True:
        # deepspeed.add_config_arguments has a bare --deepspeed, beside which --deepspeed_config names the file.
        return table.ONLY_ENABLES
    return named_file(imported, setting)


# The model and its adapters.


def _model(imported: Imported, setting: Setting) -> Became:
    """run_clm.py: `config_name` alone makes a model from scratch, beside a model it changes its config."""
    is_config = setting.name == "config_name"
    if is_config and "model_name_or_path" in imported.settings:
        return mark("The model includes its own config.")
    return {"model.name": setting.value, "model.init": "scratch" if is_config else "pretrained"}


LORA_SETTINGS = ("lora_r", "lora_alpha", "lora_dropout", "lora_target_modules")


def wants_adapters(imported: Imported) -> bool:
    """Something asks for LoRA: a switch that is on, or its settings where no switch is there."""
    if "use_peft" in imported.settings:
        return imported.word("use_peft") == "yes"
    if "finetuning_type" in imported.settings:
        return "lora" in imported.word("finetuning_type")
    return any(name in imported.settings for name in LORA_SETTINGS)


def _targets(_: Imported, setting: Setting) -> Became:
    targets = setting.value
    if word(targets) in ("all-linear", "all", "all_linear", "all-layers"):
        return {"peft.targets": list(ALL_LINEAR)}
    if isinstance(targets, str) and not re.fullmatch(r"[\w., ]+", targets):
        # A regular expression, which peft takes and a list of names is not.
        raise WrongValue
    return {"peft.targets": re.findall(r"[\w.]+", targets) if isinstance(targets, str) else targets}


# The data.

OF_SOURCE = {"path": "name", "id": "name", "split": "split", "name": "subset"}
"""Keys of an entry of axolotl's `datasets`."""


def _sources(imported: Imported, setting: Setting) -> list[dict[str, Any]]:
    """What a setting names: a name, "a,b", a list of names or of entries, of which the rest is left unknown."""
    value = re.split(r"\s*,\s*", setting.value.strip(" ,")) if isinstance(setting.value, str) else setting.value
    entries = [
        item if isinstance(item, Mapping) else {"path": item}
        for item in (value if isinstance(value, list) else [value])
    ]
    if not all({"path", "id"} & set(entry) for entry in entries):
        raise WrongValue
    for entry in entries:
        for name in entry.keys() - OF_SOURCE:
            imported.leave_unknown(Setting(f"{setting.as_written()}.{name}", entry[name], setting.line))
    return [{OF_SOURCE[name]: entry[name] for name in OF_SOURCE if name in entry} for entry in entries]


def _data(imported: Imported, setting: Setting) -> Became:
    sources = _sources(imported, setting)
    if len(sources) > 1:
        return {"data.sources": sources}
    return {f"data.sources.0.{key}": value for key, value in sources[0].items()}


SOURCE = {
    "dataset_config_name": "subset", "dataset_train_split": "split", "text_column": "text_column", "target_column":
    "target_column", "max_train_samples": "max_rows",
}  # fmt: skip


def _of_source(imported: Imported, setting: Setting) -> Became:
    """A detail of the one data set, which is placed before it."""
    if "data.sources.0.name" not in imported.values:
        return mark("It describes one dataset, and none or several are specified.")
    return {f"data.sources.0.{SOURCE[setting.name]}": setting.value}


def _validation(imported: Imported, setting: Setting) -> Became:
    return {"data.validation_sources": _sources(imported, setting)}


def _evaluated_rows(imported: Imported, setting: Setting) -> Became:
    """At most so many rows, held out where no validation file is named."""
    if 0 < (number(setting.value) or 0) < 1:
        return mark("It is a share of the rows; a run holds out a fixed number of rows (data.validation_rows).")
    if "validation_file" in imported.settings:
        return mark("A run evaluates all rows of the validation file, unless data.validation_sources limits them.")
    return {"data.validation_rows": setting.value}


def _packing(imported: Imported, setting: Setting) -> Became:
    """TRL, LLaMA-Factory, axolotl: several whole rows in one sequence. Texts joined and cut are something else."""
    if word(setting.value) == "yes":
        imported.say(setting, "packing_counts_rows")
    return {"data.packing": setting.value}


def _chat_template(_: Imported, setting: Setting) -> Became:
    """A file, or one of two names; the model whose template is meant is none."""
    template = {"tokenizer_default": "own"}.get(str(setting.value), str(setting.value))
    if template in ("own", "chatml") or template.endswith(".jinja"):
        return {"model.chat_template": template}
    return mark("trainwiz has no chat template of this name; give its file with model.chat_template.")


def _metric(_: Imported, setting: Setting) -> Became:
    return {"evaluation.metric": f"eval_{str(setting.value).removeprefix('eval_')}"}


def _reporters(_: Imported, setting: Setting) -> Became:
    value = setting.value
    if value in (None, "all", ["all"]):
        return mark("`all` means everything that is installed; list the reporters with --report-to.")
    return {"logging.report_to": re.split(r"[,\s]+", value) if isinstance(value, str) else value or ["none"]}


RULES: Mapping[str, Rule] = {
    **table.TRAINER,
    **for_each({
        "per_device_train_batch_size": _micro_batch,
        "lr_scheduler_kwargs": _schedule_options,
        "warmup_steps": _warmup,
        " ".join(STEPS): _every,
        "eval_strategy": _eval_strategy,
        "bf16": _bf16,
        "dtype": _dtype,
        "deepspeed": _deepspeed,
        "model_name_or_path config_name": _model,
        "lora_target_modules": _targets,
        "dataset_name": _data,
        " ".join(SOURCE): _of_source,
        "validation_file": _validation,
        "max_eval_samples val_size": _evaluated_rows,
        "packing": _packing,
        "metric_for_best_model": _metric,
        "report_to": _reporters,
        "chat_template chat_template_path": _chat_template,
    }),
}  # fmt: skip


def is_known(name: str) -> bool:
    """Some version of the Trainer, or a script around it, has an argument of this name."""
    return name in RULES or name in table.CANONICAL


def meaning(name: str, value: str) -> tuple[str, str]:
    """The key of a run that this argument sets, with what the value is called there, or "" where it is the same; two empty
    texts where it sets none."""
    setting = Setting(table.CANONICAL.get(name, name), value)
    rule = RULES.get(setting.name)
    try:
        became = rule(Imported("training_arguments", ""), setting) if callable(rule) else None
    except WrongValue:
        return "", ""
    for key, means in became.items() if isinstance(became, Mapping) else ():
        given = ",".join(map(str, means)) if isinstance(means, list) else str(means).lower()
        return key, "" if value.lower() in given.lower() else given
    return "", ""


# All settings of one text.


def fill(imported: Imported, settings: Iterable[Setting], hints: Sequence[Setting] = (), program: str = "") -> None:
    """Put every setting into the report. `hints` are the classes and scripts that the text names; of the class
    `program` ("SFTConfig") the defaults hold for what is left out, of none where it is empty."""
    imported.program = program
    called = [setting.called(table.CANONICAL.get(setting.name, setting.name)) for setting in settings]
    # Of several spellings of one setting today's counts: steps of a warmup win over its ratio (get_warmup_steps of 4.x).
    called.sort(key=lambda one: (one.name != "dataset_name", one.name == one.as_written().replace("-", "_")))

    imported.take(called, lambda setting: RULES.get(setting.name))
    _place_task(imported, hints)
    if wants_adapters(imported) and "peft.method" not in imported.values:
        asked = next(imported.settings[name] for name in LORA_SETTINGS if name in imported.settings)
        imported.map(asked, "peft.method", "lora")
    if program:
        _set_defaults(imported)


SAYS_THE_TASK = ("task_type", "lora_task_type", "stage", "rl")
"""Settings whose values name a task or a kind of training; of others the name may."""


def _place_task(imported: Imported, hints: Sequence[Setting]) -> None:
    """Set the task where something names it, and say where the training is none that trainwiz does."""
    given = [one for one in imported.settings.values() if word(one.value) != "no"]
    named = [(hint, re.sub("(_no_trainer|_wwm)+$", "", str(hint.value))) for hint in hints]
    named += [(one, word(one.value) if one.name in SAYS_THE_TASK else one.as_written()) for one in given]
    tasks = [
        (one, task) for one, name in named for task, ends in table.ENDINGS.items() if name.endswith(tuple(ends.split()))
    ]
    if tasks and "task" not in imported.values:
        imported.map(tasks[0][0], "task", tasks[0][1])
    if other := next((pair for pair in named if pair[1].endswith(tuple(table.OTHER_ENDINGS))), None):
        imported.say(other[0].line, "other_training", name=other[1])


def take_defaults(imported: Imported, defaults: table.Defaults) -> None:
    """Those that hold for what the text says nothing of; what it says and nobody can know has none."""
    said: list[str] = []
    for name, (key, value) in defaults.items():
        if name not in imported.settings and key not in imported.values:
            imported.defaults[key] = value
            said.append(f"{name} {shown(value)}")
    if said:
        imported.say(None, "library_defaults", program=imported.program, said=", ".join(said))


def _set_defaults(imported: Imported) -> None:
    values, is_sft = imported.values, imported.program == "SFTConfig"
    defaults = dict(table.SFT_DEFAULTS if is_sft else table.TRAINER_DEFAULTS)
    if "training.max_steps" in values:
        del defaults["num_train_epochs"]
    halves = {imported.word(name) for name in ("fp16", "bf16") if name in imported.settings}
    # SFTConfig chooses bf16 by itself where neither is set (from 0.20 on).
    if halves == {"no"} or not (halves or is_sft):
        defaults["precision"] = ("engine.precision", "fp32")
    # An adapter that is gone on from has its own.
    has_adapters = values.get("peft.method") == "lora" and "peft.adapter" not in values
    if is_sft:
        defaults |= table.TRL_LORA if has_adapters else {}
        if "training.train_on" not in values:
            imported.say(None, "trl_learns_more")
    if has_adapters and "peft.targets" not in values:
        imported.say(None, "other_targets")
    take_defaults(imported, defaults)


# Arguments in a file: YAML or JSON, flat or in sections.

PLACEHOLDER = re.compile(r"<[A-Z_]+>|\$\{[^}]*\}|\$\w+|\{\{[^}]*\}\}")
"""A value that is filled in later: <HUB_TOKEN>, ${oc.env:LR}, $LR, {{ lr }}."""


def read(document: YamlDocument, file: str) -> Imported:
    """The settings of a file, in sections or not; a mapping that is the value of a known setting stays whole."""
    imported = Imported("training_arguments", file)
    flat = settings_of(document.values, document.lines, lambda name: not is_known(name.rpartition(".")[2]))
    settings: list[Setting] = []
    for setting in flat:
        key, value = setting.name.rpartition(".")[2], setting.value
        if isinstance(value, str) and PLACEHOLDER.fullmatch(value.strip()):
            value = Unresolved(value.strip())
        # Files may spell names as on a command line: per-device-train-batch-size.
        settings.append(Setting(key.replace("-", "_").lstrip("_"), value, setting.line, key))
    axolotl = {"base_model", "datasets"} <= set(document.values)
    known = len(table.TRAINERS_OWN & {setting.name for setting in settings}) >= 2 and not axolotl
    fill(imported, settings, program="TrainingArguments" if known else "")
    return imported
