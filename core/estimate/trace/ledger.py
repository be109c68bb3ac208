"""Ledger: which storages are alive, what they are, and how full each phase was."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from trainwiz.core.estimate.moment import KINDS, Moment
from trainwiz.core.estimate.trace.allocator import Event


@dataclass(slots=True)
class Entry:
    """One storage that is alive."""

    number: int
    bytes: int
    kind: str
    watcher: weakref.ref[Any]


class Ledger:
    """Counts storages from their first appearance until nothing holds them.

    `rounding`: sizes are rounded up to a multiple of it, as the device's allocator does (bytes).
    """

    def __init__(self, rounding: int) -> None:
        self.total = 0
        self.by_kind = dict.fromkeys(KINDS, 0)
        self.events: list[Event] = []
        """All allocations and frees, for the allocator."""
        self.fullest: dict[str, dict[str, int]] = {}
        """Bytes by kind at the fullest point of each phase, in the order of their beginning."""
        self._peaks: dict[str, int] = {}
        self._phase = ""
        self._peak = 0
        self._rounding = rounding
        self._live: dict[int, Entry] = {}
        self._count = 0

    @property
    def phase(self) -> str:
        return self._phase

    def enter(self, phase: str) -> None:
        """What follows belongs to `phase`. Without a name, nothing is noted."""
        self._phase = phase
        self._peak = self._peaks.get(phase, 0)
        self._note()

    def pass_over(self, since: int) -> None:
        """What came and went after the first `since` events is not for the allocator; what stays is."""
        later = self.events[since:]
        came = {number for number, _ in later if number > 0}
        passing = {-number for number, _ in later if -number in came}
        self.events[since:] = [event for event in later if abs(event[0]) not in passing]

    def forget_phases(self) -> None:
        self.fullest.clear()
        self._peaks.clear()
        self._peak = 0

    def add(self, tensor: torch.Tensor, kind: str) -> None:
        """Count the storage of `tensor`, unless it is counted already."""
        storage = _storage(tensor)
        if storage is None:
            return
        key = storage._cdata
        if key in self._live:
            return
        size = self.rounded(storage.nbytes())
        if size == 0:
            return
        self._count += 1
        number = self._count
        watcher = weakref.ref(storage, lambda _: self._gone(key, number))
        self._live[key] = Entry(number, size, kind, watcher)
        self.events.append((number, size))
        self._grow(size, kind)

    def transient(self, sizes: list[int]) -> None:
        """Working memory (bytes) that a kernel takes and gives back before it returns."""
        blocks = []
        for size in sizes:
            self._count += 1
            blocks.append((self._count, self.rounded(size)))
        self.events.extend(blocks)
        self._grow(sum(size for _, size in blocks), "temporary")
        self._grow(-sum(size for _, size in blocks), "temporary")
        self.events.extend((-number, size) for number, size in blocks)

    def mark(self, tensor: torch.Tensor | None, kind: str) -> None:
        """`tensor` is of another kind than it seemed when it was made."""
        storage = None if tensor is None else _storage(tensor)
        entry = None if storage is None else self._live.get(storage._cdata)
        if entry is not None and entry.kind != kind:
            self.by_kind[entry.kind] -= entry.bytes
            self.by_kind[kind] += entry.bytes
            entry.kind = kind

    def kind_of(self, tensor: torch.Tensor) -> str | None:
        storage = _storage(tensor)
        entry = None if storage is None else self._live.get(storage._cdata)
        return None if entry is None else entry.kind

    def taken(self) -> Any:
        """What was noted since the phases were forgotten, for `give` in another process."""
        return dict(self.fullest)

    def give(self, taken: Any) -> None:
        """As if what was taken elsewhere had been noted here."""
        self.fullest = dict(taken)

    def moments(self) -> tuple[Moment, ...]:
        return tuple(Moment(phase, dict(parts)) for phase, parts in self.fullest.items() if phase)

    def rounded(self, size: int) -> int:
        return -(-size // self._rounding) * self._rounding

    def _grow(self, size: int, kind: str) -> None:
        self.total += size
        self.by_kind[kind] += size
        if self.total > self._peak:
            self._note()

    def _note(self) -> None:
        if self.total > self._peak:
            self._peak = self._peaks[self._phase] = self.total
            self.fullest[self._phase] = dict(self.by_kind)

    def _gone(self, key: int, number: int) -> None:
        entry = self._live.get(key)
        if entry is None or entry.number != number:
            return
        del self._live[key]
        self.total -= entry.bytes
        self.by_kind[entry.kind] -= entry.bytes
        self.events.append((-number, entry.bytes))


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """None for a tensor without one (sparse)."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None
