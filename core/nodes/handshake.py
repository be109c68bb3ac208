"""What two nodes say to each other first: that both belong to the run, then what each of them is.

worker -> node 0   nonce
node 0 -> worker   nonce
worker -> node 0   proof; from here on each line of either begins with its HMAC-SHA256
node 0 -> worker   proof
worker -> node 0   hello    {node, host, facts}

The key is that of both nonces under the token of the meeting, which is itself never sent. Role and number of a line
are part of what its HMAC covers: a line that is recorded, sent back or put in by somebody between two nodes is none.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.metadata
import json
import os
import platform
import secrets
import select
import socket
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from trainwiz.core.config import RunConfig
from trainwiz.core.errors import os_reason
from trainwiz.core.files import read_small
from trainwiz.core.language import tr
from trainwiz.core.nodes.address import plain_address
from trainwiz.core.run.folder import MEETING_TOKEN
from trainwiz.core.run.identity import settings_now

BEAT_EVERY_S = 2.0
SILENT_LOST_S = 30.0
"""Without a word for so long a node is lost: its machine, or the way to it, is gone."""
GREETING_S = 15.0
"""From the connection to the introduction; a network file system may show the new token seconds later."""
LONGEST_LINE_BYTES = 1 << 20
LONGEST_GREETING_BYTES = 4096
"""Of a side that has not proved anything yet."""
SEND_PATIENCE_S = 5.0
ALIVE = "alive"
TOKEN_BYTES = 32
COMPARED = ("trainwiz", "torch", "transformers", "accelerate", "deepspeed", "peft")
"""Libraries that must be alike on all nodes: others compute or speak otherwise."""
Message = dict[str, Any]
Role = Literal["worker", "main"]
T = TypeVar("T")


class ChannelClosed(Exception):
    """The other side is gone, or is none of this run; the text says how it was noticed."""


class Channel:
    """Never blocks for long; both sides send ALIVE every BEAT_EVERY_S while they hold it."""

    def __init__(self, connection: socket.socket, role: Role) -> None:
        """`role` is that of this side. Raises OSError for a connection that has ended."""
        connection.settimeout(SEND_PATIENCE_S)
        self.connection = connection
        self.node, self.host = 0, ""
        """Number and name of the other side, once it has said them."""
        self.other_address = plain_address(connection.getpeername()[0])
        """Known after the other side has left too."""
        self.own_address = plain_address(connection.getsockname()[0])
        """That of the interface which carries the connection."""
        self._role: Role = role
        self._other_role: Role = "main" if role == "worker" else "worker"
        self._key = b""
        self._sent = self._heard_lines = 0
        self._rest = b""
        self._heard = time.monotonic()
        self._next_beat = 0.0
        self._deadline = self._heard + GREETING_S

    @property
    def name(self) -> str:
        """The other side, as users are told of it."""
        where = ", ".join(dict.fromkeys(filter(None, (self.host, self.other_address))))
        return tr("Node {node} ({where})", node=self.node, where=where)

    def prove(self, token: Callable[[], bytes | None]) -> Generator[None, None, None]:
        """Each side shows the other that it knows the token. Yields while it waits, for the token too (None).

        Raises ChannelClosed where the other side does not.
        """
        own, is_worker = secrets.token_hex(TOKEN_BYTES), self._role == "worker"
        if is_worker:
            self.send({"kind": "nonce", "nonce": own})
        other = str((yield from self.wait_for("nonce")).get("nonce"))
        if not is_worker:
            self.send({"kind": "nonce", "nonce": own})
        secret = yield from self._until(token)
        nonces = f"{own} {other}" if is_worker else f"{other} {own}"
        self._key = _mac(secret, nonces.encode())
        if is_worker:
            self.send({"kind": "proof"})
        yield from self.wait_for("proof")
        if not is_worker:
            self.send({"kind": "proof"})

    def wait_for(self, kind: str) -> Generator[None, None, Message]:
        """The next message; yields until it is there. Raises ChannelClosed for another kind, and for more than one."""
        messages = yield from self._until(lambda: self.receive() or None)
        if [message.get("kind") for message in messages] != [kind]:
            raise ChannelClosed(tr("another program answered"))
        return messages[0]

    def _until(self, found: Callable[[], T | None]) -> Generator[None, None, T]:
        """What is found at last; yields until then. Raises ChannelClosed GREETING_S after the connection."""
        while (value := found()) is None:
            if time.monotonic() > self._deadline:
                raise ChannelClosed(tr("no answer"))
            yield
        return value

    def send(self, message: Message) -> None:
        """Raises ChannelClosed."""
        line = json.dumps(message).encode()
        if self._key:
            line = self._seal(self._role, self._sent, line) + b" " + line
            self._sent += 1
        try:
            self.connection.sendall(line + b"\n")
        except OSError as error:
            raise ChannelClosed(os_reason(error)) from None

    def beat(self) -> None:
        """Say that this side is there, when it is time. Raises ChannelClosed."""
        if time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + BEAT_EVERY_S
            self.send({"kind": ALIVE})

    def receive(self, wait_s: float = 0.0) -> list[Message]:
        """What has come, without ALIVE. Raises ChannelClosed at its end, after SILENT_LOST_S without a word, and for
        a line that is not of the other side."""
        ready, _, _ = select.select([self.connection], [], [], wait_s)
        silent_s = time.monotonic() - self._heard
        if ready:
            self._read()
        elif silent_s > SILENT_LOST_S:
            raise ChannelClosed(tr("no message for {seconds} s", seconds=f"{silent_s:.0f}"))
        *lines, self._rest = self._rest.split(b"\n")
        return [message for line in lines if (message := self._opened(line)).get("kind") != ALIVE]

    def close(self) -> None:
        with suppress(OSError):
            self.connection.close()

    def _opened(self, line: bytes) -> Message:
        if self._key:
            seal, _, line = line.partition(b" ")
            if not hmac.compare_digest(seal, self._seal(self._other_role, self._heard_lines, line)):
                raise ChannelClosed(tr("received a line that is not from this run"))
            self._heard_lines += 1
        with suppress(ValueError, RecursionError):
            document = json.loads(line)
            if isinstance(document, dict):
                return document
        raise ChannelClosed(tr("another program answered"))

    def _seal(self, role: Role, number: int, body: bytes) -> bytes:
        return _mac(self._key, f"{role} {number} ".encode() + body)

    def _read(self) -> None:
        try:
            data = self.connection.recv(65536)
        except OSError as error:
            raise ChannelClosed(os_reason(error)) from None
        if not data:
            raise ChannelClosed(tr("its connection was closed"))
        self._heard = time.monotonic()
        self._rest += data
        if len(self._rest) > (LONGEST_LINE_BYTES if self._heard_lines else LONGEST_GREETING_BYTES):
            raise ChannelClosed(tr("another program answered"))


def _mac(key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, hashlib.sha256).hexdigest().encode()


def new_token(folder: Path) -> bytes:
    """Written into the run folder for the owner of the run alone. Raises OSError."""
    token, path = secrets.token_hex(TOKEN_BYTES).encode(), folder / MEETING_TOKEN
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(token)
    return token


def read_token(folder: Path) -> bytes | None:
    """What node 0 wrote into the run folder; None while it is not there, or not whole."""
    with suppress(OSError):
        token = read_small(folder / MEETING_TOKEN)
        return token if len(token) == 2 * TOKEN_BYTES else None
    return None


@dataclass(frozen=True, slots=True)
class Handshake:
    """What a node says about itself."""

    node: int
    host: str
    facts: dict[str, dict[str, Any]]
    """What must be alike on all nodes, by the parts of core.run.identity: processes, versions of libraries, data."""


def introduce(node: int, config: RunConfig, folder: Path) -> Handshake:
    """Reads samples of the run's data as this machine finds them, 64 MiB of a source at most.

    What is not here is left out: it comes from the hub when the training asks for it, or the training says that it lacks.
    """
    engine = config.engine
    facts: dict[str, dict[str, Any]] = {
        "processes": {"nodes": engine.nodes, "processes": engine.processes or 1},
        "engine": {name: _version(name) for name in COMPARED},
        "data": settings_now(config, folder)["data"],
    }
    return Handshake(node, platform.node(), facts)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
