"""TracerProcess: the child that traces, as lines of JSON in and out, never waited for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from trainwiz.core.json_text import parse_json
from trainwiz.core.language import tr

LONGEST_LINE_BYTES = 4 << 20
"""More without a line end is no answer."""
READ_BYTES = 1 << 16


class BrokenTracerError(Exception):
    """The process ended, or says what it should not."""


class TracerProcess:
    """Made in the thread that stays for as long as the process: Linux ends it with that thread.

    It has a session of its own, so that ctrl-C in the terminal is the front end's alone, and `kill`
    reaches all that it started. Raises OSError when it cannot be started.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        for pipe in (self._stdin, self._stdout):
            os.set_blocking(pipe.fileno(), False)
        self._unsent = b""
        self._unread = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> int:
        """Descriptor to wait for."""
        return self._stdout.fileno()

    @property
    def input(self) -> int:
        return self._stdin.fileno()

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def send(self, message: Mapping[str, Any]) -> None:
        """Queues one message and writes what the pipe takes now."""
        self._unsent += json.dumps(message).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        while self._unsent:
            try:
                sent = os.write(self._stdin.fileno(), self._unsent)
            except BlockingIOError:
                return
            except OSError:
                # Its end, and its last words, come by its output.
                self._unsent = b""
                return
            self._unsent = self._unsent[sent:]

    def receive(self) -> list[dict[str, Any]]:
        """The messages that are whole by now; BrokenTracerError at the end of the output and for anything else on it."""
        try:
            chunk = os.read(self._stdout.fileno(), READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            chunk = b""
        if not chunk:
            raise BrokenTracerError(tr("it ended"))
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        if len(self._unread) > LONGEST_LINE_BYTES:
            raise BrokenTracerError(tr("it wrote a line without an end"))
        return [_message(line) for line in lines]

    def kill(self) -> None:
        """SIGKILL to it and all of its session, and the end of its pipes. For the second time it does nothing."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._process.kill()
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        # One that hangs in the kernel dies later; nobody waits for it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1.0)


def _message(line: bytes) -> dict[str, Any]:
    try:
        message = parse_json(line)
    except ValueError:
        raise BrokenTracerError(tr("it wrote something that is no JSON")) from None
    if not isinstance(message, dict):
        raise BrokenTracerError(tr("it wrote an invalid message"))
    return message
