"""From a DataSource to its files: here, in the cache of the Hugging Face hub, or to be downloaded."""

from __future__ import annotations

import difflib
import glob
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from trainwiz.core.catalog.hub import (
    HubAnswer,
    amount_of,
    ask_hub,
    hub_cache_folder,
    hub_endpoint,
    hub_token,
    is_hub_id,
    snapshots,
)
from trainwiz.core.catalog.models import card_of
from trainwiz.core.config import DataSource, RunConfig
from trainwiz.core.config.keys import did_you_mean
from trainwiz.core.config.values import RowKind
from trainwiz.core.data.formats import FORMATS, SAMPLES, format_of, sample_path, sample_words
from trainwiz.core.data.reader import listed
from trainwiz.core.errors import CannotRunError, Finding, Remedy, UsageError, usage_error
from trainwiz.core.files import at_home, read_small
from trainwiz.core.hardware.install import need
from trainwiz.core.language import mark, tr, trn

MOST_ENTRIES = 200_000
"""Below one folder. More than any data set has files: "/", or a home, was meant to become a longer path."""


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The files of one source, all of one format."""

    source: DataSource
    key: str
    """Key path of the source in the config, for sentences."""
    files: tuple[Path, ...]


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
        return SourceFiles(source.model_copy(update={"format": None}), key, (sample,))
    path = folder / at_home(Path(source.name))
    if path.is_dir():
        files = _in_folder(path, source, key)
    elif path.exists():
        files = (path,)
    elif is_of_the_hub(source.name, folder):
        files = tuple(hub_files(source, key, task, ask=ask, fetch=fetch))
    else:
        raise _missing(source.name, path, key, task)
    return SourceFiles(source, key, files)


def is_of_the_hub(name: str, folder: Path) -> bool:
    """Whether `name` can only be `owner/name` of the hub: nothing in `folder`, nor a file that is missing there."""
    path = folder / at_home(Path(name))
    return looks_like_hub_id(name) and format_of(path) is None and not path.parent.is_dir()


def _in_folder(folder: Path, source: DataSource, key: str) -> tuple[Path, ...]:
    found = list(islice(folder.rglob("*"), MOST_ENTRIES + 1))
    if len(found) > MOST_ENTRIES:
        message = tr(
            "folder {folder} contains more than {most} files and folders; specify the one that contains the data.",
            folder=folder,
            most=f"{MOST_ENTRIES:,}",
        )
        raise usage_error("missing_data", key, message)
    by_format: dict[str, list[Path]] = {}
    for path in sorted(found):
        kind = format_of(path)
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if kind is not None and source.format in (None, kind) and not hidden and path.is_file():
            by_format.setdefault(kind, []).append(path)
    if source.format is None and len(by_format) > 1:
        # Beside other data a text file is README.txt or LICENSE.txt.
        by_format.pop("txt", None)
    if not by_format:
        wanted = source.format or ", ".join(endings[0] for endings in FORMATS.values())
        message = tr("folder {folder} contains no data file (looked for {wanted}).", folder=folder, wanted=wanted)
        raise usage_error("missing_data", key, message)
    if len(by_format) > 1:
        message = tr(
            "folder {folder} contains several formats ({listed}); choose one with {key}.format.",
            folder=folder,
            listed=", ".join(f"{len(files)} {kind}" for kind, files in by_format.items()),
            key=key,
        )
        raise usage_error("mixed_formats", key, message)
    return tuple(*by_format.values())


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


# Data sets of the Hugging Face hub: what lies in the local cache, and what is to be downloaded.


def looks_like_hub_id(name: str) -> bool:
    """`owner/name`: a data set of one word cannot be told from a file."""
    return "/" in name and is_hub_id(name)


def hub_files(
    source: DataSource, key: str, task: RowKind | None = None, *, ask: bool = True, fetch: bool = False
) -> list[Path]:
    """The data files of one split: from the local cache, with `fetch` downloaded where they are not there.

    `key` is the key path of the source and `task` what is learnt from it, for sentences. Raises UsageError
    with one sentence when they are not here: a warning `data_to_download` where the hub has them, an error
    otherwise. That takes at most one question of three seconds to the hub, and none without `ask` or when
    HF_HUB_OFFLINE is set.
    """
    problem: SplitError | None = None
    for snapshot in snapshots(source.name, "datasets"):
        try:
            return _in_snapshot(snapshot, source)
        except SplitError as error:
            problem = problem or error
    answer = ask_hub(source.name, "datasets") if ask else HubAnswer("offline")
    try:
        if problem is not None and answer.state != "there":
            raise problem
        names = _on_the_hub(source, answer, task)
    except SplitError as error:
        message = tr("Hub dataset {hub_id} {problem}", hub_id=source.name, problem=error)
        raise usage_error("missing_data", key, message) from None
    if not fetch:
        raise _to_download(source, key, {name: answer.sizes[name] for name in names})
    folder = _download(source.name, names, key)
    return [folder / name for name in names]


def _on_the_hub(source: DataSource, answer: HubAnswer, task: RowKind | None) -> tuple[str, ...]:
    """The names of the files. Raises SplitError."""
    if answer.state == "unknown":
        raise SplitError(tr("does not exist or is not public (a private one needs HF_TOKEN)."))
    if answer.state == "offline":
        raise SplitError(
            tr(
                "is not in the local cache and the Hub is unreachable. Offline, use a file or folder "
                "(--dataset FILE) or a sample ({samples}); with network access, run `{command}`.",
                samples=sample_words(task),
                command=_command(source.name),
            )
        )
    names = split_files(source, list(answer.sizes), answer.card)
    if answer.closed:
        raise SplitError(tr("is gated; accept its terms on its page and set HF_TOKEN."))
    return names


def _command(hub_id: str) -> str:
    return f"hf download --repo-type dataset {hub_id}"


def _in_snapshot(snapshot: Path, source: DataSource) -> list[Path]:
    names = [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()]
    try:
        card = card_of(read_small(snapshot / "README.md").decode())
    except (OSError, UnicodeDecodeError):
        card = {}
    chosen = split_files(source, names, card)
    shards = [shard for shard in map(SHARD.match, chosen) if shard is not None]
    series = Counter((shard["stem"], int(shard["count"])) for shard in shards)
    missing = sum(max(0, count - here) for (_, count), here in series.items())
    if missing:
        raise SplitError(
            trn(
                "is only partly in the local cache: split {split} lacks {missing} file.",
                "is only partly in the local cache: split {split} lacks {missing} files.",
                missing,
                missing=missing,
                split=repr(source.split),
            )
        )
    return [snapshot / name for name in chosen]


def _to_download(source: DataSource, key: str, files: Mapping[str, int]) -> UsageError:
    message = tr(
        "Hub dataset {hub_id} is not in the local cache; {files} will be downloaded when the run starts. "
        "The number of rows is unknown until then.",
        hub_id=source.name,
        files=amount_of(files),
    )
    folders = {name.rpartition("/")[0] for name in files} - {""}
    only = f' --include "{folders.pop()}/*"' if len(folders) == 1 else ""
    remedy = Remedy(tr("download it beforehand"), _command(source.name) + only)
    return UsageError(Finding("data_to_download", "warning", key, message, (remedy,)))


def _download(hub_id: str, names: Sequence[str], where: str) -> Path:
    """Fetch these files of a data set into the local cache; the folder of its snapshot.

    Several processes may ask for the same files: huggingface_hub locks each file. Raises
    CannotRunError with one sentence.
    """
    need(("huggingface_hub",))
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            hub_id,
            repo_type="dataset",
            allow_patterns=[*map(glob.escape, names), "README.md"],
            cache_dir=hub_cache_folder(),
            endpoint=hub_endpoint(),
            token=hub_token(),
        )
    # The HTTP library beneath changes between versions of huggingface_hub, and its errors pass through.
    except Exception as error:  # noqa: BLE001
        detail = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        command = _command(hub_id)
        message = tr(
            "Hub dataset {hub_id} cannot be downloaded ({detail}); try again, or download it with `{command}`.",
            hub_id=hub_id,
            detail=detail,
            command=command,
        )
        raise CannotRunError(
            Finding("missing_data", "error", where, message, (Remedy(tr("download it once"), command),))
        ) from None
    return Path(folder)


# Which files of a hub data set make up a split: by the set's own card, else by the files' names.

SHARD = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<rest>\..*)?$")
SPLIT_WORD = re.compile(r"(^|[^a-z])(train|test|valid\w*|dev|eval)([^a-z]|$)")


class SplitError(ValueError):
    """What is wrong with a set, a split or a subset, as the rest of a sentence that begins with the set's name."""


def _several(subsets: Sequence[str]) -> SplitError:
    return SplitError(tr("has several subsets; set `subset` to one of {subsets}.", subsets=listed(subsets)))


def split_files(source: DataSource, names: Sequence[str], card: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the data files of the source's split, sorted.

    `names` are all files of the set, `card` is the YAML head of its README.md. Raises SplitError
    for a set that only a script can load, and for a split or subset that the set does not have.
    """
    split, subset = source.split, source.subset
    formats = {name: kind for name in sorted(names) if (kind := format_of(Path(name))) is not None}
    data = [name for name, kind in formats.items() if kind != "txt"]
    there = data or sorted(names)
    if configs := _configs(card):
        splits = _by_card(configs, formats, subset)
        there = there if split in splits else list(splits)
        chosen = [name for name in splits.get(split, ()) if name in data] or splits.get(split, [])
    elif data:
        chosen = _by_name(data, split, subset)
    else:
        raise SplitError(_nothing_readable(source.name, names))
    if not chosen:
        wanted = f"{split!r} ({subset!r})" if subset else repr(split)
        raise SplitError(tr("has no split {split} (it has: {there}).", split=wanted, there=listed(there)))
    return tuple(chosen)


def _configs(card: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Name -> entry of the card's `configs` that say where their files are."""
    entries = card.get("configs")
    known = [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
    return {str(entry.get("config_name", "default")): entry for entry in known if entry.get("data_files") is not None}


def _by_card(
    configs: Mapping[str, Mapping[str, Any]], names: Iterable[str], subset: str | None
) -> dict[str, list[str]]:
    """Split -> those of `names` that the entry of the subset names."""
    if subset is None:
        standard = [name for name, entry in configs.items() if entry.get("default") or name == "default"]
        subset = next(iter(standard or (configs if len(configs) == 1 else ())), None)
        if subset is None:
            raise _several(list(configs))
    elif subset not in configs:
        subsets = listed(list(configs))
        raise SplitError(tr("has no subset {subset} (its subsets: {subsets}).", subset=repr(subset), subsets=subsets))
    folder = PurePosixPath(str(configs[subset].get("data_dir") or "").strip("/"))
    return {
        split: [name for name in names if any(fnmatchcase(name, str(folder / pattern)) for pattern in patterns)]
        for split, patterns in _patterns(configs[subset]["data_files"]).items()
    }


def _patterns(data_files: Any) -> dict[str, list[str]]:
    """Split -> patterns, from any of the forms that a card may use."""
    if isinstance(data_files, Mapping):
        return {str(split): _texts(paths) for split, paths in data_files.items()}
    found: dict[str, list[str]] = {}
    for item in data_files if isinstance(data_files, list) else [data_files]:
        entry = item if isinstance(item, Mapping) else {"path": item}
        found.setdefault(str(entry.get("split", "train")), []).extend(_texts(entry.get("path")))
    return found


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(item) for item in value] if isinstance(value, list) else []


def _by_name(names: Sequence[str], split: str, subset: str | None) -> list[str]:
    found = [name for name in names if not subset or subset in PurePosixPath(name).parts[:-1]]
    chosen = [name for name in found if re.search(rf"(^|[^a-z]){re.escape(split)}([^a-z]|$)", name)]
    if not chosen and not any(map(SPLIT_WORD.search, names)):
        chosen = found
    if subset is None:
        subsets = sorted({_subset_of(name, split) for name in chosen} - {""})
        if len(subsets) > 1:
            raise _several(subsets)
    return chosen


def _subset_of(name: str, split: str) -> str:
    """The first folder that is neither a common name nor a split nor a number."""
    return next(
        (
            part
            for part in PurePosixPath(name).parts[:-1]
            if part not in ("data", "default", split) and not part.isdigit() and not SPLIT_WORD.search(part)
        ),
        "",
    )


def _nothing_readable(hub_id: str, names: Sequence[str]) -> str:
    if any(name.endswith(".py") and "/" not in name for name in names):
        return tr(
            "needs its loading script, which is code and is not run; download the Hub's parquet version with "
            "`{command}`, or convert the dataset to parquet.",
            command=f"{_command(hub_id)} --revision refs/convert/parquet",
        )
    found = {PurePosixPath(name).suffix or name for name in names if not name.startswith(".")}
    endings = listed(sorted(found)) or tr("it is empty")
    return tr("has no data file in a supported format ({endings}).", endings=endings)
