"""Which files of a hub data set make up a split: by the set's own card, else by the files' names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from trainwiz.core.config.yaml_text import load_yaml
from trainwiz.core.data.formats import format_of
from trainwiz.core.language import tr

SHARD = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<rest>\..*)?$")
SPLIT_WORD = re.compile(r"(^|[^a-z])(train|test|valid\w*|dev|eval)([^a-z]|$)")
SHOWN = 8


class SplitError(ValueError):
    """What is wrong with a set, a split or a subset, as the rest of a sentence that begins with the set's name."""

    def __init__(self, problem: str, *, wants_subset: bool = False) -> None:
        super().__init__(problem)
        self.wants_subset = wants_subset
        """Naming one of its subsets would cure it."""


def _several(subsets: Sequence[str]) -> SplitError:
    return SplitError(tr("has several subsets; choose one: {subsets}.", subsets=_listed(subsets)), wants_subset=True)


def split_files(
    hub_id: str, names: Sequence[str], card: Mapping[str, Any], split: str, subset: str | None
) -> tuple[str, ...]:
    """Names of the data files of one split, sorted.

    `names` are all files of the set, `card` is the YAML head of its README.md. Raises SplitError
    for a set that only a script can load, and for a split or subset that the set does not have.
    """
    readable = sorted(name for name in names if format_of(Path(name)) not in (None, "txt", "tar"))
    configs = _configs(card)
    if configs:
        chosen = _by_card(configs, sorted(names), readable, split, subset)
    else:
        if not readable:
            raise SplitError(_nothing_readable(hub_id, names))
        chosen = _by_name(readable, split, subset)
    if not chosen:
        there = _listed(readable or sorted(names))
        if subset:
            raise SplitError(
                tr(
                    "holds no split {split} of {subset}; there are: {there}.",
                    split=repr(split),
                    subset=repr(subset),
                    there=there,
                )
            )
        raise SplitError(tr("holds no split {split}; there are: {there}.", split=repr(split), there=there))
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


def card_of(readme: str) -> dict[str, Any]:
    """The YAML head of a README.md; empty where there is none that can be read."""
    head = re.match(r"\A\ufeff?---\r?\n(.*?)\r?\n---\s*(\r?\n|\Z)", readme, re.DOTALL)
    if head is None:
        return {}
    try:
        document = load_yaml(head[1])
    except yaml.YAMLError:
        return {}
    return document if isinstance(document, dict) else {}


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
        near = difflib.get_close_matches(subset, configs, n=1)
        listed = _listed(list(configs))
        if near:
            raise SplitError(
                tr(
                    "has no subset {subset}; did you mean {near}? (its subsets: {subsets}).",
                    subset=repr(subset),
                    near=repr(near[0]),
                    subsets=listed,
                )
            )
        raise SplitError(tr("has no subset {subset} (its subsets: {subsets}).", subset=repr(subset), subsets=listed))
    if subset is None and len(configs) > 1:
        standard = [name for name, entry in configs.items() if entry.get("default") or name == "default"]
        if not standard:
            raise _several(list(configs))
        subset = standard[0]
    entry = configs[subset or next(iter(configs))]
    by_split = _patterns(entry.get("data_files"))
    if split not in by_split:
        there = _listed(list(by_split))
        raise SplitError(tr("holds no split {split}; there are: {there}.", split=repr(split), there=there))
    folder = str(entry.get("data_dir") or "").strip("/")
    patterns = [f"{folder}/{pattern}" if folder else pattern for pattern in by_split[split]]
    chosen = [name for name in names if any(fnmatchcase(name, pattern.removeprefix("./")) for pattern in patterns)]
    if chosen and not any(format_of(Path(name)) for name in chosen):
        raise SplitError(
            tr(
                "holds {endings} files, which cannot be read; convert them to parquet or JSON lines.",
                endings=_endings(chosen),
            )
        )
    return [name for name in chosen if name in readable] or [name for name in chosen if format_of(Path(name))]


def _patterns(data_files: Any) -> dict[str, list[str]]:
    """Split -> patterns, from any of the forms that a card may use."""
    if isinstance(data_files, str):
        return {"train": [data_files]}
    if isinstance(data_files, Mapping):
        return {str(split): _texts(paths) for split, paths in data_files.items()}
    found: dict[str, list[str]] = {}
    for item in data_files if isinstance(data_files, list) else []:
        if isinstance(item, Mapping):
            found.setdefault(str(item.get("split", "train")), []).extend(_texts(item.get("path")))
        else:
            found.setdefault("train", []).extend(_texts(item))
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
            "needs its loading script, which is code and is not run; fetch the hub's own parquet copy with "
            "`{command}`, or convert it to parquet.",
            command=f"hf download --repo-type dataset {hub_id} --revision refs/convert/parquet",
        )
    return tr("has no data file that can be read ({endings}).", endings=_endings(names))


def _endings(names: Sequence[str]) -> str:
    found = {PurePosixPath(name).suffix or name for name in names if not name.startswith(".")}
    return _listed(sorted(found)) or tr("it is empty")


def _listed(names: Sequence[str]) -> str:
    listed = ", ".join(names[:SHOWN])
    if len(names) <= SHOWN:
        return listed
    return tr("{names} and {count} more", names=listed, count=len(names) - SHOWN)
