"""From a DataSource to its files."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from trainwiz.core.config import DataSource, RunConfig
from trainwiz.core.config.keys import did_you_mean
from trainwiz.core.config.values import RowKind
from trainwiz.core.data.formats import FORMATS, SAMPLES, format_of, sample_path, sample_words
from trainwiz.core.data.hub import hub_files, looks_like_hub_id
from trainwiz.core.errors import Finding, UsageError, usage_error
from trainwiz.core.files import at_home
from trainwiz.core.language import mark, tr

MOST_ENTRIES = 200_000
"""Below one folder. More than any data set has files: "/", or a home, was meant to become a longer path."""


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The files of one source, all of one format."""

    source: DataSource
    key: str
    """Key path of the source in the config, for sentences."""
    files: tuple[Path, ...]
    kind: str | None
    """Format that the user named; None: by each file's name."""


def all_sources(config: RunConfig) -> tuple[list[tuple[str, DataSource]], list[tuple[str, DataSource]]]:
    """(sources of training, sources of evaluation), each with its key path and its length limits settled.

    A source without a limit of its own takes that of the data section.
    """
    data = config.data

    def limited(source: DataSource) -> DataSource:
        low = data.min_characters if source.min_characters is None else source.min_characters
        high = data.max_characters if source.max_characters is None else source.max_characters
        return source.model_copy(update={"min_characters": low, "max_characters": high})

    train, held = (
        [(f"data.{part}.{number}", limited(source)) for number, source in enumerate(getattr(data, part))]
        for part in ("sources", "validation_sources")
    )
    return train, held


CHATS_AND_OTHERS = mark(
    "{key} is not a chat source but others are; all sources of a run must have the same kind of rows ({key}.layout)."
)
TARGETS_AND_NONE = mark("{key} has no target_column, but other sources do; set it for every source or for none.")


def target_findings(config: RunConfig) -> list[Finding]:
    """Errors for causal-lm sources of which some name a target column and some do not, or some are chats: a run has
    one kind of row."""
    if config.task != "causal-lm":
        return []
    sources = [entry for part in all_sources(config) for entry in part]
    code, setting, message = "mixed_layouts", "layout", CHATS_AND_OTHERS
    alike = {key for key, source in sources if source.layout == "chat"}
    if not alike:
        code, setting, message = "mixed_targets", "target_column", TARGETS_AND_NONE
        alike = {key for key, source in sources if source.target_column is not None}
    return [
        Finding(code, "error", f"{key}.{setting}", tr(message, key=key))
        for key, _ in sources
        if alike and key not in alike
    ]


def find_files(
    source: DataSource, key: str, folder: Path, *, task: RowKind | None = None, fetch: bool = False, ask: bool = True
) -> SourceFiles:
    """The files behind a sample name, path, folder or hub id; relative paths are from `folder`.

    With `fetch` a hub data set that is not in the local cache is downloaded; without `ask` the hub is
    not even asked for it. `task` picks the samples that sentences name. Raises UsageError with one
    sentence when there are none, a warning `data_to_download` where the hub has them.
    """
    sample = sample_path(source.name)
    if sample is not None:
        return SourceFiles(source, key, (sample,), None)
    path = folder / at_home(Path(source.name))
    if path.is_dir():
        return SourceFiles(source, key, _in_folder(path, source, key), source.format)
    if path.exists():
        return SourceFiles(source, key, (path,), source.format)
    if is_of_the_hub(source.name, folder):
        return SourceFiles(source, key, tuple(hub_files(source, key, task, ask=ask, fetch=fetch)), source.format)
    raise _missing(source.name, path, key, task)


def is_of_the_hub(name: str, folder: Path) -> bool:
    """Whether `name` can only be `owner/name` of the hub: nothing in `folder`, nor a file that is missing there."""
    path = folder / at_home(Path(name))
    return looks_like_hub_id(name) and format_of(path) is None and not path.parent.is_dir()


def _in_folder(folder: Path, source: DataSource, key: str) -> tuple[Path, ...]:
    by_format: dict[str, list[Path]] = {}
    found = list(islice(folder.rglob("*"), MOST_ENTRIES + 1))
    if len(found) > MOST_ENTRIES:
        message = tr(
            "folder {folder} contains more than {most} files and folders; specify the one that contains the data.",
            folder=folder,
            most=f"{MOST_ENTRIES:,}",
        )
        raise usage_error("missing_data", key, message)
    for path in sorted(found):
        if not path.is_file() or any(part.startswith((".", "_")) for part in path.relative_to(folder).parts):
            continue
        kind = format_of(path)
        if kind is not None:
            by_format.setdefault(kind, []).append(path)
    # Beside other data a text file is README.txt or LICENSE.txt.
    real = {kind: files for kind, files in by_format.items() if kind != "txt"} or by_format
    if source.format is not None:
        real = {kind: files for kind, files in by_format.items() if kind == source.format}
    if not real:
        wanted = source.format or ", ".join(endings[0] for endings in FORMATS.values())
        message = tr("folder {folder} contains no data file (looked for {wanted}).", folder=folder, wanted=wanted)
        raise usage_error("missing_data", key, message)
    if len(real) > 1:
        message = tr(
            "folder {folder} contains several formats ({listed}); choose one with {key}.format.",
            folder=folder,
            listed=", ".join(f"{len(files)} {kind}" for kind, files in real.items()),
            key=key,
        )
        raise usage_error("mixed_formats", key, message)
    return tuple(next(iter(real.values())))


def _missing(name: str, path: Path, key: str, task: RowKind | None) -> UsageError:
    if path.parent.is_dir():
        beside = [entry.name for entry in path.parent.iterdir()]
        near = difflib.get_close_matches(path.name, [*beside, *SAMPLES], n=1)
    else:
        near = difflib.get_close_matches(name, list(SAMPLES), n=1)
    message = tr(
        "no data at {name}: not a file, folder, Hub ID (OWNER/NAME) or sample name (samples: {samples}).",
        name=repr(name),
        samples=sample_words(task),
    )
    return usage_error("missing_data", key, message + did_you_mean([repr(near[0])] if near else []))
