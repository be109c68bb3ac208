"""One node of a run: an attempt at it (check, meet, launch, stay with the others), and a node other than 0 to the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
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
    interface_of,
    main_address,
    network_variables,
)
from trainwiz.core.nodes.handshake import BEAT_EVERY_S, ChannelClosed, Handshake, Message, data_of, introduce
from trainwiz.core.nodes.meeting import Meeting, Member, attend, lost, refuse, refuse_if_refused, start_together
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
from trainwiz.core.run.state import RunState, read_state
from trainwiz.core.supervise.attempt import training_environment
from trainwiz.core.supervise.ending import ONE_REQUEST_S
from trainwiz.core.supervise.ties import become_subreaper, die_with_parent, kill_marked, send
from trainwiz.core.telemetry.processes import trainers_below
from trainwiz.core.text import plain_text

LOADING, TRAINING = "loading", "training"
LOOK_EVERY_S = 0.5
LAST_WORDS_S = 10.0
OTHERS_MAY_LINGER_S = 30.0
"""After one node has ended with an error, torch at the others notices by itself, and says more than we could."""


def accelerate_command(node: int, address: Address, threads: int, arguments: Sequence[str]) -> list[str]:
    """`accelerate launch` of one node, to run in the run folder; static rendezvous, for the ranks must be known:
    rank 0, which writes the run's record, belongs to the node that has the keeper."""
    launch = [sys.executable, "-P", "-m", "accelerate.commands.launch", "--config_file", ACCELERATE_YAML]
    place = ["--machine_rank", str(node), "--main_process_ip", address.host, "--main_process_port", str(address.port)]
    return [*launch, *place, "--num_cpu_threads_per_process", str(threads), "-m", TRAINING_MODULE, ".", *arguments]


def write_problem(run: RunFolder, rank: int, problem: NodeProblem, phase: str = TRAINING) -> None:
    """failure-rank<N>-node.json, which the keeper reads beside those of the training processes. Raises OSError.

    `phase`: LOADING for what keeps an attempt from beginning.
    """
    said = {"type": type(problem).__name__, "message": problem.message, "traceback": "", "time_s": time.time()}
    findings = [finding.to_json() for finding in problem.findings]
    document = {**said, "step": None, "phase": phase, "rank": rank, "findings": findings}
    write_json_atomic(run.path / f"failure-rank{rank}-node.json", document)


@dataclass(slots=True)
class NodeAttempt:
    """`run` it once; a stop that is requested of this node is passed on to the training."""

    folder: Path
    config: RunConfig
    me: Handshake
    address: Address
    environment: Mapping[str, str]
    """All of it."""
    log: Path | None = None
    """Where the output goes; None: where that of this process goes."""
    stop_requested: Callable[[], bool] = lambda: False
    waits: Callable[[], None] = lambda: None
    """Called while the nodes come together; ends that by an exception."""
    last_words: Callable[[int], None] | None = None
    """Gets the exit code of a failed launcher before the others hear of it."""
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _told_to_stop: set[int] = field(default_factory=set, init=False)
    _members: list[Member] = field(default_factory=list, init=False)

    def run(self, arguments: Sequence[str]) -> int:
        """The launcher's exit code. `arguments` are node 0's; the others get them from it.

        Raises NodeProblem, with nothing left running, and what `waits` raises.
        """
        given = self._meet_as_host(arguments) if self.me.node == 0 else self._meet_as_worker()
        over = interface_of(self._members[0].channel.own_host, interface_addresses())
        self._start(given, network_variables(self.environment, over))
        try:
            return self._watch()
        finally:
            self._kill()
            for member in self._members:
                member.channel.close()

    def _meet_as_host(self, arguments: Sequence[str]) -> list[str]:
        me, patience_s = self.me, float(self.config.engine.nodes_timeout_s)
        (self.folder / NODES / STOPPED_BY).unlink(missing_ok=True)
        meeting = Meeting(self.folder, me, self.address)
        _say(
            tr(
                "Node 0 of {nodes} waits for the other nodes on {host}, port {port}, for at most {seconds} s.",
                nodes=me.nodes,
                host=self.address.host,
                port=self.address.meeting_port,
                seconds=f"{patience_s:,.0f}",
            )
        )
        # Whoever started it from a screen has only this log to learn it from; Slurm starts the others itself.
        if "SLURM_JOB_ID" not in self.environment:
            for line in commands_of_others(self.config, self.folder, self.address):
                _say(line)
        self._members = meeting.gather(patience_s, self.waits)
        start_together(self._members, list(arguments))
        return list(arguments)

    def _meet_as_worker(self) -> list[str]:
        patience_s = self.config.engine.nodes_timeout_s
        channel, arguments = attend(self.folder, self.me, self.address, patience_s, self.waits)
        self._members = [Member(replace(self.me, node=0, host=self.address.host), channel)]
        return arguments

    def _start(self, arguments: Sequence[str], network: Mapping[str, str]) -> None:
        for variable, value in network.items():
            _say(tr("{variable}={value}: the nodes connected over this interface.", variable=variable, value=value))
        parent = os.getpid()

        def in_child() -> None:
            die_with_parent(parent)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
                signal.signal(number, signal.SIG_DFL)

        with nullcontext() if self.log is None else self.log.open("ab") as output:
            self.process = subprocess.Popen(
                accelerate_command(self.me.node, self.address, cpu_threads(self.config), arguments),
                cwd=self.folder,
                env={**self.environment, **network},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                preexec_fn=in_child,
            )

    def _watch(self) -> int:
        """Until the launcher has ended, or another node is lost or has failed."""
        assert self.process is not None
        failed_at: float | None = None
        while self.process.poll() is None:
            time.sleep(LOOK_EVERY_S)
            self._pass_stop_on()
            for member in list(self._members):
                code = self._look_at(member)
                if code is not None:
                    self._members.remove(member)
                    failed_at = failed_at or (time.monotonic() if code else None)
            if failed_at is not None and time.monotonic() - failed_at > OTHERS_MAY_LINGER_S:
                self._kill()
        code = self.process.returncode
        if code != 0 and self.last_words is not None:
            self.last_words(code)
        self._tell({"kind": "ended", "code": code})
        if code != 0 and self.me.node == 0:
            self._hear_why()
        return code

    def _hear_why(self) -> None:
        """The others write down what they know before they say that they have ended. Raises NodeProblem.

        Torch here may notice that a connection broke before the connection of the meeting does.
        """
        deadline = time.monotonic() + LAST_WORDS_S
        quiet_s = 3 * BEAT_EVERY_S
        while self._members and (
            time.monotonic() < deadline or any(one.channel.silent_s > quiet_s for one in self._members)
        ):
            for member in list(self._members):
                if self._look_at(member) is not None:
                    self._members.remove(member)
            time.sleep(LOOK_EVERY_S / 5)

    def _pass_stop_on(self) -> None:
        """To the training processes here; they tell those of the other nodes (StopCallback), and all save and end."""
        if self.stop_requested() and self.process is not None:
            for process in trainers_below(self.process.pid):
                if process.pid not in self._told_to_stop:
                    if not self._told_to_stop:
                        # To node 0, whose keeper sees only that the training stops.
                        self._tell({"kind": "stop"})
                    self._told_to_stop.add(process.pid)
                    send(process.pid, signal.SIGTERM)

    def _tell(self, message: Message) -> None:
        for member in self._members:
            with suppress(ChannelClosed):
                member.channel.send(message)

    def _look_at(self, member: Member) -> int | None:
        """The exit code that a node has said. Raises NodeProblem for one that is gone without a word."""
        try:
            member.channel.beat()
            for message in member.channel.receive():
                refuse_if_refused(message)
                if message.get("kind") == "stop" and self.me.node == 0:
                    with suppress(OSError):
                        write_atomic(self.folder / NODES / STOPPED_BY, member.name)
                if message.get("kind") == "ended":
                    code = message.get("code")
                    return code if isinstance(code, int) else 1
        except ChannelClosed as error:
            problem = lost(member, str(error))
            for other in self._members:
                if other is not member:
                    refuse(other.channel, problem)
            raise problem from None
        return None

    def _kill(self) -> None:
        """The launcher; what it started holds to it and to its keeper (core.supervise.ties)."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Stopped(Exception):
    """A stop was asked for before the training began."""


def _say(text: str) -> None:
    print(text, flush=True)


# A node other than 0: takes part in the attempts of the run until it has ended.

KILL_PATIENCE_S = 15.0
STATE_PATIENCE_S = 30.0
"""From the end of the training to the keeper's last word, over a network file system too."""
STATE_EVERY_S = 2.0


class WorkerNode:
    """Node `node` of a run whose keeper is on node 0."""

    def __init__(self, run: RunFolder, config: RunConfig, node: int, address: Address) -> None:
        self.run = run
        self.config = config
        self.address = address
        self.me = introduce(node, config.engine.nodes, config.engine.processes or 1, data_of(config, run.path))
        self._asked_at: float | None = None
        self._next_look = 0.0
        self._mark = uuid.uuid4().hex
        self._before = read_state(run).ended_s

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
            ended = self._ended(code)
            if ended is not None:
                return ended
            _say(tr("The attempt has ended; this node waits for the next one."))

    def _attempt(self, log: Path) -> int:
        attempt = NodeAttempt(
            self.run.path,
            self.config,
            self.me,
            self.address,
            training_environment(self._mark, training_variables(self.config, os.environ)),
            log=log,
            stop_requested=lambda: self._asked_at is not None,
            waits=self._waits,
            last_words=last_words_of(self.run, self.me, log),
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
        return state.status in ("finished", "failed", "stopped") and state.ended_s != self._before

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


def last_words_of(run: RunFolder, me: Handshake, log: Path) -> Callable[[int], None]:
    """Of a node whose output the keeper does not see: made before an attempt, called with its exit code.

    Says why this node's training ended with an error, unless its processes have said so. Raises OSError.
    """
    offset, kills_before = log.stat().st_size if log.exists() else 0, kernel_oom_kills()

    def write(exit_code: int) -> None:
        ranks = range(me.node * me.processes, (me.node + 1) * me.processes)
        if any(run.failure_json(rank).exists() for rank in ranks):
            return
        # Of a run that is under way: a SIGKILL of which the kernel tells nothing is no lack of RAM yet.
        name = name_for_commands(run.path)
        found = diagnose(
            Evidence(exit_code=exit_code, log=read_log(log, offset), oom_kills=killed_since(kills_before), run=name)
        )
        message = tr("On node {node} ({host}): {said}", node=me.node, host=me.host, said=found.message)
        # A process that was ended from outside has no name among the causes: the node has lost it.
        code = "node_lost" if found.cause in (None, "unknown") else str(found.cause)
        write_problem(run, ranks[0], NodeProblem(code, message))

    return write


def asked_of_others(run: RunFolder) -> list[str]:
    """A sentence for each other machine of a run that starts here: what to type there."""
    return commands_of_others(changed_config(run), run.path, main_address(run.path))


def commands_of_others(config: RunConfig, folder: Path, address: Address) -> list[str]:
    """Likewise, of node 0 at `address`; none for a run of one."""
    return [
        tr(
            "On node {node}, within {seconds} s: {command}",
            node=node,
            seconds=config.engine.nodes_timeout_s,
            command=joining_command(folder.resolve(), node, address),
        )
        for node in range(1, config.engine.nodes)
    ]
