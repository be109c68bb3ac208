"""Where node 0 is: HOST:PORT, the ports that it listens on, and the interfaces over which nodes reach each other."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainwiz.core.errors import EXIT_TRAINING_FAILED, Finding, TrainwizError, os_reason, usage_error
from trainwiz.core.export.accelerate import INTERFACES
from trainwiz.core.files import read_small
from trainwiz.core.language import tr
from trainwiz.core.run.folder import NODES, write_atomic

NCCL, GLOO = INTERFACES

DEFAULT_PORT = 29500
"""That of torchrun."""
HIGHEST_PORT = 65534
MAIN_VARIABLE = "TRAINWIZ_MAIN_NODE"
"""Environment variable with HOST:PORT of node 0; the launcher of node 0 reads it."""
MAIN_FILE = "main"
"""HOST:PORT of node 0 as the run had it last, in the folder of the nodes."""
_IPV6 = r"[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?"
_ADDRESS = re.compile(
    rf"(?:(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*)|\[(?P<bracketed>{_IPV6})\])(?::(?P<port>[0-9]{{1,5}}))?"
    rf"|(?P<bare>(?=.*:.*:){_IPV6})"
)
_NOWHERE = "192.0.2.1"
"""Of a block that is kept for documentation (RFC 5737): asking for the way to it sends nothing."""


class NodeProblem(TrainwizError):
    """One sentence with its code, as one of core.diagnosis or of `core.diagnosis.diagnose.CAUSE_OF_CODE`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(Finding(code, "error", "engine.nodes", message), EXIT_TRAINING_FAILED)

    @property
    def code(self) -> str:
        return self.findings[0].code

    @property
    def message(self) -> str:
        return self.findings[0].message


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
    found = _ADDRESS.fullmatch(text.strip())
    port = int(found["port"] or DEFAULT_PORT) if found is not None else 0
    if found is None or not 1 <= port <= HIGHEST_PORT:
        message = tr(
            "{text} is not an address of node 0; use HOST or HOST:PORT (port 1 to {most}). Example: 10.0.0.1:29500.",
            text=repr(text),
            most=HIGHEST_PORT,
        )
        raise usage_error("bad_address", "--main", message)
    return Address(found["host"] or found["bracketed"] or found["bare"], port)


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
    text = os.environ.get(MAIN_VARIABLE, "")
    with suppress(OSError, UnicodeDecodeError):
        text = text or read_small(folder / NODES / MAIN_FILE).decode().strip()
    return parse_address(text) if text else own_address()


def keep_address(folder: Path, address: Address) -> None:
    """For a run that goes on: its other nodes may still look for node 0 there. Raises OSError."""
    (folder / NODES).mkdir(exist_ok=True)
    write_atomic(folder / NODES / MAIN_FILE, f"{address}\n")


def listen(address: Address) -> list[socket.socket]:
    """Where the nodes meet: on the addresses that were named, and no other. Raises NodeProblem.

    On many systems a machine's own name stands for 127.0.1.1 there; then it says nothing about which address the
    others use.
    """
    try:
        found = socket.getaddrinfo(address.host, address.meeting_port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise _cannot_listen(address.host, address.meeting_port, error) from None
    hosts = {str(place[0]): (family, place) for family, _, _, _, place in found}
    is_name = address.host not in ("localhost", *hosts)
    if is_name and any(ipaddress.ip_address(host.partition("%")[0]).is_loopback for host in hosts):
        return [everywhere(address.host, address.meeting_port)]
    opened, refused = list[socket.socket](), OSError()
    for family, place in hosts.values():
        try:
            opened.append(socket.create_server(place, family=family, backlog=128))
        except OSError as error:
            refused = error
    # A name may have addresses that are another machine's; a port that is taken on one of its own is taken.
    if not opened or refused.errno not in (None, errno.EADDRNOTAVAIL):
        raise _cannot_listen(address.host, address.meeting_port, refused)
    return opened


def everywhere(host: str, port: int) -> socket.socket:
    """On all addresses of this machine, `host`, of either kind. Raises NodeProblem where the port is taken."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    try:
        return socket.create_server(("", port), family=family, dualstack_ipv6=family == socket.AF_INET6, backlog=128)
    except OSError as error:
        raise _cannot_listen(host, port, error) from None


def _cannot_listen(host: str, port: int, error: OSError) -> NodeProblem:
    message = tr(
        "Node 0 cannot listen on {host}, port {port}: {reason}. Use an address of node 0 itself and a free port: "
        "--main HOST:PORT; it has {here}.",
        host=host,
        port=port,
        reason=os_reason(error),
        here=", ".join(f"{name} ({held[0]})" for name, held in interface_addresses().items() if held),
    )
    is_elsewhere = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
    return NodeProblem("wrong_interface" if is_elsewhere else "port_in_use", message)


def interface_addresses() -> dict[str, list[str]]:
    """Name -> its IP addresses, of all interfaces."""
    import psutil

    families = (socket.AF_INET, socket.AF_INET6)
    return {
        name: [one.address for one in addresses if one.family in families]
        for name, addresses in psutil.net_if_addrs().items()
    }


def plain_address(address: str) -> str:
    """Without a scope, and an IPv4 address as such where it came through an IPv6 socket."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def network_variables(
    environment: Mapping[str, str], address: str, interfaces: Mapping[str, list[str]]
) -> dict[str, str]:
    """What the training needs beside `environment`, so that it uses the interface over which the nodes have met: the one
    that has this `address`.

    Left alone, gloo takes the address that the machine's own name stands for, which on many systems is 127.0.1.1.
    """
    for name, held in interfaces.items():
        if address in map(plain_address, held):
            wanted = {NCCL: f"={name}", GLOO: name}
            return {variable: value for variable, value in wanted.items() if not environment.get(variable)}
    return {}
