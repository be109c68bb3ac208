"""Columns that nobody named, found by the names that a file has, so that the plan shows them and run.yaml keeps them."""

from __future__ import annotations

from pathlib import Path

from trainwiz.core.config import DataSource, RunConfig
from trainwiz.core.config.values import Task
from trainwiz.core.errors import TrainwizError
from trainwiz.core.language import tr


def detect_columns(config: RunConfig, folder: Path | None = None) -> RunConfig:
    """A copy with text_column and target_column of each source filled in where the file leaves no doubt.

    A causal-lm source with a prompt and a response column learns the responses. Nothing is asked of
    the hub. What cannot be read or decided stays open: summarize_data has the sentence for it.
    Relative paths are from `folder` (default: here).
    """
    if config.task == "masked-lm":
        return config
    values: dict[str, str] = {}
    reasons: dict[str, str] = {}
    named = [
        *((f"data.sources.{number}", source) for number, source in enumerate(config.data.sources)),
        *(
            (f"data.validation_sources.{number}", source)
            for number, source in enumerate(config.data.validation_sources)
        ),
    ]
    for key, source in named:
        for column, (name, reason) in _detected(config, source, key, folder or Path.cwd()).items():
            values[f"{key}.{column}"] = name
            reasons[f"{key}.{column}"] = reason
    return config.with_values(values, "detected", reasons) if values else config


def _detected(config: RunConfig, source: DataSource, key: str, folder: Path) -> dict[str, tuple[str, str]]:
    """ "text_column" or "target_column" -> (name, reason) of what is open and without doubt."""
    if source.text_column is not None and (source.target_column is not None or config.task == "causal-lm"):
        return {}
    # pyarrow is not worth loading for a plan that names its columns.
    from trainwiz.core.data.columns import chooses_by_position, find_columns, pair_of
    from trainwiz.core.data.formats import open_reader
    from trainwiz.core.data.sources import find_files

    try:
        files = find_files(source, key, folder, ask=False)
        path = files.files[0]
        columns = open_reader(path, files.kind, by_position=chooses_by_position(source)).columns
        if len(columns) < 2:
            return {}
        pair = pair_of(columns) if source.text_column is None and source.target_column is None else None
        has_target = config.task == "seq2seq" or source.target_column is not None or pair is not None
        positions = find_columns(columns, source, str(path), key, config.task, has_target)
    except TrainwizError:
        return {}
    names = dict(zip(("text_column", "target_column"), (columns[index].name for index in positions), strict=False))
    return {
        side: (name, _reason(path, name, [column.name for column in columns], list(names.values()), config.task))
        for side, name in names.items()
        if getattr(source, side) is None
    }


def _reason(path: Path, name: str, names: list[str], taken: list[str], task: Task) -> str:
    from trainwiz.core.data.columns import is_usual

    left = [other for other in names if other not in taken]
    if not is_usual(name, task):
        return tr("the only other text column of {file}", file=path.name)
    if left:
        return tr("by its name in {file}; not used: {columns}", file=path.name, columns=", ".join(left))
    return tr("by its name in {file}", file=path.name)
