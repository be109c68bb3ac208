"""NVML as values: one session, and a read that gives back the value or the reason why there is none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

import pynvml
from trainwiz.core.language import mark, tr

T = TypeVar("T")

NO_LIBRARY = mark("no NVIDIA driver is installed: libnvidia-ml.so.1 was not found")
NOT_LOADED = mark("the NVIDIA driver is installed but not loaded")
DRIVER_UPDATED = mark("the NVIDIA driver was updated but the old one is still loaded: reboot, or reload the driver")
TOO_LATE = mark("the driver did not respond in time")
NO_GPU = mark("the NVIDIA driver works but finds no GPU")
"""Reasons that code compares, in the language in use: `reason == tr(NO_GPU)`."""

_REASONS: dict[int, str] = {
    pynvml.NVML_ERROR_UNINITIALIZED: mark("NVML is not initialized"),
    pynvml.NVML_ERROR_NOT_SUPPORTED: mark("this GPU does not report it"),
    pynvml.NVML_ERROR_NO_PERMISSION: mark("this user has no permission to read it"),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: NOT_LOADED,
    pynvml.NVML_ERROR_TIMEOUT: TOO_LATE,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: NO_LIBRARY,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: mark("this driver version does not report it"),
    pynvml.NVML_ERROR_GPU_IS_LOST: mark("the GPU is lost: it has fallen off the bus, or needs a reset or a reboot"),
    pynvml.NVML_ERROR_RESET_REQUIRED: mark("the GPU needs a reset"),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: DRIVER_UPDATED,
    pynvml.NVML_ERROR_UNKNOWN: mark("the driver reports an unknown error"),
}

LOST_CODES = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
"""Errors that concern the whole card, not one sensor."""

PERMANENT_CODES = frozenset({pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND})
"""Errors that will not go away while the driver stays: there is no use in asking again."""


class Unreadable(Exception):
    """A value that NVML did not give: `code` is NVML's (None for a failure outside it), the text says why."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code

    @property
    def lost(self) -> bool:
        return self.code in LOST_CODES


def call(function: str, *arguments: Any) -> Any:
    """`pynvml.function(*arguments)`; raises Unreadable with a reason in words, and nothing else."""
    try:
        value = getattr(pynvml, function)(*arguments)
    except pynvml.NVMLError as error:
        code = int(error.value)
        raise Unreadable(tr(_REASONS[code]) if code in _REASONS else str(error), code) from None
    except AttributeError:
        raise Unreadable(tr("the installed nvidia-ml-py has no {function}", function=function)) from None
    except (ValueError, TypeError, OSError) as error:
        raise Unreadable(tr("the driver's response could not be read ({error})", error=error)) from None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


ANSWER_S = 30.0
"""A driver that must first wake eight cards takes most of it."""
_hangs = False


def in_time(read: Callable[[], T], within_s: float | None = None) -> T:
    """What `read` gives. Raises Unreadable where the driver has not answered after `within_s` (ANSWER_S without it).

    It is not asked again then.
    A driver that has lost its card may never come back from a call, and nothing can end such a call.
    """
    global _hangs
    answers: list[T] = []
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            answers.append(read())
        except BaseException as error:  # noqa: BLE001 -- raised again by the one who waits
            failures.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(ANSWER_S if within_s is None else within_s)
    if failures:
        raise failures[0]
    if not answers:
        _hangs = True
        raise Unreadable(tr(TOO_LATE), pynvml.NVML_ERROR_TIMEOUT)
    return answers[0]


class Reader:
    """Reads the fields of one thing and keeps the reasons for those that could not be read."""

    def __init__(self) -> None:
        self.unavailable: dict[str, str] = {}
        self.lost: str | None = None

    def read(self, field: str, read: Callable[[], T]) -> T | None:
        """What `read` gives, or None with the reason under `unavailable[field]`."""
        try:
            return read()
        except Unreadable as error:
            self.unavailable[field] = error.reason
            if error.lost:
                self.lost = error.reason
            return None


class NvmlSession:
    """`with NvmlSession() as nvml`: `nvml.error` is None, or says why there is no NVML here."""

    def __init__(self) -> None:
        self.error: str | None = tr("NVML is not initialized")

    def open(self) -> bool:
        """Initialise NVML; True when it worked. Safe to call again after a failure or a close."""
        if self.error is None:
            return True
        if _hangs:
            self.error = tr(TOO_LATE)
            return False
        try:
            call("nvmlInit")
        except Unreadable as error:
            self.error = error.reason
            return False
        self.error = None
        return True

    def close(self) -> None:
        if self.error is not None:
            return
        self.error = tr("NVML is not initialized")
        try:
            call("nvmlShutdown")
        except Unreadable as error:
            self.error = error.reason

    def __enter__(self) -> NvmlSession:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def device_memory(handle: Any) -> tuple[int, int, int]:
    """(total, free, used) in bytes. Used leaves out what the driver itself reserves, where the driver says it."""
    try:
        info = call("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
    except Unreadable as error:
        if error.lost:
            raise
        info = call("nvmlDeviceGetMemoryInfo", handle)
    return int(info.total), int(info.free), int(info.used)


def mig_handles(card: Any) -> tuple[bool | None, list[Any]]:
    """(MIG is enabled, the handles of its slices); (None, []) for a card without MIG."""
    try:
        current, _ = call("nvmlDeviceGetMigMode", card)
    except Unreadable as error:
        if error.lost:
            raise
        return None, []
    if not current:
        return False, []
    slices = []
    for index in range(int(call("nvmlDeviceGetMaxMigDeviceCount", card))):
        try:
            slices.append(call("nvmlDeviceGetMigDeviceHandleByIndex", card, index))
        except Unreadable as error:
            if error.lost:
                raise
    return True, slices
