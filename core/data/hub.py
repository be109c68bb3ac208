"""Data sets of the Hugging Face hub: the local cache, one short question, the files of a split."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
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
from trainwiz.core.config import DataSource
from trainwiz.core.config.values import RowKind
from trainwiz.core.data.formats import format_of, sample_words
from trainwiz.core.data.reader import listed
from trainwiz.core.errors import CannotRunError, Finding, Remedy, UsageError, usage_error
from trainwiz.core.files import read_small
from trainwiz.core.hardware.install import need
from trainwiz.core.language import tr, trn

# The download of its files.


def download(hub_id: str, names: Sequence[str], where: str) -> Path:
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
    readable = sorted(name for name in names if format_of(Path(name)) not in (None, "txt"))
    split, subset = source.split, source.subset
    configs = _configs(card)
    if configs:
        chosen = _by_card(configs, sorted(names), readable, split, subset)
    elif readable:
        chosen = _by_name(readable, split, subset)
    else:
        raise SplitError(_nothing_readable(source.name, names))
    if not chosen:
        wanted = f"{split!r} ({subset!r})" if subset else repr(split)
        there = listed(readable or sorted(names))
        raise SplitError(tr("has no split {split} (its files: {there}).", split=wanted, there=there))
    return tuple(chosen)


def missing_shards(names: Sequence[str]) -> int:
    """How many parts of a `train-00000-of-00013` series are not among `names`."""
    found: dict[tuple[str, str], int] = {}
    for name in names:
        shard = SHARD.match(name)
        if shard:
            series = (shard["stem"], shard["count"])
            found[series] = found.get(series, 0) + 1
    return sum(max(0, int(count) - number) for (_, count), number in found.items())


def _configs(card: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Name -> entry of the card's `configs` that say where their files are."""
    listed = card.get("configs")
    entries = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
    return {str(entry.get("config_name", "default")): entry for entry in entries if entry.get("data_files") is not None}


def _by_card(
    configs: Mapping[str, Mapping[str, Any]],
    names: Sequence[str],
    readable: Sequence[str],
    split: str,
    subset: str | None,
) -> list[str]:
    if subset is not None and subset not in configs:
        subsets = listed(list(configs))
        raise SplitError(tr("has no subset {subset} (its subsets: {subsets}).", subset=repr(subset), subsets=subsets))
    if subset is None and len(configs) > 1:
        standard = [name for name, entry in configs.items() if entry.get("default") or name == "default"]
        if not standard:
            raise _several(list(configs))
        subset = standard[0]
    entry = configs[subset or next(iter(configs))]
    by_split = _patterns(entry.get("data_files"))
    if split not in by_split:
        there = listed(list(by_split))
        raise SplitError(tr("has no split {split} (its splits: {there}).", split=repr(split), there=there))
    folder = str(entry.get("data_dir") or "").strip("/")
    patterns = [f"{folder}/{pattern}" if folder else pattern for pattern in by_split[split]]
    chosen = [name for name in names if any(fnmatchcase(name, pattern.removeprefix("./")) for pattern in patterns)]
    if chosen and not any(format_of(Path(name)) for name in chosen):
        raise SplitError(
            tr(
                "contains {endings} files, which are not supported; convert them to parquet or JSON Lines.",
                endings=_endings(chosen),
            )
        )
    return [name for name in chosen if name in readable] or [name for name in chosen if format_of(Path(name))]


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


def _by_name(readable: Sequence[str], split: str, subset: str | None) -> list[str]:
    found = list(readable)
    if subset:
        found = [name for name in found if subset in PurePosixPath(name).parts[:-1]]
    chosen = [name for name in found if re.search(rf"(^|[^a-z]){re.escape(split)}([^a-z]|$)", name)]
    if not chosen and not any(SPLIT_WORD.search(name) for name in readable):
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
    script = f"{hub_id.rpartition('/')[2]}.py"
    if script in names or any(name.endswith(".py") and "/" not in name for name in names):
        return tr(
            "needs its loading script, which is code and is not run; download the Hub's parquet version with "
            "`{command}`, or convert the dataset to parquet.",
            command=f"{_command(hub_id)} --revision refs/convert/parquet",
        )
    return tr("has no data file in a supported format ({endings}).", endings=_endings(names))


def _endings(names: Sequence[str]) -> str:
    found = {PurePosixPath(name).suffix or name for name in names if not name.startswith(".")}
    return listed(sorted(found)) or tr("it is empty")


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
    folder = download(source.name, names, key)
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
    missing = missing_shards(chosen)
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
