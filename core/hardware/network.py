"""The network of this computer: interfaces that other nodes can reach, and InfiniBand adapters."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import psutil

NOT_OUTWARD = ("lo", "docker", "veth", "br-", "virbr", "cni", "flannel")
"""Beginnings of names: loopback, and bridges that end in this machine."""
ROUTES = "proc/net/route"
ADAPTERS = "sys/class/infiniband"
EVERYWHERE = "00000000"
"""Destination of the default route in /proc/net/route."""


def interfaces(root: Path = Path("/")) -> tuple[str, ...]:
    """Names of the interfaces that are up and have an IPv4 address, the one of the default route first."""
    try:
        up = psutil.net_if_stats()
        addresses = psutil.net_if_addrs()
    except (OSError, RuntimeError):
        return ()
    names = [
        name
        for name in sorted(addresses)
        if name in up
        and up[name].isup
        and not name.startswith(NOT_OUTWARD)
        and any(address.family == socket.AF_INET for address in addresses[name])
    ]
    first = default_interface(root)
    return tuple(sorted(names, key=lambda name: name != first))


def default_interface(root: Path = Path("/")) -> str | None:
    """The interface of the default route; None where there is none, or elsewhere than on Linux."""
    try:
        lines = (root / ROUTES).read_text(encoding="utf-8", errors="replace").splitlines()[1:]
    except OSError:
        return None
    routes = [fields for line in lines if len(fields := line.split()) > 6 and fields[1] == EVERYWHERE]
    best = min(routes, key=lambda fields: int(fields[6]) if fields[6].isdecimal() else 0, default=None)
    return best[0] if best is not None else None


def infiniband_adapters(root: Path = Path("/")) -> tuple[str, ...] | None:
    """InfiniBand and RoCE adapters; () where the kernel knows none, None where there is no such list to read."""
    if sys.platform != "linux":
        return None
    try:
        return tuple(sorted(entry.name for entry in (root / ADAPTERS).iterdir()))
    except FileNotFoundError:
        return ()
    except OSError:
        return None
