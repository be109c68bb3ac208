"""A node other than 0 in a run: takes part in its attempts until the run has ended."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from trainwiz.core.config import RunConfig
from trainwiz.core.diagnosis.cause import Diagnosis, Evidence, KernelFacts
from trainwiz.core.diagnosis.diagnose import diagnose
from trainwiz.core.diagnosis.log_file import counted_oom_kills, kernel_oom_kills, read_log
from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED, EXIT_TRAINING_FAILED
from trainwiz.core.export.accelerate import cpu_threads
from trainwiz.core.export.launch_script import node_command
from trainwiz.core.language import tr
from trainwiz.core.launch.start import changed_config, training_variables
from trainwiz.core.nodes.address import Address, NodeProblem, main_address
from trainwiz.core.nodes.attempt import NodeAttempt, NodeOrder, Stopped, accelerate_command, write_problem
from trainwiz.core.nodes.handshake import Handshake, data_of, introduce
from trainwiz.core.run.folder import NODES, TRAIN_LOG, RunFolder, name_for_commands
from trainwiz.core.run.state import RunState, read_state
from trainwiz.core.supervise.attempt import training_environment
from trainwiz.core.supervise.ending import ONE_REQUEST_S
from trainwiz.core.supervise.recovery import StartOrder
from trainwiz.core.supervise.ties import become_subreaper, kill_marked
from trainwiz.core.text import plain_text

KILL_PATIENCE_S = 15.0
STATE_PATIENCE_S = 30.0
"""From the end of the training to the keeper's last word, over a network file system too."""
STATE_EVERY_S = 2.0
LOOK_EVERY_S = 0.5


class WorkerNode:
    """Node `node` of a run whose keeper is on node 0."""

    def __init__(self, run: RunFolder, config: RunConfig, node: int, address: Address) -> None:
        self.run = run
        self.config = config
        self.address = address
        self.me = introduce(node, config.engine.nodes, config.engine.processes or 1, data_of(config, run.path))
        self._asked_at: float | None = None
        self._next_look = 0.0
        self._had_met = False
        self._mark = uuid.uuid4().hex
        self._before = _end_of(read_state(run))

    def take_part(self) -> int:
        """The exit code of the run; 130 for a stop before it began. Raises NodeProblem, with nothing left running."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_stop)
        become_subreaper()
        log = self.run.path / NODES / str(self.me.node) / TRAIN_LOG
        log.parent.mkdir(parents=True, exist_ok=True)
        _say(tr("The output of this node: {path}", path=log))
        while True:
            try:
                code = self._attempt(log)
            except Stopped:
                return EXIT_STOPPED
            except RunOver as over:
                _say(over.message)
                return over.code
            except NodeProblem as problem:
                if problem.code != "node_lost":
                    raise
                _say(problem.message)
                code = EXIT_TRAINING_FAILED
            finally:
                kill_marked(self._mark, {os.getpid()}, KILL_PATIENCE_S)
            self._had_met = True
            ended = self._ended(code)
            if ended is not None:
                return ended
            _say(tr("The attempt has ended; this node waits for the next one."))

    def _attempt(self, log: Path) -> int:
        order = StartOrder(command=[], mark=self._mark, environment=training_variables(self.config, os.environ))
        words = LastWords(self.run, self.me, log)
        attempt = NodeAttempt(
            NodeOrder(
                folder=self.run.path,
                me=self.me,
                address=self.address,
                patience_s=self.config.engine.nodes_timeout_s,
                command=lambda given: accelerate_command(self.me.node, self.address, cpu_threads(self.config), given),
                environment=training_environment(order),
                had_met=self._had_met,
                log=log,
            ),
            stop_requested=lambda: self._asked_at is not None,
            waits=self._waits,
            last_words=words.write,
        )
        return attempt.run(())

    def _ended(self, code: int) -> int | None:
        """The exit code of the run once its keeper has said the last word; None while another attempt may follow."""
        deadline = time.monotonic() + STATE_PATIENCE_S
        while time.monotonic() < deadline:
            state = read_state(self.run)
            if self._has_ended(state):
                over = RunOver(state)
                _say(over.message)
                return over.code if state.exit is not None else code
            if state.status == "starting" and code != 0:
                return None
            if self._asked_at is not None and code == 0:
                return EXIT_STOPPED
            time.sleep(LOOK_EVERY_S)
        return EXIT_FINISHED if code == 0 else None

    def _waits(self) -> None:
        """While the nodes come together. Raises Stopped, and RunOver where the run has ended meanwhile."""
        if self._asked_at is not None:
            raise Stopped
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + STATE_EVERY_S
            state = read_state(self.run)
            if self._has_ended(state):
                raise RunOver(state)

    def _has_ended(self, state: RunState) -> bool:
        """Whether the keeper has said its last word since this node came; a lost run may go on."""
        return state.status in ("finished", "failed", "stopped") and _end_of(state) != self._before

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now
        elif now - self._asked_at > ONE_REQUEST_S:
            kill_marked(self._mark, {os.getpid()}, KILL_PATIENCE_S)
            os._exit(EXIT_STOPPED)


class RunOver(Exception):
    """The run has ended while this node waited; `code` is its exit code."""

    def __init__(self, state: RunState) -> None:
        self.code = state.exit.code if state.exit is not None else EXIT_FINISHED
        said = state.exit.message if state.exit is not None else tr(state.status)
        self.message = tr("The run has ended: {said}", said=plain_text(said))
        super().__init__(self.message)


def _end_of(state: RunState) -> tuple[str, float | None]:
    return state.status, state.ended_s


def _say(text: str) -> None:
    print(text, flush=True)


class LastWords:
    """Of a node whose output the keeper does not see: made before an attempt, asked after it."""

    def __init__(self, run: RunFolder, me: Handshake, log: Path) -> None:
        self._run = run
        self._me = me
        self._log = log
        self._offset = log.stat().st_size if log.exists() else 0
        self._oom_kills = kernel_oom_kills()

    def write(self, exit_code: int) -> None:
        """Say why this node's training ended with an error, unless its processes have said so. Raises OSError."""
        ranks = range(self._me.node * self._me.processes, (self._me.node + 1) * self._me.processes)
        if any(self._run.failure_json(rank).exists() for rank in ranks):
            return
        found = self._diagnosis(exit_code)
        message = tr("On node {node} ({host}): {said}", node=self._me.node, host=self._me.host, said=found.message)
        # A process that was ended from outside has no name among the causes: the node has lost it.
        code = "node_lost" if found.cause in (None, "unknown") else str(found.cause)
        write_problem(self._run, ranks[0], NodeProblem(code, message))

    def _diagnosis(self, exit_code: int) -> Diagnosis:
        kills = kernel_oom_kills() - self._oom_kills
        kernel = KernelFacts(told=counted_oom_kills() is not None, oom_kills=max(0, kills))
        # Of a run that is under way: a SIGKILL of which the kernel tells nothing is no lack of RAM yet.
        name = name_for_commands(self._run.path)
        return diagnose(Evidence(exit_code=exit_code, log=read_log(self._log, self._offset), kernel=kernel, run=name))


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
