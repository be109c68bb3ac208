"""Strangers on the port of a meeting: what they say changes nothing, and the true nodes meet meanwhile."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import pytest
from trainwiz.core.nodes.address import Address, NodeProblem
from trainwiz.core.nodes.handshake import Channel, ChannelClosed, introduce
from trainwiz.core.nodes.meeting import GREETING_S, MOST_GREETINGS, Meeting, attend, start_together

from tests.each import each
from tests.fakes.ports import free_port_pair

ARGUMENTS = ["--resume", "checkpoint-5"]
GREETING = (json.dumps({"kind": "hello", **asdict(introduce(1, 2, 1)), "versions": {"torch": "0"}}) + "\n").encode()
Connect = Callable[[], socket.socket]


@pytest.fixture
def address() -> Address:
    return Address("127.0.0.1", free_port_pair())


def nothing() -> None:
    """Nobody asks for a stop."""


def lead(folder: Path, address: Address, patience_s: float = 100.0) -> None:
    members = Meeting(folder, introduce(0, 2, 1), address).gather(patience_s, nothing)
    start_together(members, ARGUMENTS)


def prove_wrongly(connection: socket.socket) -> None:
    """As a worker that knows the protocol and not the token, and then greets as a node of other versions."""
    channel = Channel(connection, "worker")
    deadline = time.monotonic() + 60
    with suppress(ChannelClosed):
        for _ in channel.prove(lambda: b"0" * 64):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        pytest.fail("proved without the token")


def reflect(connection: socket.socket) -> None:
    """All that node 0 says is sent back to it."""
    connection.settimeout(1.0)
    connection.sendall(b'{"kind": "nonce", "nonce": "' + b"0" * 64 + b'"}\n')
    with suppress(OSError):
        while data := connection.recv(65536):
            connection.sendall(data)


STRANGERS: dict[str, Callable[[socket.socket], object]] = {
    "silent": lambda connection: None,
    "leaves": socket.socket.close,
    "garbage": lambda connection: connection.sendall(b"GET / HTTP/1.1\r\n\r\n"),
    "nested": lambda connection: connection.sendall(b"[" * 4000 + b"\n"),
    "not text": lambda connection: connection.sendall(bytes(range(256)) + b"\n"),
    "a huge line": lambda connection: connection.sendall(b"x" * 100_000),
    "a greeting without proof": lambda connection: connection.sendall(GREETING),
    "a nonce that is none": lambda connection: connection.sendall(b'{"kind": "nonce", "nonce": [[]]}\n{}\n' + GREETING),
    "another token": prove_wrongly,
    "an echo": reflect,
}


@each("kind", STRANGERS)
def test_a_stranger_changes_nothing(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    address = Address("127.0.0.1", free_port_pair())
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lead, tmp_path, address)
        # More silent connections than node 0 serves.
        strangers = [connected(address) for _ in range(3 * MOST_GREETINGS if kind == "silent" else 3)]
        for stranger in strangers:
            with suppress(OSError):
                STRANGERS[kind](stranger)
        time.sleep(0.3)
        began = time.monotonic()
        _, arguments = pool.submit(attend, tmp_path, introduce(1, 2, 1), address, 100.0, nothing).result()
        first.result()
    assert time.monotonic() - began < GREETING_S
    assert arguments == ARGUMENTS
    for stranger in strangers:
        heard = all_that_came(stranger)
        assert set(heard) <= {"nonce"}, heard
    assert capsys.readouterr().out.count("A connection from 127.0.0.1 was closed because it did not prove") == 1


def test_what_was_said_once_is_no_proof_again_and_who_proves_nothing_in_time_is_let_go(
    tmp_path: Path, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a true worker sent is sent again to the next meeting."""
    with relayed(address) as (relay, sent), ThreadPoolExecutor(2) as pool:
        first = pool.submit(lead, tmp_path, address)
        channel, _ = pool.submit(attend, tmp_path, introduce(1, 2, 1), relay, 100.0, nothing).result()
        first.result()
        channel.close()
    assert b"hello" in b"".join(sent)
    monkeypatch.setattr("trainwiz.core.nodes.meeting.GREETING_S", 0.5)
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(lead, tmp_path, address, 3.0)
        replay, silent = connected(address), connected(address)
        replay.sendall(b"".join(sent))
        assert set(all_that_came(replay)) <= {"nonce"}
        assert all_that_came(silent) == []
        assert not again.done()
        with pytest.raises(
            NodeProblem, match=r"Node 1 of 2 did not connect .* Connections from 127\.0\.0\.1 did not prove"
        ):
            again.result()


def test_a_false_node_0_starts_nothing_and_hears_nothing(tmp_path: Path, address: Address) -> None:
    """It knows the protocol, not the token; when the true one is there at last, the worker meets that."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", address.meeting_port)) as server, ThreadPoolExecutor(2) as pool:
        (tmp_path / ".meeting").write_text("1" * 64)
        worker = pool.submit(attend, tmp_path, introduce(1, 2, 1), address, 100.0, nothing)
        for answer in (b'{"kind": "nonce", "nonce": "0"}\n', b""):
            connection, _ = server.accept()
            connection.sendall(answer + b'{"kind": "proof"}\n{"kind": "go", "arguments": ["--evil"]}\n')
            connection.settimeout(1.0)
            with suppress(OSError):
                while data := connection.recv(65536):
                    heard.append(data)
            connection.close()
        server.close()
        first = pool.submit(lead, tmp_path, address)
        assert worker.result()[1] == ARGUMENTS
        first.result()
    assert b"nonce" in b"".join(heard)
    assert b"torch" not in b"".join(heard)


def test_what_is_changed_on_the_way_is_not_done(tmp_path: Path, address: Address) -> None:
    """Somebody between the two lets them prove who they are, and then puts arguments of his own into the start."""
    with (
        relayed(address, lambda data: data.replace(b"checkpoint-5", b"checkpoint-6")) as (relay, _),
        ThreadPoolExecutor(2) as pool,
    ):
        pool.submit(lead, tmp_path, address)
        with pytest.raises(NodeProblem, match=r"did not prove|a line came that is not of this run"):
            attend(tmp_path, introduce(1, 2, 1), relay, 3.0, nothing)


def test_node_0_listens_where_it_was_told_to(tmp_path: Path, address: Address) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lead, tmp_path, address, 2.0)
        connected(address).close()
        # The token is for the owner alone.
        assert (tmp_path / ".meeting").stat().st_mode & 0o077 == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", address.meeting_port), 1.0)
        with pytest.raises(NodeProblem):
            first.result()
    with pytest.raises(NodeProblem, match=r"cannot listen on 192\.0\.2\.1: .* Use an address of node 0 itself"):
        Meeting(tmp_path, introduce(0, 2, 1), Address("192.0.2.1", address.port))


def connected(address: Address) -> socket.socket:
    """To node 0, which may not listen yet."""
    for _ in range(100):
        with suppress(ConnectionRefusedError):
            return socket.create_connection((address.host, address.meeting_port), 5.0)
        time.sleep(0.05)
    raise AssertionError("node 0 does not listen")


def all_that_came(connection: socket.socket) -> list[str]:
    """The kinds of all messages up to the end of the connection."""
    data = b""
    with suppress(OSError), connection:
        connection.settimeout(5.0)
        while more := connection.recv(65536):
            data += more
    return [json.loads(line)["kind"] if line.startswith(b"{") else "sealed" for line in data.splitlines()]


@contextmanager
def relayed(
    address: Address, change: Callable[[bytes], bytes] = lambda data: data
) -> Iterator[tuple[Address, list[bytes]]]:
    """An address that leads to node 0 through somebody who writes down what workers say, and changes the answers."""
    place = Address("127.0.0.1", free_port_pair())
    sent: list[bytes] = []

    def copy(one: socket.socket, other: socket.socket, through: Callable[[bytes], bytes]) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(through(data))
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def noted(data: bytes) -> bytes:
        sent.append(data)
        return data

    def serve() -> None:
        with suppress(OSError, AssertionError):
            while True:
                worker, _ = server.accept()
                main = connected(address)
                threading.Thread(target=copy, args=(worker, main, noted), daemon=True).start()
                threading.Thread(target=copy, args=(main, worker, change), daemon=True).start()

    with socket.create_server(("127.0.0.1", place.meeting_port)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield place, sent
        server.shutdown(socket.SHUT_RDWR)
