"""Newest: what one thread works on, one request at a time; a newer one makes the others stale, and nothing piles up."""

from __future__ import annotations

import threading

from trainwiz.core.plan.request import PlanRequest


class Newest:
    """Thread-safe. One thread at most takes from it; it ends when there is nothing more to take."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: PlanRequest | None = None
        self._newest: PlanRequest | None = None
        self._is_worked_on = False
        self._closed = False

    def put(self, request: PlanRequest) -> bool:
        """Want this request and none before it; True where a thread has to be started for it."""
        with self._lock:
            self._waiting = self._newest = request
            must_start = not self._is_worked_on and not self._closed
            self._is_worked_on = self._is_worked_on or must_start
            return must_start

    def take(self) -> PlanRequest | None:
        """The request to work on; None: the thread ends."""
        with self._lock:
            request, self._waiting = self._waiting, None
            if request is None or self._closed:
                self._is_worked_on = False
                return None
            return request

    def drop(self) -> None:
        """The thread broke off."""
        with self._lock:
            self._is_worked_on = False

    def stale(self) -> None:
        """Nothing that was put is wanted any more."""
        with self._lock:
            self._waiting = self._newest = None

    def is_stale(self, request: PlanRequest) -> bool:
        """Whether work on a request may stop."""
        return self._closed or request is not self._newest

    def close(self) -> None:
        """Nothing is wanted, now and later."""
        with self._lock:
            self._closed, self._waiting = True, None
