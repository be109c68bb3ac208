"""Source: anything that a monitor can look at again and again; each look costs what is new since the last one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from trainwiz.core.telemetry.snapshot import Snapshot


class Source(ABC):
    """Not thread-safe: one thread polls; the snapshots can go anywhere."""

    @abstractmethod
    def poll(self, curves: Iterable[str] = ()) -> Snapshot:
        """One look. `curves` names the metrics whose points are wanted.

        Raises nothing: what cannot be read is a sentence in `Snapshot.problems`. Reads for POLL_S at
        most; what is left is read by the next looks (`Snapshot.behind`).
        """

    def read_all(self, curves: Iterable[str] = ()) -> Snapshot:
        """Look until nothing is left to read."""
        wanted = tuple(curves)
        snapshot = self.poll(wanted)
        while snapshot.behind:
            snapshot = self.poll(wanted)
        return snapshot

    def close(self) -> None:  # noqa: B027 - most sources hold nothing
        """Let go of drivers and files; a closed source is not polled again."""
