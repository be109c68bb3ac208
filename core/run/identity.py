"""identity.json: what a run trains on and with, as its first training found it; a resume is compared with it.

    {"format": "trainwiz.identity/1", "time_s": 1795344000.0,
     "settings": {"data": {"data.sources.0": {"files": 2, "bytes": 81234, "sample": "6f1c..."}, ...},
                  "model": {...}, "batch": {"sequences of a step": 48, ...}, "processes": {...},
                  "training": {...}, "engine": {...}},
     "loaded": {"data": {"rows that train": 10200}, "tokenizer": {"vocabulary and rules ...": "9ab3..."}},
     "earlier": [...], "accepted": [{"time_s": ..., "part": "data", "what": "data.sources.0: ... -> ..."}]}

It is written by the first training and not when the folder is prepared: a folder may be carried to
another machine and its data put beside it there, and rows and tokenizer are known only once they are
loaded. Every checkpoint has a copy. `settings` can be compared without loading anything, before the
training starts; `loaded` is compared after the data and the tokenizer are there and before the first
step. `earlier` holds the records from before a difference was accepted, newest last.

What trainwiz itself changes to get a run through (a smaller micro-batch with more accumulation) is
no difference: the batch is recorded as the sequences of one optimizer step.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from trainwiz.core.errors import UsageError
from trainwiz.core.findings import Finding
from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder, read_json, write_json_atomic
from trainwiz.core.run.names import name_for_commands

IDENTITY_JSON = "identity.json"
FORMAT = "trainwiz.identity/1"
Part = Literal["data", "model", "tokenizer", "batch", "processes", "training", "engine"]
PARTS: tuple[Part, ...] = get_args(Part)
"""What a difference is about; each can be accepted by its name."""
CHANGED_S, NAME = "changed_s", "name"
"""When files were last written, and where they are: told, never compared, for a copy or a `touch` is no other data."""
MOST_SHOWN = 12
LONGEST_VALUE = 60

Values = Mapping[str, Mapping[str, Any]]
"""Part -> what -> value."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is no longer as recorded."""

    part: str
    what: str
    old: str
    new: str

    @property
    def text(self) -> str:
        return f"{self.what}: {self.old} → {self.new}"


@dataclass(slots=True)
class Identity:
    """The record of one run."""

    settings: dict[str, dict[str, Any]]
    loaded: dict[str, dict[str, Any]] = field(default_factory=dict)
    time_s: float = field(default_factory=time.time)
    earlier: list[dict[str, Any]] = field(default_factory=list)
    accepted: list[dict[str, Any]] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Raises OSError."""
        write_json_atomic(path, {"format": FORMAT, **self.to_json()})

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("time_s", "settings", "loaded", "earlier", "accepted")}

    @classmethod
    def read(cls, path: Path) -> Identity | None:
        """None where there is none, or nonsense."""
        document = read_json(path) or {}
        settings, loaded = _parts(document.get("settings")), _parts(document.get("loaded"))
        if document.get("format") != FORMAT or not settings:
            return None
        time_s = document.get("time_s")
        lists = {name: [entry for entry in document.get(name) or [] if isinstance(entry, dict)] for name in LISTS}
        return cls(settings, loaded, float(time_s) if isinstance(time_s, int | float) else 0.0, **lists)

    def is_of(self, other: Identity) -> bool:
        """Whether it says the same as `other`, or as a record that `other` replaced."""
        known = [other.to_json(), *other.earlier]
        return any(
            not compare(_parts(one.get("settings")), self.settings)
            and not compare(_parts(one.get("loaded")), self.loaded)
            for one in known
        )

    def accept(self, differences: Iterable[Difference]) -> None:
        """Note differences that somebody accepted; the values before them are kept."""
        found = list(differences)
        if found:
            self.earlier.append({"time_s": self.time_s, "settings": self.settings, "loaded": self.loaded})
            self.accepted += [{"time_s": time.time(), "part": one.part, "what": one.text} for one in found]


LISTS = ("earlier", "accepted")


def recorded_identity(folder: RunFolder, checkpoint: Path | None) -> Identity | None:
    """What a resume has to match: the record of the run, or of a checkpoint that is from another one."""
    of_run = Identity.read(folder.file(IDENTITY_JSON))
    of_checkpoint = Identity.read(checkpoint / IDENTITY_JSON) if checkpoint is not None else None
    if of_run is None or (of_checkpoint is not None and not of_checkpoint.is_of(of_run)):
        return of_checkpoint or of_run
    return of_run


def compare(recorded: Values, now: Values) -> list[Difference]:
    """What differs, in the order of PARTS. Only what both know is compared: versions may record more or less."""
    both = ((part, recorded.get(part, {}), now.get(part, {})) for part in PARTS)
    return [
        Difference(part, _named(what, after[what]), *_shown(before[what], after[what]))
        for part, before, after in both
        for what in before
        if what in after and _compared(before[what]) != _compared(after[what])
    ]


def touched(recorded: Values, now: Values) -> list[str]:
    """Data that was written to since, with the same size and the same samples of its content."""
    before, after = recorded.get("data", {}), now.get("data", {})
    return [
        what
        for what, value in before.items()
        if isinstance(value, Mapping)
        and isinstance(after.get(what), Mapping)
        and value.get(CHANGED_S) != after[what].get(CHANGED_S)
        and _compared(value) == _compared(after[what])
    ]


def refuse(folder: RunFolder, differences: Collection[Difference], accept: Collection[str]) -> list[Difference]:
    """The differences, where all of them are accepted. Raises UsageError with all the others in one sentence."""
    refused = [one for one in differences if one.part not in accept and "all" not in accept]
    if not refused:
        return list(differences)
    shown = [one.text for one in refused[:MOST_SHOWN]]
    if len(refused) > MOST_SHOWN:
        shown.append(tr("and {n} more", n=len(refused) - MOST_SHOWN))
    parts = ",".join(part for part in PARTS if any(one.part == part for one in refused))
    given = ",".join([parts, *(one for one in accept if one in PARTS and one not in parts.split(","))])
    message = tr(
        "{run} is not resumed, because it would go on with something else than it began with: {differences}. "
        "Put it back as it was, or accept that: trainwiz runs resume {typed} --accept {parts}",
        run=folder.path.name,
        differences="; ".join(shown),
        typed=name_for_commands(folder.path),
        parts=given,
    )
    raise UsageError(Finding("identity_changed", "error", str(folder.path), message))


def _parts(document: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(document, dict):
        return {}
    return {part: values for part, values in document.items() if isinstance(values, dict)}


def _compared(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: entry for key, entry in value.items() if key not in (CHANGED_S, NAME)}
    return value


def _named(what: str, value: Any) -> str:
    return f"{what} ({value[NAME]})" if isinstance(value, Mapping) and value.get(NAME) else tr(what)


def _shown(old: Any, new: Any) -> tuple[str, str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        was, now = _files(old), _files(new)
        return (was, now) if was != now else (was, tr("as many bytes with another content"))
    return _text(old), _text(new)


def _files(value: Mapping[str, Any]) -> str:
    count, size = value.get("files"), value.get("bytes")
    if not isinstance(count, int) or not isinstance(size, int):
        return _text(dict(value))
    return tr("{n} file(s), {size} bytes", n=f"{count:,}", size=f"{size:,}")


def _text(value: Any) -> str:
    text = tr("none") if value is None else f"{value:,}" if type(value) is int and value >= 10_000 else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"
