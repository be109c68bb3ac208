"""The ports of node 0: free, or taken by whom."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

from trainwiz.core.errors import os_reason
from trainwiz.core.language import tr
from trainwiz.core.nodes.problem import NodeProblem
from trainwiz.core.plain import plain_text


def refuse_taken(port: int) -> None:
    """Raises NodeProblem where nobody can listen on the port now."""
    with listen(port):
        return


def listen(port: int) -> socket.socket:
    """On all addresses of this machine, of either kind. Raises NodeProblem where the port is taken."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    try:
        return socket.create_server(("", port), family=family, dualstack_ipv6=family == socket.AF_INET6, backlog=128)
    except OSError as error:
        raise _taken(port, error) from None


def _taken(port: int, error: OSError) -> NodeProblem:
    holder = _holder(port)
    reason = tr("taken by {process}", process=holder) if holder else os_reason(error)
    message = tr(
        "Port {port} of node 0 cannot be used: {reason}. Choose another: --main HOST:PORT.", port=port, reason=reason
    )
    return NodeProblem("port_in_use", message)


def _holder(port: int) -> str | None:
    """Name and number of the process that listens there, where this user may know it."""
    import psutil

    with suppress(psutil.Error, OSError):
        for one in psutil.net_connections("tcp"):
            address: Any = one.laddr
            if one.status == psutil.CONN_LISTEN and address and address.port == port and one.pid:
                return f"{plain_text(psutil.Process(one.pid).name(), 40)} ({one.pid})"
    return None
