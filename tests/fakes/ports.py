"""Ports that nobody uses at this moment."""

import secrets
import socket
from contextlib import suppress


def free_port_pair() -> int:
    """A port that is free together with the next one; below those that systems give to connections of other tests."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with suppress(OSError), socket.create_server(("", port)), socket.create_server(("", port + 1)):
            return port
