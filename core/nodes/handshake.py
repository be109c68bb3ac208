"""What two nodes say to each other first: that both belong to the run, then what each of them is.

worker -> node 0   nonce
node 0 -> worker   nonce
worker -> node 0   proof; from here on each line of either begins with its HMAC-SHA256
node 0 -> worker   proof
worker -> node 0   hello    {node, nodes, host, processes, versions, data}

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
import re
import secrets
import select
import socket
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from trainwiz.core.config import RunConfig
from trainwiz.core.data.sources import all_sources, is_of_the_hub
from trainwiz.core.errors import os_reason
from trainwiz.core.files import read_small
from trainwiz.core.language import tr
from trainwiz.core.nodes.address import NodeProblem, plain_address
from trainwiz.core.run.folder import MEETING_TOKEN
from trainwiz.core.run.identity import compare, settings_now
from trainwiz.core.text import plain_text

BEAT_EVERY_S = 2.0
SILENT_LOST_S = 30.0
"""Without a word for so long a node is lost: its machine, or the way to it, is gone."""
LONGEST_LINE_BYTES = 1 << 20
LONGEST_GREETING_BYTES = 4096
"""Of a side that has not proved anything yet."""
SEND_PATIENCE_S = 5.0
ALIVE = "alive"
_TOKEN = re.compile(rb"[0-9a-f]{64}")
COMPARED = ("trainwiz", "torch", "transformers", "accelerate", "deepspeed", "peft")
"""Libraries that must be alike on all nodes: others compute or speak otherwise."""
LONGEST_SAID = 300
Message = dict[str, Any]
Role = Literal["worker", "main"]


class ChannelClosed(Exception):
    """The other side is gone, or is none of this run; the text says how it was noticed."""


class Channel:
    """Never blocks for long; both sides send ALIVE every BEAT_EVERY_S while they hold it."""

    def __init__(self, connection: socket.socket, role: Role) -> None:
        """`role` is that of this side. Raises OSError for a connection that has ended."""
        connection.setblocking(False)
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = connection
        self.other_host = plain_address(connection.getpeername()[0])
        """IP address of the other side, known after it has left too."""
        self.own_host = plain_address(connection.getsockname()[0])
        """This side's IP address: that of the interface which carries the connection."""
        self._role: Role = role
        self._key = b""
        self._sent = self._heard_lines = 0
        self._rest = b""
        self._heard = time.monotonic()
        self._next_beat = 0.0

    @property
    def silent_s(self) -> float:
        """Since the last word of the other side."""
        return time.monotonic() - self._heard

    def prove(self, token: Callable[[], bytes | None]) -> Generator[None, None, None]:
        """Each side shows the other that it knows the token. Yields while it waits, for the token too (None).

        Raises ChannelClosed where the other side does not.
        """
        own = secrets.token_hex(32)
        if self._role == "worker":
            self.send({"kind": "nonce", "nonce": own})
        other = str((yield from self.wait_for("nonce")).get("nonce"))
        if self._role == "main":
            self.send({"kind": "nonce", "nonce": own})
        while (secret := token()) is None:
            yield
        nonces = f"{own} {other}" if self._role == "worker" else f"{other} {own}"
        self._key = _mac(secret, nonces.encode())
        if self._role == "worker":
            self.send({"kind": "proof"})
        yield from self.wait_for("proof")
        if self._role == "main":
            self.send({"kind": "proof"})

    def wait_for(self, kind: str) -> Generator[None, None, Message]:
        """The next message; yields until it is there. Raises ChannelClosed for another kind, and for more than one."""
        while not (messages := self.receive()):
            yield
        if [message.get("kind") for message in messages] != [kind]:
            raise ChannelClosed(tr("another program answered"))
        return messages[0]

    def send(self, message: Message) -> None:
        """Raises ChannelClosed."""
        left = json.dumps(message).encode()
        if self._key:
            left = self._seal(self._role, self._sent, left) + b" " + left
            self._sent += 1
        left += b"\n"
        deadline = time.monotonic() + SEND_PATIENCE_S
        while left:
            try:
                left = left[self.connection.send(left) :]
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ChannelClosed(tr("it no longer accepts data")) from None
                select.select([], [self.connection], [], 0.2)
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
        if ready:
            self._read()
        elif self.silent_s > SILENT_LOST_S:
            raise ChannelClosed(tr("no message for {seconds} s", seconds=f"{self.silent_s:.0f}"))
        *lines, self._rest = self._rest.split(b"\n")
        return [message for line in lines if (message := self._opened(line)).get("kind") != ALIVE]

    def close(self) -> None:
        with suppress(OSError):
            self.connection.close()

    def _opened(self, line: bytes) -> Message:
        if self._key:
            seal, _, line = line.partition(b" ")
            other: Role = "main" if self._role == "worker" else "worker"
            if not hmac.compare_digest(seal, self._seal(other, self._heard_lines, line)):
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
        except BlockingIOError:
            return
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


def write_token(folder: Path, token: bytes) -> None:
    """For the owner of the run alone. Raises OSError."""
    path = folder / MEETING_TOKEN
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(token)


def read_token(folder: Path) -> bytes | None:
    """What node 0 wrote into the run folder; None while it is not there, or not whole."""
    with suppress(OSError):
        token = read_small(folder / MEETING_TOKEN)
        return token if _TOKEN.fullmatch(token) else None
    return None


@dataclass(frozen=True, slots=True)
class Handshake:
    """What a node says about itself."""

    node: int
    nodes: int
    host: str
    processes: int
    versions: dict[str, str | None]
    data: dict[str, Any] = field(default_factory=dict)
    """As in identity.json: each source as this node finds it; None for one that is not there."""

    @classmethod
    def from_message(cls, message: Message) -> Handshake:
        """Raises ChannelClosed for what is no introduction."""
        try:
            who = cls(**{name: message[name] for name in cls.__dataclass_fields__})
        except KeyError:
            raise ChannelClosed(tr("another program answered")) from None
        return replace(who, host=plain_text(who.host, 100))


def introduce(node: int, nodes: int, processes: int, data: dict[str, Any] | None = None) -> Handshake:
    versions = {name: _version(name) for name in COMPARED}
    return Handshake(node, nodes, platform.node(), processes, versions, data or {})


def data_of(config: RunConfig, folder: Path) -> dict[str, Any]:
    """The data of a run as this machine finds it. Reads samples of the files, 64 MiB of a source at most.

    What the hub has and this machine not yet is left out: it comes when the training asks for it.
    """
    train, held = all_sources(config)
    missing = {key: None for key, source in (*train, *held) if not is_of_the_hub(source.name, folder)}
    return {**missing, **settings_now(config, folder)["data"]}


def refuse_unlike(mine: Handshake, other: Handshake, name: str) -> None:
    """Raises NodeProblem where `other`, called `name`, would not train the same as this node."""
    versions = [
        f"{library} {plain_text(other.versions.get(library), 40)} ≠ {version}"
        for library, version in mine.versions.items()
        if other.versions.get(library) != version
    ]
    data = _data_apart(mine.data, other.data)
    if other.processes != mine.processes:
        message = tr(
            "{name} starts {n} processes, but node 0 starts {mine}: all nodes need the same number of GPUs.",
            name=name,
            n=other.processes,
            mine=mine.processes,
        )
    elif versions:
        message = tr(
            "{name} has different versions from node 0 ({versions}): install the same versions on all nodes.",
            name=name,
            versions=", ".join(versions),
        )
    elif data:
        message = tr(
            "{name} has different data from node 0 ({differences}): provide the same files at the same path on all "
            "nodes.",
            name=name,
            differences=plain_text("; ".join(data), LONGEST_SAID),
        )
    else:
        return
    raise NodeProblem("config_mismatch", message)


def _data_apart(mine: dict[str, Any], other: dict[str, Any]) -> list[str]:
    both = [key for key in mine if key in other]
    missing = [key for key in both if (mine[key] is None) != (other[key] is None)]
    here, there = ({key: data[key] for key in both if key not in missing} for data in (mine, other))
    return [
        *(tr("{source} is missing on one of them", source=key) for key in missing),
        *(difference.text for difference in compare({"data": here}, {"data": there})),
    ]


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
