"""Source: anything that a monitor can look at again and again; each look costs what is new since the last one."""

from __future__ import annotations

import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable

from trainwiz.core.language import tr
from trainwiz.core.telemetry.snapshot import Snapshot

READ_ALL_S = 10.0


class Source(ABC):
    """Not thread-safe: one thread polls; the snapshots can go anywhere."""

    @abstractmethod
    def poll(self, curves: Iterable[str] = ()) -> Snapshot:
        """One look. `curves` names the metrics whose points are wanted.

        Raises nothing: what cannot be read is a sentence in `Snapshot.problems`. Reads for POLL_S at
        most; what is left is read by the next looks (`Snapshot.behind`).
        """

    def read_all(self, curves: Iterable[str] = ()) -> Snapshot:
        """Look until nothing is left to read, for READ_ALL_S at most; then it says of how much the look is."""
        wanted = tuple(curves)
        deadline = time.monotonic() + READ_ALL_S
        snapshot = self.poll(wanted)
        while snapshot.behind and time.monotonic() < deadline:
            snapshot = self.poll(wanted)
        if not snapshot.behind:
            return snapshot
        covered = tr(
            "Its files are long: {percent}% of them are read so far, and figures, counts and extremes are of a part.",
            percent=f"{snapshot.read_share * 100:.0f}",
        )
        return dataclasses.replace(snapshot, problems=(*snapshot.problems, covered))

    def close(self) -> None:  # noqa: B027 - most sources hold nothing
        """Let go of drivers and files; a closed source is not polled again."""
