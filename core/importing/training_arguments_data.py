"""The data and its lengths, as scripts around the Trainer name them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwiz.core.data.samples import SAMPLES
from trainwiz.core.importing.training_arguments_setting import (
    Setting,
    Unresolved,
    WrongValue,
    decimal_number,
    text_list,
    text_value,
    whole_number,
    yes_or_no,
)
from trainwiz.core.importing.training_arguments_sheet import Place, Sheet, direct
from trainwiz.core.language import mark, tr

NO_TEMPLATE = mark("trainwiz applies no chat template.")
NO_DATA_SET = mark("The data set that it describes is not named.")
SEVERAL = mark("Several data sets are named, and it does not say for which one it is.")
NO_LIMIT = mark("It sets no limit.")
OFF = mark("It is off, as in a run of trainwiz.")
SHARES = mark("trainwiz mixes data sets by their rows, without weights of its own.")
LIST_MARK = re.compile(r"\s*,\s*")


def source_names(value: Any) -> list[str]:
    """The data sets of one setting: a name, a list, "a,b", or a mapping of names to shares (dataset_mixer)."""
    if isinstance(value, Mapping):
        return [text_value(name) for name in value if not isinstance(name, Unresolved)]
    if isinstance(value, list | tuple):
        if any(isinstance(item, Mapping) for item in value):
            return [text_value(item.get("path", item.get("id"))) for item in value if isinstance(item, Mapping)]
        return [text_value(item) for item in value]
    names = [name for name in LIST_MARK.split(text_value(value)) if name]
    if not names:
        raise WrongValue(value)
    return names


def _sources(sheet: Sheet, setting: Setting) -> None:
    names = source_names(setting.value)
    if len(names) == 1:
        sheet.map(setting, "data.sources.0.name", names[0])
    else:
        sheet.map(setting, "data.sources", [{"name": name} for name in names])


def _mixed(sheet: Sheet, setting: Setting) -> None:
    if "dataset_name" in sheet:
        sheet.drop(setting, SHARES)
    else:
        _sources(sheet, setting)


def _of_source(name: str, convert: Any) -> Place:
    """A detail of the one data set; without its name, or with several, there is nothing that it belongs to."""

    def place(sheet: Sheet, setting: Setting) -> None:
        named = sheet.read("dataset_name", source_names) or sheet.read("dataset_mixer", source_names)
        if named is None:
            sheet.drop(setting, NO_DATA_SET)
        elif len(named) > 1:
            sheet.drop(setting, SEVERAL)
        else:
            sheet.map(setting, f"data.sources.0.{name}", convert(setting.value))

    return place


def _most_rows(value: Any) -> int:
    rows = whole_number(value)
    if rows < 1:
        raise WrongValue(value)
    return rows


def _validation(sheet: Sheet, setting: Setting) -> None:
    sheet.map(setting, "data.validation_sources", [{"name": name} for name in source_names(setting.value)])


def _evaluated_rows(sheet: Sheet, setting: Setting) -> None:
    """At most so many rows: of the validation file, or held out."""
    rows = whole_number(setting.value)
    names = sheet.read("validation_file", source_names)
    if rows < 1:
        sheet.drop(setting, NO_LIMIT)
    elif names:
        sheet.map(setting, "data.validation_sources", [{"name": name, "max_rows": rows} for name in names])
    else:
        sheet.map(setting, "data.validation_rows", rows)


def _length(sheet: Sheet, setting: Setting) -> None:
    length = whole_number(setting.value)
    if length < 1:
        sheet.drop(setting, NO_LIMIT)
    else:
        sheet.map(setting, "batch.sequence_length", length)


def _line_by_line(sheet: Sheet, setting: Setting) -> None:
    sheet.map(setting, "data.concatenate", not yes_or_no(setting.value))


def text_column(value: Any) -> str:
    name = text_value(value)
    if len(text_list(name)) != 1:
        raise WrongValue(value)
    return name


def _packing(sheet: Sheet, setting: Setting) -> None:
    """TRL, LLaMA-Factory: several whole rows in one sequence. Texts joined and cut are something else."""
    packs = yes_or_no(setting.value)
    sheet.map(setting, "data.packing", packs)
    if packs:
        message = tr(
            "{name}: rows lie end to end and each sees itself alone (data.packing); a step counts rows here, and packed "
            "sequences in the program that it is from: check the effective batch.",
            name=setting.as_written(),
        )
        sheet.warn(setting, "packing_counts_rows", message)


def _template(sheet: Sheet, setting: Setting) -> None:
    sheet.drop(setting, NO_TEMPLATE)
    message = tr(
        "{name}: no chat template is applied here; the model learns from the columns as they are.",
        name=setting.as_written(),
    )
    sheet.warn(setting, "no_template", message)


def say_unknown_data(sheet: Sheet) -> None:
    """Names of data that only another program's own list explains (LLaMA-Factory's dataset_info.json)."""
    for name in ("dataset_name", "validation_file", "dataset_mixer"):
        for data in sheet.read(name, source_names) or ():
            if "/" in data or data in SAMPLES or os.path.lexists(data) or Path(data).suffix:
                continue
            message = tr(
                "{data}: no file or folder of that name is here, and it names no owner as data sets of the hub do "
                "(OWNER/NAME). Give the file that is meant: --dataset FILE.",
                data=data,
            )
            sheet.warn(sheet.settings[name], "unknown_data", message)


DATA_PLACES: Mapping[str, Place] = {
    "dataset_name": _sources,
    "dataset_mixer": _mixed,
    "datasets": _mixed,
    "dataset_config_name": _of_source("subset", text_value),
    "dataset_train_split": _of_source("split", text_value),
    "text_column": _of_source("text_column", text_column),
    "target_column": _of_source("target_column", text_column),
    "max_train_samples": _of_source("max_rows", _most_rows),
    "validation_file": _validation,
    "max_eval_samples": _evaluated_rows,
    "max_seq_length": _length,
    "max_target_length": direct("batch.target_length", whole_number),
    "packing": _packing,
    "concatenate": direct("data.concatenate", yes_or_no),
    **dict.fromkeys(("template", "chat_template", "chat_template_path"), _template),
    "pad_to_multiple_of": direct("data.pad_to_multiple_of", whole_number),
    "line_by_line": _line_by_line,
    "streaming": direct("data.streaming", yes_or_no),
    "mlm_probability": direct("training.mask_probability", decimal_number),
}
