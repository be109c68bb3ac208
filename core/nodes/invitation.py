"""What to type on the other machines of a run that starts here."""

from __future__ import annotations

from collections.abc import Iterator

from trainwiz.core.export.node_commands import node_command
from trainwiz.core.language import tr
from trainwiz.core.launch.start import changed_config
from trainwiz.core.nodes.address import main_address
from trainwiz.core.run.folder import RunFolder


def asked_of_others(run: RunFolder) -> Iterator[str]:
    """A sentence for each other machine of a run that starts here: what to type there. None for a run of one."""
    config = changed_config(run)
    if config.engine.nodes > 1:
        main = main_address(run.path)
        for node in range(1, config.engine.nodes):
            command = node_command(config, run.path.resolve(), node, main)
            yield tr(
                "On machine {node}, within {seconds} s: {command}",
                node=node,
                seconds=config.engine.nodes_timeout_s,
                command=command,
            )
