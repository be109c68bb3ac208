"""Where node 0 is: HOST:PORT, and the ports that a run of several nodes needs there."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from trainwiz.core.errors import usage_error
from trainwiz.core.language import tr
from trainwiz.core.run.folder import NODES, write_atomic

DEFAULT_PORT = 29500
"""That of torchrun."""
HIGHEST_PORT = 65534
MAIN_VARIABLE = "TRAINWIZ_MAIN_NODE"
"""Environment variable with HOST:PORT of node 0; the launcher of node 0 reads it."""
MAIN_FILE = "main"
"""HOST:PORT of node 0 as the run had it last, in the folder of the nodes."""
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*|[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?")
_NOWHERE = "192.0.2.1"
"""Of a block that is kept for documentation (RFC 5737): asking for the way to it sends nothing."""


@dataclass(frozen=True, slots=True)
class Address:
    """Node 0 as the other nodes reach it."""

    host: str
    port: int = DEFAULT_PORT
    """Of torch's rendezvous."""

    @property
    def meeting_port(self) -> int:
        """Where the nodes meet, and hold on to each other while they train."""
        return self.port + 1

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """HOST, HOST:PORT or [IPv6]:PORT. Raises UsageError for anything else."""
    host, port = _split(text.strip())
    if not host or _HOST.fullmatch(host) is None or not port.isdigit() or not 1 <= int(port) <= HIGHEST_PORT:
        message = tr(
            "{text} is no address of node 0; write HOST or HOST:PORT (port 1 to {most}), for example 10.0.0.1:29500.",
            text=repr(text),
            most=HIGHEST_PORT,
        )
        raise usage_error("bad_address", "--main", message)
    return Address(host, int(port))


def _split(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":") or str(DEFAULT_PORT)
    if text.count(":") > 1:
        return text, str(DEFAULT_PORT)
    host, colon, port = text.partition(":")
    return host, port if colon else str(DEFAULT_PORT)


def own_address() -> Address:
    """This machine as others are likely to reach it: the address of its way out, else its name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_NOWHERE, 9))
            return Address(str(probe.getsockname()[0]))
        except OSError:
            return Address(socket.gethostname())


def main_address(folder: Path) -> Address:
    """Of the environment where it says so, else as the run had it last, else this machine's own. Raises UsageError."""
    text = os.environ.get(MAIN_VARIABLE) or _kept(folder)
    return parse_address(text) if text else own_address()


def keep_address(folder: Path, address: Address) -> None:
    """For a run that goes on: its other nodes may still look for node 0 there. Raises OSError."""
    (folder / NODES).mkdir(exist_ok=True)
    write_atomic(folder / NODES / MAIN_FILE, f"{address}\n")


def _kept(folder: Path) -> str:
    try:
        return (folder / NODES / MAIN_FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
