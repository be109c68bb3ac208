"""ChatLook: what a run will learn from its chats, as a child process with transformers sees it. Never imports torch."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import platformdirs
from trainwiz.core.config import RunConfig
from trainwiz.core.data.lengths import tokenizer_folder, trains_on_chats
from trainwiz.core.data.summary import stamp_of
from trainwiz.core.files import at_home, read_small
from trainwiz.core.hardware.install import missing, training_line
from trainwiz.core.language import chosen_language, tr
from trainwiz.core.run.folder import write_atomic
from trainwiz.core.text import parse_json, plain_text
from trainwiz.core.tracing.request import LONGEST_MESSAGE, keep_newest, trace_versions
from trainwiz.core.tracing.worker import ENVIRONMENT

# What is said of the chats of a run.

LIMIT_S = 180.0
"""transformers from a cold, slow disk, and two thousand chats."""
MOST_LOOKS = 200
"""Kept on the disk, some 30 kB each. Half of them stay when there are more."""


@dataclass(frozen=True, slots=True)
class Doubt:
    code: str
    rows: int
    """How many of those that were looked at."""
    place: str
    """Of the first: file and line."""
    detail: str = ""
    """What the template says."""


@dataclass(frozen=True, slots=True)
class ShownChat:
    place: str
    pieces: tuple[str, ...]
    """The text of each token; empty for one that goes on with the letter of the last."""
    learnt: tuple[bool, ...]
    turns: tuple[tuple[str, int], ...]
    """Role and end (in tokens) of each turn; empty where the template writes them otherwise one by one."""


@dataclass(frozen=True, slots=True)
class ChatLook:
    """Figures of a sample of the rows that train, source by source."""

    marks: str
    """How answers are found: see core/training/chats.py."""
    family: str
    lengths: tuple[tuple[int, ...], ...]
    """Tokens of each row that was looked at, uncut, for each source."""
    learnt: tuple[tuple[int, ...], ...]
    """Likewise how many of them are learnt."""
    ends: tuple[tuple[int, ...], ...]
    """Likewise the end of the last that is learnt."""
    doubts: tuple[Doubt, ...]
    shown: tuple[ShownChat, ...] = ()
    problem: str = ""
    """Why there is nothing of this, in one sentence."""

    @classmethod
    def nothing(cls, problem: str) -> ChatLook:
        return cls("", "", (), (), (), (), problem=problem)

    @classmethod
    def from_json(cls, values: Any) -> ChatLook:
        from pydantic import TypeAdapter  # takes a tenth of a second

        look: ChatLook = TypeAdapter(cls).validate_python(values)
        plain = partial(plain_text, limit=LONGEST_MESSAGE)
        doubts = (replace(one, place=plain(one.place), detail=plain(one.detail)) for one in look.doubts)
        return replace(look, doubts=tuple(doubts), problem=plain(look.problem))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def rows(self) -> int:
        return sum(map(len, self.lengths))


# The look itself: asked of a child process once, then kept.


def look_at_chats(config: RunConfig, folder: Path, show: int = 0) -> ChatLook | None:
    """What a run on chats learns, and the row `show`; None for other rows. See `look_at_rows`."""
    return look_at_rows(config, folder, (show,)) if trains_on_chats(config) else None


def look_at_rows(config: RunConfig, folder: Path, show: tuple[int, ...]) -> ChatLook:
    """What the run of `config` learns; relative paths are from `folder`. `show`: numbers (from 0) of rows to show.

    Takes seconds the first time, and never raises: where nothing can be said its `problem` says why.
    """
    if tokenizer_folder(config, folder) is None:
        return ChatLook.nothing(tr("the tokenizer is not on this machine yet"))
    if missing():
        return ChatLook.nothing(
            tr("reading them needs packages that are not installed: {command}", command=training_line())
        )
    place = _kept_at(config, folder, show)
    with contextlib.suppress(OSError, ValueError):
        return ChatLook.from_json(parse_json(read_small(place)))
    found = _asked(config, folder, show)
    if not found.problem:
        with contextlib.suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(place, json.dumps(found.to_json()))
            keep_newest(place.parent, MOST_LOOKS)
    return found


def _asked(config: RunConfig, folder: Path, show: tuple[int, ...]) -> ChatLook:
    command = [sys.executable, "-P", "-m", "trainwiz.core.training.look", "--parent", str(os.getpid())]
    asked = {"config": config.model_dump(mode="json"), "folder": str(folder.resolve()), "show": list(show)}
    try:
        done = subprocess.run(
            command,
            input=json.dumps(asked).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **ENVIRONMENT},
            timeout=LIMIT_S,
            start_new_session=True,
            check=False,
        )
        # What a library printed while it was imported stands before the answer, which is one line.
        return ChatLook.from_json(parse_json(done.stdout.rstrip().rpartition(b"\n")[2]))
    except subprocess.TimeoutExpired:
        return ChatLook.nothing(tr("the chats were not read within {seconds} s", seconds=f"{LIMIT_S:.0f}"))
    except (OSError, ValueError):
        return ChatLook.nothing(tr("the process that reads the chats ended without a result"))


def _kept_at(config: RunConfig, folder: Path, show: tuple[int, ...]) -> Path:
    tokenizer = tokenizer_folder(config, folder)
    files = sorted(tokenizer.iterdir()) if tokenizer is not None else []
    files.append(folder / at_home(Path(config.model.chat_template or "own")))
    stamps = [f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files if path.is_file()]
    told = (
        config.model.model_dump_json(),
        config.data.model_dump_json(),
        config.training.train_on,
        str(folder.resolve()),
    )
    parts = [told, stamp_of(config, folder), stamps, show, chosen_language(None, os.environ), trace_versions()]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
    return Path(platformdirs.user_cache_dir("trainwiz")) / "chats" / f"{digest}.json"
