"""What goes through the network interfaces and the disks: the `traffic` of a line of system.jsonl."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from trainwiz.core.language import tr

MOST_OF_A_KIND = 8
"""The busiest ones are shown: a server with containers has hundreds of interfaces."""

INNER_INTERFACES = ("lo", "veth", "br-", "docker", "virbr", "vnet", "cni", "flannel", "cali", "kube", "lxc", "tap")
"""Names of interfaces inside this machine: what they carry to other machines, a real one carries too."""

INNER_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd")
"""Block devices that are no disk, or lie on disks that are counted themselves."""

BLOCK_FOLDER = Path("/sys/block")
"""Linux lists whole disks here, without their partitions."""

Counters = dict[str, tuple[int, int]]
"""Name -> (bytes in, bytes out) since the machine started."""


class TrafficSampler:
    """Rates since the sample before. Never raises; not for use by two threads at once."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        block_folder: Path = BLOCK_FOLDER,
    ) -> None:
        self._clock = clock
        self._block_folder = block_folder
        self._before: dict[str, tuple[float, Counters]] = {}

    def sample(self) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """([{name, kind: network|disk, in_bytes_per_s, out_bytes_per_s}], reasons for what is missing).

        In is what was received or read, out what was sent or written. A rate is None in the first
        sample of a device, and where its counter went back: it wrapped around, or the device is
        another one of the same name. A device that is gone has no row.
        Reasons are keyed "traffic.network" and "traffic.disk".
        """
        rows: list[dict[str, Any]] = []
        unavailable: dict[str, str] = {}
        for kind, read in (("network", self._network), ("disk", self._disks)):
            try:
                counters = read()
            except (OSError, psutil.Error, RuntimeError, NotImplementedError) as error:
                self._before.pop(kind, None)
                unavailable[f"traffic.{kind}"] = tr("the system does not say it ({reason})", reason=error)
                continue
            if not counters:
                unavailable[f"traffic.{kind}"] = (
                    tr("no network interface is to be seen")
                    if kind == "network"
                    else tr("no disk is to be seen from here")
                )
            rows += self._rates(kind, counters)
        return rows, unavailable

    def _network(self) -> Counters:
        found = psutil.net_io_counters(pernic=True, nowrap=False) or {}
        return {
            name: (one.bytes_recv, one.bytes_sent)
            for name, one in found.items()
            if not name.startswith(INNER_INTERFACES) and one.bytes_recv + one.bytes_sent > 0
        }

    def _disks(self) -> Counters:
        found = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
        whole = self._whole_disks()
        return {
            name: (one.read_bytes, one.write_bytes)
            for name, one in found.items()
            if (whole is None or name in whole)
            and not name.startswith(INNER_DISKS)
            and one.read_bytes + one.write_bytes > 0
        }

    def _whole_disks(self) -> set[str] | None:
        """None where the system keeps no such list: psutil then names whole disks only."""
        try:
            return {entry.name for entry in self._block_folder.iterdir()}
        except OSError:
            return None

    def _rates(self, kind: str, counters: Counters) -> list[dict[str, Any]]:
        now_s = self._clock()
        before_s, before = self._before.get(kind, (now_s, {}))
        self._before[kind] = now_s, counters
        busiest = sorted(counters, key=lambda name: -sum(counters[name]))[:MOST_OF_A_KIND]
        rows = []
        for name in sorted(busiest):
            known = before.get(name)
            span_s = now_s - before_s
            rows.append(
                {
                    "name": name,
                    "kind": kind,
                    "in_bytes_per_s": None if known is None else _rate(known[0], counters[name][0], span_s),
                    "out_bytes_per_s": None if known is None else _rate(known[1], counters[name][1], span_s),
                }
            )
        return rows


def _rate(before: int, now: int, span_s: float) -> float | None:
    """Bytes a second; None where the counter went back or no time passed."""
    return round((now - before) / span_s, 1) if now >= before and span_s > 0 else None
