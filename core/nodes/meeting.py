"""The meeting of an attempt: node 0 waits for all others and says when to start.

node 0 -> worker   go       {arguments}, to all at once; or refuse {code, message}

Only to a node that has proved to see the run folder (`handshake`). Who has not is let go, and the waiting goes on:
connections are served side by side, and none of them holds a node up.
"""

from __future__ import annotations

import errno
import os
import secrets
import select
import socket
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from trainwiz.core.errors import os_reason
from trainwiz.core.language import tr
from trainwiz.core.nodes.address import Address, NodeProblem, everywhere, listen
from trainwiz.core.nodes.handshake import (
    Channel,
    ChannelClosed,
    Handshake,
    Message,
    read_token,
    refuse_unlike,
    write_token,
)
from trainwiz.core.run.folder import MEETING_TOKEN

GREETING_S = 15.0
"""From the connection to the introduction; a network file system may show the new token seconds later."""
MOST_GREETINGS = 64
"""At a time; one more takes the place of the oldest."""
LOOK_EVERY_S = 0.2
TRY_EVERY_S = 1.0
CONNECT_S = 5.0


@dataclass(slots=True)
class Member:
    """A node that has come, as the others know it."""

    who: Handshake
    channel: Channel

    @property
    def name(self) -> str:
        host, address = self.who.host, self.channel.other_host
        where = address if host in ("", address) else f"{host}, {address}"
        return tr("Node {node} ({where})", node=self.who.node, where=where)


@dataclass(slots=True)
class _Greeting:
    """A connection that has not yet said which node it is."""

    channel: Channel
    steps: Generator[None, None, Handshake]
    deadline: float


class Meeting:
    """Of node 0: listens from the moment it is made. Raises NodeProblem where a port is taken."""

    def __init__(self, folder: Path, me: Handshake, address: Address) -> None:
        self._folder = folder
        self._me = me
        self._address = address
        self._token = secrets.token_hex(32).encode()
        # Torch, which will listen on all addresses, must be able to.
        everywhere(address.port).close()
        self._listeners = listen(address)
        self._greetings: list[_Greeting] = []
        self.members: dict[int, Member] = {}

    def gather(self, patience_s: float, goes_on: Callable[[], None]) -> list[Member]:
        """All other nodes, by number. Raises NodeProblem when one has not come in time, or does not fit."""
        write_token(self._folder, self._token)
        deadline = time.monotonic() + patience_s
        try:
            while len(self.members) < self._me.nodes - 1:
                goes_on()
                self._let_in()
                for greeting in list(self._greetings):
                    self._greet(greeting)
                self._keep_warm()
                if time.monotonic() > deadline:
                    raise self._not_come(patience_s)
        except NodeProblem as problem:
            for member in self.members.values():
                refuse(member.channel, problem)
            raise
        finally:
            for listener in self._listeners:
                listener.close()
            for greeting in self._greetings:
                greeting.channel.close()
            with suppress(OSError):
                (self._folder / MEETING_TOKEN).unlink()
        return [self.members[node] for node in sorted(self.members)]

    def _let_in(self) -> None:
        """New connections, once there is something to do at all."""
        waiting = [*self._listeners, *(greeting.channel.connection for greeting in self._greetings)]
        ready, _, _ = select.select(waiting, [], [], LOOK_EVERY_S)
        for listener in self._listeners:
            if listener in ready:
                with suppress(OSError):
                    channel = Channel(listener.accept()[0], "main")
                    self._greetings.append(_Greeting(channel, self._steps(channel), time.monotonic() + GREETING_S))
        if len(self._greetings) > MOST_GREETINGS:
            self._let_go(self._greetings[0])

    def _steps(self, channel: Channel) -> Generator[None, None, Handshake]:
        yield from channel.prove(lambda: self._token)
        return Handshake.from_message((yield from channel.wait_for("hello")))

    def _greet(self, greeting: _Greeting) -> None:
        """What there is to do for it now. Raises NodeProblem for a node with which no training can begin."""
        channel = greeting.channel
        try:
            next(greeting.steps)
            if time.monotonic() > greeting.deadline:
                self._let_go(greeting)
        except ChannelClosed:
            self._let_go(greeting)
        except StopIteration as end:
            self._greetings.remove(greeting)
            member = Member(end.value, channel)
            try:
                self._check(member)
            except NodeProblem as problem:
                refuse(channel, problem)
                raise
            self.members[member.who.node] = member
            print(tr("{node} has connected.", node=member.name), flush=True)

    def _let_go(self, greeting: _Greeting) -> None:
        greeting.channel.close()
        self._greetings.remove(greeting)

    def _check(self, member: Member) -> None:
        """Raises NodeProblem for a node with which no training can begin."""
        who = member.who
        if who.nodes != self._me.nodes or not 1 <= who.node < self._me.nodes:
            message = tr(
                "{name} claims to be node {node} of {nodes}; this run has {n} nodes, numbered 0 to {last}.",
                name=member.name,
                node=who.node,
                nodes=who.nodes,
                n=self._me.nodes,
                last=self._me.nodes - 1,
            )
            raise NodeProblem("config_mismatch", message)
        # One that was killed and started again comes before its old connection is missed.
        self._keep_warm()
        if who.node in self.members:
            message = tr(
                "Two machines claim to be node {node}: {first} and {second}; give each its own number.",
                node=who.node,
                first=self.members[who.node].name,
                second=member.name,
            )
            raise NodeProblem("config_mismatch", message)
        refuse_unlike(self._me, who, member.name)

    def _keep_warm(self) -> None:
        """Nodes that wait hear that node 0 is there; one that has left may come again."""
        for node, member in list(self.members.items()):
            try:
                member.channel.beat()
                member.channel.receive()
            except ChannelClosed:
                member.channel.close()
                del self.members[node]

    def _not_come(self, patience_s: float) -> NodeProblem:
        missing = [str(node) for node in range(1, self._me.nodes) if node not in self.members]
        message = tr(
            "Node {missing} of {nodes} did not connect within {seconds} s; node 0 waited on {host}, port {port}. "
            "Start it there, or open the port to it; all nodes need the run folder {path} on one shared file system.",
            path=self._folder,
            missing=", ".join(missing),
            nodes=self._me.nodes,
            seconds=f"{patience_s:,.0f}",
            host=self._address.host,
            port=self._address.meeting_port,
        )
        return NodeProblem("node_missing", message)


def refuse(channel: Channel, problem: NodeProblem) -> None:
    """Tell a node why nothing begins."""
    with suppress(ChannelClosed):
        channel.send({"kind": "refuse", "code": problem.code, "message": problem.message})
    channel.close()


def start_together(members: list[Member], arguments: list[str]) -> None:
    """Say go to all. Raises NodeProblem for one that has left."""
    for member in members:
        try:
            member.channel.send({"kind": "go", "arguments": arguments})
        except ChannelClosed as error:
            raise lost(member, str(error)) from None


def lost(member: Member, how: str) -> NodeProblem:
    return NodeProblem("node_lost", tr("{name} was lost ({how}).", name=member.name, how=how))


def attend(
    folder: Path,
    me: Handshake,
    address: Address,
    patience_s: float,
    goes_on: Callable[[], None],
) -> tuple[Channel, list[str]]:
    """The connection to node 0, and the arguments of the training: the checkpoint to go on from, and what is accepted.

    Waits for node 0, and there for the others, for `patience_s` each.
    Raises NodeProblem when node 0 cannot be reached in time, or refuses.
    """
    deadline, why = time.monotonic() + patience_s, ""
    where = tr("{host}, port {port}", host=address.host, port=address.meeting_port)
    while time.monotonic() < deadline:
        goes_on()
        try:
            channel = _connect(address)
        except OSError as error:
            why = os_reason(error) if error.strerror else tr("no answer")
            time.sleep(TRY_EVERY_S)
            continue
        try:
            why_not = _prove(folder, channel, goes_on)
            if not why_not:
                return channel, _take_part(me, channel, goes_on)
            if why_not != why:
                print(tr("{place}: {reason}. This node keeps waiting.", place=where, reason=why_not), flush=True)
            why = why_not
        except ChannelClosed as error:
            why = str(error)
        except BaseException:
            channel.close()
            raise
        channel.close()
        time.sleep(TRY_EVERY_S)
    message = tr(
        "Node 0 was unreachable at {place} for {seconds} s: {reason}. Check that it is started there, that the "
        "address is right, and that the port is open.",
        place=where,
        seconds=f"{patience_s:,.0f}",
        reason=why or tr("no answer"),
    )
    raise NodeProblem("node_missing", message)


def _connect(address: Address) -> Channel:
    connection = socket.create_connection((address.host, address.meeting_port), CONNECT_S)
    if connection.getsockname()[:2] == connection.getpeername()[:2]:
        # Both ends on one machine and nobody listens: TCP may connect a port to itself.
        connection.close()
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    return Channel(connection, "worker")


def _prove(folder: Path, channel: Channel, goes_on: Callable[[], None]) -> str:
    """Empty once both sides have proved that they see the same run folder, else why they have not."""
    deadline = time.monotonic() + GREETING_S
    reason = tr("no answer")
    try:
        for _ in channel.prove(lambda: read_token(folder)):
            goes_on()
            if time.monotonic() > deadline:
                break
            time.sleep(LOOK_EVERY_S / 4)
        else:
            return ""
    except ChannelClosed as error:
        reason = str(error)
    return tr(
        "the program that answered did not prove that it is node 0 of this run ({reason}); all nodes need the run "
        "folder {path} on one shared file system",
        reason=reason,
        path=folder,
    )


def _take_part(me: Handshake, channel: Channel, goes_on: Callable[[], None]) -> list[str]:
    channel.send({"kind": "hello", **asdict(me)})
    while True:
        goes_on()
        for message in channel.receive(wait_s=LOOK_EVERY_S):
            refuse_if_refused(message)
            if message.get("kind") == "go":
                arguments = message.get("arguments")
                return [str(one) for one in arguments] if isinstance(arguments, list) else []
        channel.beat()


def refuse_if_refused(message: Message) -> None:
    """Raises NodeProblem with what node 0 says."""
    if message.get("kind") == "refuse":
        raise NodeProblem(str(message.get("code")), str(message.get("message")))
