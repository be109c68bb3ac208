"""phase.json: what the training does right now, written by rank 0 of the training at each change.

    {"phase": "tokenising", "since_s": 1795344000.0, "step": 0, "detail": "12,000 of 80,000 rows"}

A watcher needs it to tell work without steps (tokenising, compiling, evaluating) from a run that hangs.
"""

from __future__ import annotations

import errno
import json
import time
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from trainwiz.core.errors import NO_ROOM
from trainwiz.core.run.folder import RunFolder, read_json, write_in_place, write_json_atomic

PHASE_JSON = "phase.json"
Phase = Literal[
    "preparing", "tokenising", "loading", "compiling", "training", "evaluating", "generating", "saving", "paused",
    "finishing",
]  # fmt: skip
"""`paused`: a save waits for room on the disk, and goes on by itself."""


@dataclass(frozen=True, slots=True)
class PhaseNow:
    phase: Phase
    since_s: float
    """Unix time."""
    step: int | None = None
    detail: str = ""


def read_phase(folder: RunFolder) -> PhaseNow | None:
    """None where the training has not said it (yet), or nonsense."""
    document: dict[str, Any] = read_json(folder.file(PHASE_JSON)) or {}
    since_s, step = document.get("since_s"), document.get("step")
    if document.get("phase") not in get_args(Phase) or not isinstance(since_s, int | float):
        return None
    phase = cast(Phase, document["phase"])
    return PhaseNow(phase, float(since_s), step if isinstance(step, int) else None, str(document.get("detail", "")))


def write_phase(
    folder: RunFolder, phase: Phase, step: int | None = None, detail: str = "", since_s: float | None = None
) -> None:
    """`since_s`: when the phase began (Unix time), now without it. Raises OSError."""
    began_s = time.time() if since_s is None else since_s
    document = {"phase": phase, "since_s": began_s, "step": step, "detail": detail}
    try:
        write_json_atomic(folder.file(PHASE_JSON), document)
    except OSError as error:
        if error.errno not in (*NO_ROOM, errno.EFBIG):
            raise
        # "Paused for lack of room" must be said on a full disk: there is room in the block that the file has.
        write_in_place(folder.file(PHASE_JSON), json.dumps(document, ensure_ascii=False) + "\n")
