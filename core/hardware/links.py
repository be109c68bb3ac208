"""How the cards of one computer are joined: NVLink, a PCIe switch, or the long way round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pynvml
from trainwiz.core.hardware.machine import UNKNOWN_LINK
from trainwiz.core.hardware.nvml import Unreadable, call
from trainwiz.core.language import mark, tr

_LEVELS: dict[int, str] = {
    pynvml.NVML_TOPOLOGY_INTERNAL: mark("same board"),
    pynvml.NVML_TOPOLOGY_SINGLE: mark("one PCIe switch"),
    pynvml.NVML_TOPOLOGY_MULTIPLE: mark("several PCIe switches"),
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: mark("one PCIe host bridge"),
    pynvml.NVML_TOPOLOGY_NODE: mark("one CPU socket"),
    pynvml.NVML_TOPOLOGY_SYSTEM: mark("between CPU sockets"),
}

Bus = tuple[int, int, int]


def read_links(handles: Mapping[int, Any]) -> dict[int, tuple[str, ...]]:
    """For each card, one phrase for each other card: "GPU1: NVLink x4", "GPU1: one PCIe switch".

    `handles` maps NVML indexes to NVML handles. A link that cannot be read is "GPU1: unknown (reason)".
    """
    if len(handles) < 2:
        return {}
    buses = {index: _bus(handle) for index, handle in handles.items()}
    peers = {index: _nvlink_peers(handle) for index, handle in handles.items()}
    return {
        one: tuple(
            f"GPU{other}: {_link(handles[one], handles[other], peers[one], peers[other], buses[other])}"
            for other in handles
            if other != one
        )
        for one in handles
    }


def _link(
    one: Any, other: Any, peers: tuple[list[Bus], int], other_peers: tuple[list[Bus], int], other_bus: Bus | None
) -> str:
    direct = sum(bus == other_bus for bus in peers[0]) if other_bus is not None else 0
    if direct:
        return f"NVLink x{direct}"
    if peers[1] and other_peers[1]:
        return tr("NVLink x{count} through NVSwitch", count=min(peers[1], other_peers[1]))
    try:
        level = int(call("nvmlDeviceGetTopologyCommonAncestor", one, other))
    except Unreadable as error:
        return f"{tr(UNKNOWN_LINK)} ({error.reason})"
    return tr(_LEVELS[level]) if level in _LEVELS else tr("PCIe (topology level {level})", level=level)


def _bus(handle: Any) -> Bus | None:
    try:
        info = call("nvmlDeviceGetPciInfo", handle)
    except Unreadable:
        return None
    return int(info.domain), int(info.bus), int(info.device)


def _nvlink_peers(handle: Any) -> tuple[list[Bus], int]:
    """(bus of the card at the far end of each active link, number of active links that end in an NVSwitch)."""
    cards: list[Bus] = []
    switches = 0
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if not call("nvmlDeviceGetNvLinkState", handle, link):
                continue
            if _ends_in_switch(handle, link):
                switches += 1
                continue
            far = call("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
            cards.append((int(far.domain), int(far.bus), int(far.device)))
        except Unreadable:
            # The first link that the card does not have: there are none behind it.
            break
    return cards, switches


def _ends_in_switch(handle: Any, link: int) -> bool:
    try:
        kind = call("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
    except Unreadable:
        # Drivers before 460 do not say it; the far end's address then tells a card from a switch.
        return False
    return bool(kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH)
