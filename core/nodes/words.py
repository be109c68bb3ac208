"""How a node is called."""

from __future__ import annotations

from trainwiz.core.language import tr


def named(node: int, host: str, address: str) -> str:
    return tr("Node {node} ({host}, {address})", node=node, host=host, address=address)
