"""recovery.json: what trainwiz changed by itself to get a run through; run.yaml stays what was planned.

    {"format": "trainwiz.recovery/1",
     "attempts": [{"attempt": 2, "because": "cuda_oom", "after_step": 5, "time_s": 1795344000.0,
                   "changes": {"batch.micro_batch_size": 3, "batch.gradient_accumulation_steps": 16}}]}

`changes` of an entry are all differences from run.yaml that hold from that attempt on, not only the
new ones. The keeper of the run is the only writer. Reading needs no configuration: see
`core.config.effective` for the RunConfig that an attempt really has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from trainwiz.core.run.folder import RunFolder, read_json, write_json_atomic

RECOVERY_JSON = "recovery.json"
FORMAT = "trainwiz.recovery/1"


@dataclass(frozen=True, slots=True)
class Recovery:
    """One start that trainwiz made by itself."""

    attempt: int
    because: str
    """The cause of the failure before it."""
    after_step: int | None
    """Step of the checkpoint that it goes on from; None from the beginning."""
    time_s: float
    changes: dict[str, Any] = field(default_factory=dict)


def read_recoveries(folder: RunFolder) -> list[Recovery]:
    """In the order of the attempts; entries that cannot be read are passed over."""
    document = read_json(folder.file(RECOVERY_JSON)) or {}
    entries = document.get("attempts")
    return [found for found in map(_recovery, entries) if found] if isinstance(entries, list) else []


def changes_now(folder: RunFolder) -> dict[str, Any]:
    """Key path -> value, as they hold for the newest attempt; empty when nothing was changed."""
    recoveries = read_recoveries(folder)
    return dict(recoveries[-1].changes) if recoveries else {}


def write_recoveries(folder: RunFolder, recoveries: Iterable[Recovery]) -> None:
    """Raises OSError."""
    entries = [asdict(entry) for entry in recoveries]
    write_json_atomic(folder.file(RECOVERY_JSON), {"format": FORMAT, "attempts": entries})


def _recovery(entry: Any) -> Recovery | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("attempt"), int):
        return None
    after, time_s, changes = entry.get("after_step"), entry.get("time_s"), entry.get("changes")
    return Recovery(
        entry["attempt"],
        str(entry.get("because", "unknown")),
        after if isinstance(after, int) else None,
        float(time_s) if isinstance(time_s, int | float) else 0.0,
        changes if isinstance(changes, dict) else {},
    )
