"""`trainwiz runs join`: this machine as one of several that train a run."""

from __future__ import annotations

import os

from trainwiz.core.config import RunConfig
from trainwiz.core.errors import EXIT_FINISHED, usage_error
from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.core.run.find import find_run
from trainwiz.core.run.folder import RunFolder
from trainwiz.tui.output import say

SLURM_NODE = "SLURM_NODEID"


def run_join(run: str, *, node: int | None, main: str | None) -> int:
    """Start, or go on with, the run as node 0; take part in it as another. Raises UsageError."""
    from trainwiz.core.launch.start import changed_config
    from trainwiz.core.nodes.address import MAIN_VARIABLE, parse_address

    folder = find_run(run)
    config = changed_config(folder)
    number = _checked(node if node is not None else _own_number(config), config)
    if config.engine.nodes == 1:
        return _lead(folder)
    if main is not None:
        os.environ[MAIN_VARIABLE] = str(parse_address(main))
    elif number > 0 and not os.environ.get(MAIN_VARIABLE):
        message = tr("Say where node 0 is: --main HOST:PORT. `trainwiz export RUN --script` has the whole command.")
        raise usage_error("missing_choice", "--main", message)
    return _lead(folder) if number == 0 else _follow(folder, config, number)


def _lead(folder: RunFolder) -> int:
    from trainwiz.core.run.state import read_state
    from trainwiz.tui.headless.reporters import new_reporter
    from trainwiz.tui.headless.run import start_and_follow

    state = read_state(folder)
    if state.status == "finished":
        return _say_finished(folder)
    checkpoint = None if state.status == "prepared" else "auto"
    reporter = new_reporter(as_json=False, plain=False)
    try:
        return start_and_follow(folder, reporter, detach=False, checkpoint=checkpoint)
    finally:
        reporter.close()


def _follow(folder: RunFolder, config: RunConfig, node: int) -> int:
    from trainwiz.core.nodes.address import main_address
    from trainwiz.core.nodes.worker_node import WorkerNode
    from trainwiz.core.run.state import read_state

    if read_state(folder).status == "finished":
        return _say_finished(folder)
    return WorkerNode(folder, config, node, main_address(folder.path)).take_part()


def _say_finished(folder: RunFolder) -> int:
    say(tr("{name} has finished; there is nothing to do.", name=plain_text(folder.path.name)))
    return EXIT_FINISHED


def _checked(node: int, config: RunConfig) -> int:
    nodes = config.engine.nodes
    if not 0 <= node < nodes:
        message = tr(
            "--node is {node}; this run has {nodes} machines, numbered 0 to {last}.",
            node=node,
            nodes=nodes,
            last=nodes - 1,
        )
        raise usage_error("bad_choice", "--node", message)
    return node


def _own_number(config: RunConfig) -> int:
    """As Slurm says; a run of one machine has only the first."""
    text = "0" if config.engine.nodes == 1 else os.environ.get(SLURM_NODE, "")
    if not text.isdigit():
        message = tr("Say which machine of the run this is: --node 0 for the one that keeps it, --node 1 for the next.")
        raise usage_error("missing_choice", "--node", message)
    return int(text)
