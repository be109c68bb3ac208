"""Ports that nobody uses at this moment."""

import socket


def free_port_pair() -> int:
    """A port that is free together with the next one."""
    while True:
        with socket.create_server(("", 0)) as first:
            port: int = first.getsockname()[1]
            if port >= 65534:
                continue
            try:
                socket.create_server(("", port + 1)).close()
            except OSError:
                continue
        return port
