"""One node of a run: an attempt at it (check, meet, launch, stay with the others), and a node other than 0 to the end."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from types import FrameType

from trainwiz.core.config import RunConfig
from trainwiz.core.diagnosis.cause import Evidence
from trainwiz.core.diagnosis.diagnose import diagnose
from trainwiz.core.diagnosis.sources import kernel_oom_kills, killed_since, read_log
from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED, EXIT_TRAINING_FAILED
from trainwiz.core.export.accelerate import cpu_threads
from trainwiz.core.export.launch_script import TRAINING_MODULE, joining_command
from trainwiz.core.language import tr
from trainwiz.core.launch.start import changed_config, training_variables
from trainwiz.core.nodes.address import (
    Address,
    NodeProblem,
    interface_addresses,
    main_address,
    network_variables,
)
from trainwiz.core.nodes.handshake import SILENT_LOST_S, Channel, ChannelClosed, Message, introduce
from trainwiz.core.nodes.meeting import Meeting, attend, lost, refuse, refuse_if_refused
from trainwiz.core.run.folder import (
    ACCELERATE_YAML,
    NODES,
    STOPPED_BY,
    TRAIN_LOG,
    RunFolder,
    name_for_commands,
    write_atomic,
    write_json_atomic,
)
from trainwiz.core.run.state import RunExit, read_state
from trainwiz.core.supervise.attempt import training_environment
from trainwiz.core.supervise.ending import ONE_REQUEST_S
from trainwiz.core.supervise.ties import become_subreaper, die_with_parent, kill_marked, send
from trainwiz.core.telemetry.processes import trainers_below
from trainwiz.core.text import plain_text

LOADING, TRAINING = "loading", "training"
LOOK_EVERY_S = 0.5
OTHERS_MAY_LINGER_S = 30.0
"""After one node has ended with an error, torch at the others notices by itself, and says more than we could."""


class Node:
    """Node 0, below the keeper of the run; another one is a WorkerNode."""

    log: Path | None = None
    """Where the output of the launcher goes; None: where that of this process goes."""
    stop_asked = False
    """Of this node; it is passed on to the training."""

    def __init__(
        self, run: RunFolder, config: RunConfig, node: int, address: Address, environment: Mapping[str, str]
    ) -> None:
        """`environment`: all of it. Raises UsageError for data that cannot be read."""
        self.run, self.config, self.address, self.environment = run, config, address, environment
        self.me = introduce(node, config, run.path)
        self.process: subprocess.Popen[bytes] | None = None
        """The launcher of this attempt, once the nodes have met."""
        self.members: list[Channel] = []
        """Those that have not ended yet: node 0 holds all others, which hold node 0."""
        self._told_to_stop: set[int] = set()

    def attempt(self, arguments: Sequence[str] = ()) -> int:
        """The launcher's exit code. `arguments` are node 0's; the others get them from it.

        Raises NodeProblem, with nothing left running, and what `look_around` raises.
        """
        self.process, self._told_to_stop = None, set()
        given = self.meet(list(arguments))
        self._start(given, network_variables(self.environment, self.members[0].own_address, interface_addresses()))
        try:
            return self._watch()
        finally:
            if self.process is not None:
                # What it started holds to it and to its keeper (core.supervise.ties).
                self.process.kill()
                self.process.wait()
            for member in self.members:
                member.close()

    def meet(self, arguments: list[str]) -> list[str]:
        """Waits for the other nodes; the arguments of the training. Raises NodeProblem and what `look_around` raises."""
        address, nodes, patience_s = self.address, self.config.engine.nodes, float(self.config.engine.nodes_timeout_s)
        (self.run.path / NODES / STOPPED_BY).unlink(missing_ok=True)
        meeting = Meeting(self.run.path, self.me, address, nodes)
        # Whoever started it from a screen has only this log to learn it from.
        _say(
            tr(
                "Node 0 of {nodes} waits for the other nodes on {host}, port {port}, for at most {seconds} s. Their "
                "commands: trainwiz export {run} --script --main {address}",
                nodes=nodes,
                host=address.host,
                port=address.meeting_port,
                seconds=f"{patience_s:,.0f}",
                run=name_for_commands(self.run.path),
                address=shlex.quote(str(address)),
            )
        )
        self.members = meeting.gather(patience_s, self.look_around, arguments)
        return arguments

    def look_around(self) -> None:
        """Called while the nodes come together; an exception ends that."""

    def last_words(self, code: int) -> None:
        """Called with the exit code of a failed launcher, before the other nodes hear of it."""

    def _start(self, arguments: Sequence[str], network: Mapping[str, str]) -> None:
        """`accelerate launch`, with static rendezvous, for the ranks must be known: rank 0, which writes the run's
        record, belongs to the node that has the keeper."""
        for variable, value in network.items():
            _say(tr("{variable}={value}: the nodes connected over this interface.", variable=variable, value=value))
        command = [sys.executable, "-P", "-m", "accelerate.commands.launch", "--config_file", ACCELERATE_YAML]
        command += ["--machine_rank", str(self.me.node), "--main_process_ip", self.address.host]
        command += ["--main_process_port", str(self.address.port)]
        command += ["--num_cpu_threads_per_process", str(cpu_threads(self.config)), "-m", TRAINING_MODULE, "."]
        parent = os.getpid()

        def in_child() -> None:
            die_with_parent(parent)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
                signal.signal(number, signal.SIG_DFL)

        with nullcontext() if self.log is None else self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, *arguments],
                cwd=self.run.path,
                env={**self.environment, **network},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                preexec_fn=in_child,
            )

    def _watch(self) -> int:
        """Until the launcher has ended, or another node is lost or has failed."""
        assert self.process is not None
        kill_at: float | None = None
        while self.process.poll() is None:
            time.sleep(LOOK_EVERY_S)
            self._pass_stop_on()
            if any(self._endings()) and kill_at is None:
                kill_at = time.monotonic() + OTHERS_MAY_LINGER_S
            if kill_at is not None and time.monotonic() > kill_at:
                self.process.kill()
        code = self.process.wait()
        if code != 0:
            self.last_words(code)
        self._tell({"kind": "ended", "code": code})
        if code != 0 and self.me.node == 0:
            # The others write down what they know before they say that they have ended; and torch here may notice that
            # a connection broke before the connection of the meeting does.
            deadline = time.monotonic() + SILENT_LOST_S + LOOK_EVERY_S
            while self.members and time.monotonic() < deadline:
                self._endings()
                time.sleep(LOOK_EVERY_S / 5)
        return code

    def _pass_stop_on(self) -> None:
        """To the training processes here; they tell those of the other nodes (StopCallback), and all save and end."""
        if not self.stop_asked or self.process is None:
            return
        for process in trainers_below(self.process.pid):
            if process.pid not in self._told_to_stop:
                if not self._told_to_stop:
                    # To node 0, whose keeper sees only that the training stops.
                    self._tell({"kind": "stop"})
                self._told_to_stop.add(process.pid)
                send(process.pid, signal.SIGTERM)

    def _tell(self, message: Message) -> None:
        for member in self.members:
            with suppress(ChannelClosed):
                member.send(message)

    def _endings(self) -> list[int]:
        """Exit codes of the nodes that have ended since the last look. Raises NodeProblem for one gone without a word."""
        codes = {}
        for member in self.members:
            try:
                member.beat()
                messages = member.receive()
            except ChannelClosed as error:
                problem = lost(member, error)
                refuse([other for other in self.members if other is not member], problem)
                raise problem from None
            for message in messages:
                refuse_if_refused(message)
                if message["kind"] == "stop" and self.me.node == 0:
                    with suppress(OSError):
                        write_atomic(self.run.path / NODES / STOPPED_BY, member.name)
                if message["kind"] == "ended":
                    codes[member] = int(message["code"])
        self.members = [member for member in self.members if member not in codes]
        return list(codes.values())


def write_problem(run: RunFolder, rank: int, problem: NodeProblem, phase: str = TRAINING) -> None:
    """failure-rank<N>-node.json, which the keeper reads beside those of the training processes. Raises OSError.

    `phase`: LOADING for what keeps an attempt from beginning.
    """
    document = {
        "type": "NodeProblem",
        "message": problem.message,
        "traceback": "",
        "time_s": time.time(),
        "step": None,
        "phase": phase,
        "rank": rank,
        "findings": [finding.to_json() for finding in problem.findings],
    }
    write_json_atomic(run.path / f"failure-rank{rank}-node.json", document)


def asked_of_others(run: RunFolder) -> list[str]:
    """A sentence for each other machine of a run that starts here: what to type there."""
    engine, address = changed_config(run).engine, main_address(run.path)
    return [
        tr(
            "On node {node}, within {seconds} s: {command}",
            node=node,
            seconds=engine.nodes_timeout_s,
            command=joining_command(run.path.resolve(), node, address),
        )
        for node in range(1, engine.nodes)
    ]


def _say(text: str) -> None:
    print(text, flush=True)


# A node other than 0: takes part in the attempts of the run until it has ended.

KILL_PATIENCE_S = 15.0
STATE_PATIENCE_S = 30.0
"""From the end of the training to the keeper's last word, over a network file system too."""
STATE_EVERY_S = 2.0


class RunOver(Exception):
    """This node has nothing more to do; `code` is its exit code, the text says why where it is not plain."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message)
        self.code = code


class WorkerNode(Node):
    """Node `node` of a run whose keeper is on node 0."""

    def __init__(self, run: RunFolder, config: RunConfig, node: int, address: Address) -> None:
        self._mark = uuid.uuid4().hex
        environment = training_environment(self._mark, training_variables(config, os.environ))
        super().__init__(run, config, node, address, environment)
        self.log: Path = run.path / NODES / str(node) / TRAIN_LOG
        self._asked_at = self._next_look = 0.0
        self._before = read_state(run).ended_s
        self._log_bytes, self._oom_kills = 0, kernel_oom_kills()

    def take_part(self) -> int:
        """The exit code of the run; 130 for a stop before it began. Raises NodeProblem, with nothing left running."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_stop)
        become_subreaper()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        _say(tr("The output of this node: {path}", path=self.log))
        try:
            while True:
                code = EXIT_TRAINING_FAILED
                self._log_bytes = self.log.stat().st_size if self.log.exists() else 0
                self._oom_kills = kernel_oom_kills()
                try:
                    code = self.attempt()
                except NodeProblem as problem:
                    if problem.code != "node_lost":
                        raise
                    _say(problem.message)
                finally:
                    kill_marked(self._mark, {os.getpid()}, KILL_PATIENCE_S)
                self._wait_for_last_word(code)
                _say(tr("The attempt has ended; this node waits for the next one."))
        except RunOver as over:
            if str(over):
                _say(str(over))
            return over.code

    def meet(self, arguments: list[str]) -> list[str]:
        patience_s = self.config.engine.nodes_timeout_s
        channel, given = attend(self.run.path, self.me, self.address, patience_s, self.look_around)
        self.members = [channel]
        return given

    def look_around(self) -> None:
        """Raises RunOver for a stop, and where the run has ended meanwhile."""
        if self.stop_asked:
            raise RunOver(EXIT_STOPPED)
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + STATE_EVERY_S
            self._status()

    def _status(self) -> str:
        """Of the run. Raises RunOver once the keeper has said its last word since this node came; a lost run may go on."""
        state = read_state(self.run)
        if state.status in ("finished", "failed", "stopped") and state.ended_s != self._before:
            last = state.exit or RunExit(EXIT_FINISHED, None, tr(state.status))
            raise RunOver(last.code, tr("The run has ended: {said}", said=plain_text(last.message)))
        return state.status

    def _wait_for_last_word(self, code: int) -> None:
        """Returns where another attempt may follow one that ended with `code`. Raises RunOver."""
        deadline = time.monotonic() + STATE_PATIENCE_S
        while time.monotonic() < deadline:
            if self._status() == "starting" and code != 0:
                return
            if self.stop_asked and code == 0:
                raise RunOver(EXIT_STOPPED)
            time.sleep(LOOK_EVERY_S)
        if code == 0:
            raise RunOver(EXIT_FINISHED)

    def last_words(self, code: int) -> None:
        """Why this node's training ended with an error, unless its processes have said so: the keeper does not see its
        output. Raises OSError."""
        processes = self.config.engine.processes or 1
        ranks = range(self.me.node * processes, (self.me.node + 1) * processes)
        if any(self.run.failure_json(rank).exists() for rank in ranks):
            return
        # Of a run that is under way: a SIGKILL of which the kernel tells nothing is no lack of RAM yet.
        found = diagnose(
            Evidence(
                exit_code=code,
                log=read_log(self.log, self._log_bytes),
                oom_kills=killed_since(self._oom_kills),
                run=name_for_commands(self.run.path),
            )
        )
        message = tr("On node {node} ({host}): {said}", node=self.me.node, host=self.me.host, said=found.message)
        # A process that was ended from outside has no name among the causes: the node has lost it.
        cause = "node_lost" if found.cause in (None, "unknown") else str(found.cause)
        write_problem(self.run, ranks[0], NodeProblem(cause, message))

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.stop_asked:
            self.stop_asked, self._asked_at = True, now
        elif now - self._asked_at > ONE_REQUEST_S:
            kill_marked(self._mark, {os.getpid()}, KILL_PATIENCE_S)
            os._exit(EXIT_STOPPED)
