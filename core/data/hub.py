"""Data sets of the Hugging Face hub: what lies in the local cache, and what is to be downloaded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwiz.core.catalog.hub_cache import hub_cache_folder, is_hub_id
from trainwiz.core.config.values import Task
from trainwiz.core.data.hub_question import HubAnswer, ask_hub, download
from trainwiz.core.data.hub_split import SplitError, card_of, missing_shards, split_files
from trainwiz.core.data.samples import sample_words
from trainwiz.core.errors import UsageError
from trainwiz.core.findings import Finding, Remedy, Severity, after
from trainwiz.core.language import tr, trn
from trainwiz.core.small_file import read_small


@dataclass(frozen=True, slots=True)
class HubSplit:
    """A split of a hub data set, the setting that names it, and what is to be learnt from it."""

    hub_id: str
    split: str = "train"
    subset: str | None = None
    where: str = "data.sources.0"
    task: Task | None = None

    @property
    def command(self) -> str:
        return f"hf download --repo-type dataset {self.hub_id}"


def looks_like_hub_id(name: str) -> bool:
    """`owner/name`: a data set of one word cannot be told from a file."""
    return "/" in name and is_hub_id(name)


def hub_files(wanted: HubSplit, environment: Mapping[str, str] | None = None, *, fetch: bool = False) -> list[Path]:
    """The data files of one split: from the local cache, with `fetch` downloaded where they are not there.

    Raises UsageError with one sentence when they are not here: a warning `data_to_download` where
    the hub has them, an error otherwise. That takes at most one question of three seconds to the
    hub, and none when HF_HUB_OFFLINE is set.
    """
    environment = os.environ if environment is None else environment
    problem: SplitError | None = None
    for snapshot in _snapshots(hub_cache_folder(environment) / f"datasets--{wanted.hub_id.replace('/', '--')}"):
        try:
            return _in_snapshot(snapshot, wanted)
        except SplitError as error:
            problem = problem or error
    answer = ask_hub(wanted.hub_id, environment)
    if answer.state != "there":
        raise _not_here(wanted, answer, problem)
    try:
        names = split_files(wanted.hub_id, list(answer.sizes), answer.card, wanted.split, wanted.subset)
    except SplitError as error:
        raise _finding(wanted, _sentence(wanted, error)) from None
    if answer.gated:
        message = tr(
            "hub data set {hub_id} is gated; accept its terms on its page and set HF_TOKEN.", hub_id=wanted.hub_id
        )
        raise _finding(wanted, message)
    if not fetch:
        raise _to_download(wanted, names, answer)
    folder = download(wanted.hub_id, names, wanted.where, environment)
    return [folder / name for name in names]


def _in_snapshot(snapshot: Path, wanted: HubSplit) -> list[Path]:
    names = [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()]
    try:
        card = card_of(read_small(snapshot / "README.md").decode())
    except (OSError, UnicodeDecodeError):
        card = {}
    chosen = split_files(wanted.hub_id, names, card, wanted.split, wanted.subset)
    missing = missing_shards(chosen)
    if missing:
        raise SplitError(
            tr(
                "is only partly in the local cache: {missing} files of split {split} are missing.",
                missing=missing,
                split=repr(wanted.split),
            )
        )
    return [snapshot / name for name in chosen]


def _snapshots(folder: Path) -> Iterator[Path]:
    """The snapshot that refs/main names, then the others, newest first."""
    main = folder / "refs" / "main"
    named = folder / "snapshots" / read_small(main).decode().strip() if main.is_file() else None
    if named is not None and named.is_dir():
        yield named
    others = [path for path in (folder / "snapshots").glob("*") if path.is_dir() and path != named]
    yield from sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)


def _sentence(wanted: HubSplit, problem: SplitError) -> str:
    sentence = tr("hub data set {hub_id} {problem}", hub_id=wanted.hub_id, problem=problem)
    if problem.wants_subset:
        sentence += after(tr("Set {where}.subset.", where=wanted.where))
    return sentence


def _to_download(wanted: HubSplit, names: tuple[str, ...], answer: HubAnswer) -> UsageError:
    size = sum(answer.sizes[name] for name in names)
    message = trn(
        "hub data set {hub_id} is not in the local cache; {n} file, {size}, is downloaded when the run "
        "starts. How many rows there are is known after that.",
        "hub data set {hub_id} is not in the local cache; {n} files, {size}, are downloaded when the run "
        "starts. How many rows there are is known after that.",
        len(names),
        hub_id=wanted.hub_id,
        size=_size(size),
    )
    folders = {name.rpartition("/")[0] for name in names} - {""}
    only = f' --include "{folders.pop()}/*"' if len(folders) == 1 else ""
    remedy = Remedy(tr("download it before"), wanted.command + only)
    return _finding(wanted, message, remedy, code="data_to_download", severity="warning")


def _size(count: int) -> str:
    if count <= 0:
        return tr("size unknown")
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(count / 1e6, 0.1):.1f} MB"


def _not_here(wanted: HubSplit, answer: HubAnswer, problem: SplitError | None) -> UsageError:
    if problem is not None:
        return _finding(wanted, _sentence(wanted, problem))
    if answer.state == "unknown":
        return _finding(
            wanted, tr("the hub has no public data set {hub_id} (or it needs HF_TOKEN).", hub_id=repr(wanted.hub_id))
        )
    message = tr(
        "hub data set {hub_id} is not in the local cache and the hub cannot be reached; offline, a "
        "file or folder works (--dataset FILE) and a sample too ({samples}), or with a network "
        "`{command}`.",
        hub_id=wanted.hub_id,
        samples=sample_words(wanted.task),
        command=wanted.command,
    )
    return _finding(wanted, message, Remedy(tr("use a local file: --dataset FILE")))


def _finding(
    wanted: HubSplit, message: str, *remedies: Remedy, code: str = "missing_data", severity: Severity = "error"
) -> UsageError:
    return UsageError(Finding(code=code, severity=severity, where=wanted.where, message=message, remedies=remedies))
