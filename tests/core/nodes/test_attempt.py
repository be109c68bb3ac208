"""What an attempt does before the nodes meet."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainwiz.core.nodes.address import Address, NodeProblem
from trainwiz.core.nodes.handshake import introduce
from trainwiz.core.nodes.node import NodeAttempt, NodeOrder


class Met(Exception):
    """The attempt came as far as the meeting."""


def attempt(folder: Path, *, had_met: bool) -> NodeAttempt:
    return NodeAttempt(
        NodeOrder(
            folder,
            introduce(1, 2, 1),
            Address("10.0.0.1"),
            patience_s=5.0,
            command=lambda given: ["false", *given],
            environment={"GLOO_SOCKET_IFNAME": "eth0"},
            had_met=had_met,
        ),
        stop_requested=lambda: False,
    )


@pytest.mark.parametrize("had_met", [True, False])
def test_an_interface_that_was_there_may_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, had_met: bool
) -> None:
    seen = iter([{"lo": ["127.0.0.1"]}, {"lo": ["127.0.0.1"], "eth0": ["10.0.0.2"]}])

    def meet(*given: object, interface: tuple[str, str] | None, **more: object) -> None:
        assert interface == ("eth0", "10.0.0.2")
        raise Met

    monkeypatch.setattr("trainwiz.core.nodes.node.interface_addresses", lambda: next(seen))
    monkeypatch.setattr("trainwiz.core.nodes.node.attend", meet)
    with pytest.raises(Met if had_met else NodeProblem):
        attempt(tmp_path, had_met=had_met).run(())
