"""One attempt at one node: check, meet, start the launcher, and stay with it and with the other nodes to its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from trainwiz.core.export.launch_script import joining_command
from trainwiz.core.language import tr
from trainwiz.core.nodes.address import (
    Address,
    NodeProblem,
    chosen_interface,
    interface_addresses,
    interface_of,
    named,
    network_variables,
)
from trainwiz.core.nodes.handshake import BEAT_EVERY_S, Channel, ChannelClosed, Handshake
from trainwiz.core.nodes.meeting import Meeting, Member, attend, lost, refuse, refuse_if_refused, start_together
from trainwiz.core.run.folder import ACCELERATE_YAML, NODES, STOPPED_BY, RunFolder, write_atomic, write_json_atomic
from trainwiz.core.supervise.ties import die_with_parent, send
from trainwiz.core.telemetry.processes import trainers_below

TRAINING_MODULE = "trainwiz.core.training"
LOADING, TRAINING = "loading", "training"
LOOK_EVERY_S = 0.5
LAST_WORDS_S = 10.0
OTHERS_MAY_LINGER_S = 30.0
"""After one node has ended with an error, torch at the others notices by itself, and says more than we could."""


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """What one node is to do."""

    folder: Path
    me: Handshake
    address: Address
    patience_s: float
    """For the others to come."""
    command: Callable[[Sequence[str]], list[str]]
    """The launcher with the arguments of the training."""
    environment: Mapping[str, str]
    """All of it."""
    had_met: bool = False
    """In an attempt before this one: an interface that is gone since may come back."""
    log: Path | None = None
    """Where the output goes; None: where that of this process goes."""


def accelerate_command(node: int, address: Address, threads: int, arguments: Sequence[str]) -> list[str]:
    """`accelerate launch` of one node, to run in the run folder; static rendezvous, for the ranks must be known:
    rank 0, which writes the run's record, belongs to the node that has the keeper."""
    return [
        sys.executable,
        "-P",
        "-m",
        "accelerate.commands.launch",
        "--config_file",
        ACCELERATE_YAML,
        "--machine_rank",
        str(node),
        "--main_process_ip",
        address.host,
        "--main_process_port",
        str(address.port),
        "--num_cpu_threads_per_process",
        str(threads),
        "-m",
        TRAINING_MODULE,
        ".",
        *arguments,
    ]


def write_problem(run: RunFolder, rank: int, problem: NodeProblem, phase: str = TRAINING) -> None:
    """failure-rank<N>-node.json, which the keeper reads beside those of the training processes. Raises OSError.

    `phase`: LOADING for what keeps an attempt from beginning.
    """
    write_json_atomic(
        run.path / f"failure-rank{rank}-node.json",
        {
            "type": type(problem).__name__,
            "message": problem.message,
            "traceback": "",
            "time_s": time.time(),
            "step": None,
            "phase": phase,
            "rank": rank,
            "findings": [finding.to_json() for finding in problem.findings],
        },
    )


class NodeAttempt:
    """`run` it once; a stop that is requested of this node is passed on to the training."""

    def __init__(
        self,
        order: NodeOrder,
        stop_requested: Callable[[], bool],
        *,
        waits: Callable[[], None] = lambda: None,
        last_words: Callable[[int], None] | None = None,
    ) -> None:
        """`waits` is called while the nodes come together, and ends that by an exception. `last_words` gets the
        exit code of a failed launcher before the others hear of it."""
        self.order = order
        self._waits = waits
        self._last_words = last_words
        self._told_to_stop: set[int] = set()
        self.process: subprocess.Popen[bytes] | None = None
        self._stop_requested = stop_requested
        self._members: list[Member] = []

    def run(self, arguments: Sequence[str]) -> int:
        """The launcher's exit code. `arguments` are node 0's; the others get them from it.

        Raises NodeProblem, with nothing left running, and what `waits` raises.
        """
        name, interfaces = self._interface()
        used = (name, interfaces[name][0]) if name is not None else None
        given = self._meet_as_host(arguments) if self.order.me.node == 0 else self._meet_as_worker(used)
        over = name or interface_of(self._members[0].channel.own_host, interfaces)
        self._start(given, network_variables(self.order.environment, over))
        try:
            return self._watch()
        finally:
            self._kill()
            for member in self._members:
                member.channel.close()

    def _interface(self) -> tuple[str | None, dict[str, list[str]]]:
        """The one that was set, if any, and all. Raises NodeProblem and what `waits` raises."""
        deadline = time.monotonic() + (self.order.patience_s if self.order.had_met else 0.0)
        while True:
            interfaces = interface_addresses()
            try:
                return chosen_interface(self.order.environment, interfaces), interfaces
            except NodeProblem:
                if time.monotonic() >= deadline:
                    raise
            self._waits()
            time.sleep(LOOK_EVERY_S)

    def _meet_as_host(self, arguments: Sequence[str]) -> list[str]:
        order = self.order
        (order.folder / NODES / STOPPED_BY).unlink(missing_ok=True)
        meeting = Meeting(order.folder, order.me, order.address)
        _say(
            tr(
                "Node 0 of {nodes} waits for the others on {host}, port {port}, for {seconds} s at most.",
                nodes=order.me.nodes,
                host=order.address.host,
                port=order.address.meeting_port,
                seconds=f"{order.patience_s:,.0f}",
            )
        )
        # Whoever started it from a screen has only this log to learn it from; Slurm starts the others itself.
        if "SLURM_JOB_ID" not in order.environment:
            for node in range(1, order.me.nodes):
                command = joining_command(order.folder.resolve(), node, order.address)
                _say(tr("On machine {node}: {command}", node=node, command=command))
        self._members = meeting.gather(order.patience_s, self._waits)
        start_together(self._members, list(arguments))
        return list(arguments)

    def _meet_as_worker(self, interface: tuple[str, str] | None) -> list[str]:
        order = self.order
        channel, arguments = attend(
            order.folder, order.me, order.address, order.patience_s, self._waits, interface=interface
        )
        self._members = [Member(replace(order.me, node=0, host=order.address.host), channel)]
        return arguments

    def _start(self, arguments: Sequence[str], network: Mapping[str, str]) -> None:
        for variable, value in network.items():
            _say(tr("{variable}={value}: the nodes have met over this interface.", variable=variable, value=value))
        parent = os.getpid()

        def in_child() -> None:
            die_with_parent(parent)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
                signal.signal(number, signal.SIG_DFL)

        output = self.order.log.open("ab") if self.order.log is not None else None
        try:
            self.process = subprocess.Popen(
                self.order.command(arguments),
                cwd=self.order.folder,
                env={**self.order.environment, **network},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if output is not None else None,
                preexec_fn=in_child,
            )
        finally:
            if output is not None:
                output.close()

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
        if code != 0 and self._last_words is not None:
            self._last_words(code)
        for member in self._members:
            with suppress(ChannelClosed):
                member.channel.send({"kind": "ended", "code": code})
        if code != 0 and self.order.me.node == 0:
            self._hear_why()
        return code

    def _hear_why(self) -> None:
        """The others write down what they know before they say that they have ended. Raises NodeProblem.

        Torch here may notice that a connection broke before the connection of the meeting does.
        """
        deadline = time.monotonic() + LAST_WORDS_S
        while self._members and (time.monotonic() < deadline or self._is_any_silent()):
            for member in list(self._members):
                if self._look_at(member) is not None:
                    self._members.remove(member)
            time.sleep(LOOK_EVERY_S / 5)

    def _is_any_silent(self) -> bool:
        return any(member.channel.silent_s > 3 * BEAT_EVERY_S for member in self._members)

    def _pass_stop_on(self) -> None:
        """To the training processes here; they tell those of the other nodes (StopCallback), and all save and end."""
        if self._stop_requested() and self.process is not None:
            for process in trainers_below(self.process.pid):
                if process.pid not in self._told_to_stop:
                    if not self._told_to_stop:
                        self._say_stop()
                    self._told_to_stop.add(process.pid)
                    send(process.pid, signal.SIGTERM)

    def _say_stop(self) -> None:
        """To node 0, whose keeper sees only that the training stops."""
        for member in self._members:
            with suppress(ChannelClosed):
                member.channel.send({"kind": "stop"})

    def _look_at(self, member: Member) -> int | None:
        """The exit code that a node has said. Raises NodeProblem for one that is gone without a word."""
        channel: Channel = member.channel
        try:
            channel.beat()
            for message in channel.receive():
                refuse_if_refused(message)
                if message.get("kind") == "stop" and self.order.me.node == 0:
                    self._note_stop(member)
                if message.get("kind") == "ended":
                    code = message.get("code")
                    return code if isinstance(code, int) else 1
        except ChannelClosed as error:
            problem = lost(member, str(error))
            self._tell_others(member, problem)
            raise problem from None
        return None

    def _note_stop(self, member: Member) -> None:
        with suppress(OSError):
            write_atomic(self.order.folder / NODES / STOPPED_BY, _name_of(member))

    def _tell_others(self, gone: Member, problem: NodeProblem) -> None:
        for member in self._members:
            if member is not gone:
                refuse(member.channel, problem)

    def _kill(self) -> None:
        """The launcher; what it started holds to it and to its keeper (core.supervise.lifeline)."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Stopped(Exception):
    """A stop was asked for before the training began."""


def _name_of(member: Member) -> str:
    return named(member.who.node, member.who.host, member.channel.other_host)


def _say(text: str) -> None:
    print(text, flush=True)
