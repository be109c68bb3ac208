"""The meeting of an attempt: node 0 waits for all others and says when to start.

node 0 -> worker   go       {arguments}, to all at once; or refuse {code, message}

Only to a node that has proved to see the run folder (`handshake`). Who has not is let go, and the waiting goes on:
connections are served side by side, and none of them holds a node up.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from trainwiz.core.errors import os_reason
from trainwiz.core.language import tr
from trainwiz.core.nodes.address import Address, NodeProblem, everywhere, listen
from trainwiz.core.nodes.handshake import (
    Channel,
    ChannelClosed,
    Handshake,
    Message,
    new_token,
    read_token,
)
from trainwiz.core.run.folder import MEETING_TOKEN
from trainwiz.core.run.identity import compare
from trainwiz.core.text import plain_text

MOST_GREETINGS = 64
"""At a time; one more takes the place of the oldest."""
LOOK_EVERY_S = 0.2
TRY_EVERY_S = 1.0
CONNECT_S = 5.0
LONGEST_SAID = 300


class Meeting:
    """Of node 0: listens from the moment it is made. Raises NodeProblem where a port is taken."""

    def __init__(self, folder: Path, me: Handshake, address: Address, nodes: int) -> None:
        self._folder, self._me, self._address, self._nodes = folder, me, address, nodes
        # Torch, which will listen on all addresses, must be able to.
        everywhere(address.host, address.port).close()
        self._listeners = listen(address)
        self._greetings: dict[Channel, Generator[None, None, Message]] = {}
        """Connections that have not yet said which node they are."""
        self._members: list[Channel] = []

    def gather(self, patience_s: float, goes_on: Callable[[], None], arguments: list[str]) -> list[Channel]:
        """All other nodes by number, once they were told to start with `arguments`.

        Raises NodeProblem when one has not come in time, does not fit, or has left again.
        """
        token = new_token(self._folder)
        deadline = time.monotonic() + patience_s
        members = self._members
        try:
            while len(members) < self._nodes - 1:
                goes_on()
                self._let_in(token)
                for channel in list(self._greetings):
                    self._greet(channel)
                self._keep_warm()
                if time.monotonic() > deadline:
                    raise self._not_come(patience_s)
            for member in members:
                try:
                    member.send({"kind": "go", "arguments": arguments})
                except ChannelClosed as error:
                    raise lost(member, error) from None
        except NodeProblem as problem:
            refuse(members, problem)
            raise
        finally:
            for listener in self._listeners:
                listener.close()
            for channel in self._greetings:
                channel.close()
            with suppress(OSError):
                (self._folder / MEETING_TOKEN).unlink()
        return sorted(members, key=lambda member: member.node)

    def _let_in(self, token: bytes) -> None:
        """New connections, once there is something to do at all."""
        waiting = [*self._listeners, *(channel.connection for channel in self._greetings)]
        ready, _, _ = select.select(waiting, [], [], LOOK_EVERY_S)
        for listener in self._listeners:
            if listener in ready:
                with suppress(OSError):
                    channel = Channel(listener.accept()[0], "main")
                    self._greetings[channel] = _introduction(channel, token)
        if len(self._greetings) > MOST_GREETINGS:
            self._let_go(next(iter(self._greetings)))

    def _greet(self, channel: Channel) -> None:
        """What there is to do for it now. Raises NodeProblem for a node with which no training can begin."""
        try:
            next(self._greetings[channel])
        except ChannelClosed:
            self._let_go(channel)
        except StopIteration as end:
            del self._greetings[channel]
            # One that was killed and started again comes before its old connection is missed.
            self._keep_warm()
            self._check(channel, end.value)
            print(tr("{node} has connected.", node=channel.name), flush=True)

    def _let_go(self, channel: Channel) -> None:
        channel.close()
        del self._greetings[channel]

    def _check(self, channel: Channel, hello: Message) -> None:
        """Makes it a member. Raises NodeProblem for a node with which no training can begin."""
        channel.node, channel.host = int(hello["node"]), plain_text(hello["host"], 100)
        twin = next((member for member in self._members if member.node == channel.node), None)
        self._members.append(channel)
        if twin is not None:
            message = tr(
                "Two machines claim to be node {node}: {first} and {second}; give each its own number.",
                node=channel.node,
                first=twin.name,
                second=channel.name,
            )
            raise NodeProblem("config_mismatch", message)
        # Other versions say other things of themselves.
        apart = compare(self._me.facts, hello.get("facts", {"engine": {"trainwiz": None}}))
        if apart:
            message = tr(
                "{name} does not match node 0 ({differences}): all nodes need the same number of GPUs, the same "
                "versions, and the same files at the same path.",
                name=channel.name,
                differences=plain_text("; ".join(difference.text for difference in apart), LONGEST_SAID),
            )
            raise NodeProblem("config_mismatch", message)

    def _keep_warm(self) -> None:
        """Nodes that wait hear that node 0 is there; one that has left may come again."""
        for member in list(self._members):
            try:
                member.beat()
                member.receive()
            except ChannelClosed:
                member.close()
                self._members.remove(member)

    def _not_come(self, patience_s: float) -> NodeProblem:
        here = {member.node for member in self._members}
        message = tr(
            "Node {missing} of {nodes} did not connect within {seconds} s; node 0 waited on {host}, port {port}. "
            "Start it there, or open the port to it; all nodes need the run folder {path} on one shared file system.",
            path=self._folder,
            missing=", ".join(str(node) for node in range(1, self._nodes) if node not in here),
            nodes=self._nodes,
            seconds=f"{patience_s:,.0f}",
            host=self._address.host,
            port=self._address.meeting_port,
        )
        return NodeProblem("node_missing", message)


def _introduction(channel: Channel, token: bytes) -> Generator[None, None, Message]:
    yield from channel.prove(lambda: token)
    return (yield from channel.wait_for("hello"))


def refuse(channels: list[Channel], problem: NodeProblem) -> None:
    """Tell nodes why nothing begins, or why it ends."""
    for channel in channels:
        with suppress(ChannelClosed):
            channel.send({"kind": "refuse", "code": problem.code, "message": problem.message})
        channel.close()


def lost(member: Channel, how: ChannelClosed) -> NodeProblem:
    return NodeProblem("node_lost", tr("{name} was lost ({how}).", name=member.name, how=how))


def attend(
    folder: Path, me: Handshake, address: Address, patience_s: float, goes_on: Callable[[], None]
) -> tuple[Channel, list[str]]:
    """The connection to node 0, and the arguments of the training: the checkpoint to go on from, and what is accepted.

    Waits for node 0, and there for the others, for `patience_s` each.
    Raises NodeProblem when node 0 cannot be reached in time, or refuses.
    """
    deadline, why = time.monotonic() + patience_s, tr("no answer")
    where = tr("{host}, port {port}", host=address.host, port=address.meeting_port)
    while time.monotonic() < deadline:
        goes_on()
        try:
            connection = socket.create_connection((address.host, address.meeting_port), CONNECT_S)
            channel = Channel(connection, "worker")
            channel.host = address.host
            try:
                return channel, _take_part(folder, me, channel, goes_on)
            except BaseException:
                channel.close()
                raise
        except OSError as error:
            why = os_reason(error)
        except ChannelClosed as error:
            if str(error) != why:
                why = str(error)
                print(tr("{place}: {reason}. This node keeps waiting.", place=where, reason=why), flush=True)
        time.sleep(TRY_EVERY_S)
    message = tr(
        "Node 0 was unreachable at {place} for {seconds} s: {reason}. Check that it is started there, that the "
        "address is right, and that the port is open.",
        place=where,
        seconds=f"{patience_s:,.0f}",
        reason=why,
    )
    raise NodeProblem("node_missing", message)


def _take_part(folder: Path, me: Handshake, channel: Channel, goes_on: Callable[[], None]) -> list[str]:
    """The arguments with which node 0 says go."""
    try:
        for _ in channel.prove(lambda: read_token(folder)):
            goes_on()
            time.sleep(LOOK_EVERY_S / 4)
    except ChannelClosed:
        said = tr(
            "the program that answered did not prove that it is node 0 of this run; all nodes need the run folder {path} "
            "on one shared file system",
            path=folder,
        )
        raise ChannelClosed(said) from None
    channel.send({"kind": "hello", **asdict(me)})
    while True:
        goes_on()
        channel.beat()
        for message in channel.receive(wait_s=LOOK_EVERY_S):
            refuse_if_refused(message)
            if message.get("kind") == "go":
                return list(message["arguments"])


def refuse_if_refused(message: Message) -> None:
    """Raises NodeProblem with what node 0 says."""
    if message.get("kind") == "refuse":
        raise NodeProblem(str(message.get("code")), str(message.get("message")))
