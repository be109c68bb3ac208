"""Nodes that meet over real sockets on this machine, each a thread; strangers on the port change nothing meanwhile."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.nodes import handshake
from trainwiz.core.nodes.address import Address, NodeProblem
from trainwiz.core.nodes.handshake import Channel, ChannelClosed, Handshake
from trainwiz.core.nodes.meeting import MOST_GREETINGS, Meeting, attend

from tests.each import each
from tests.fakes.ports import free_port_pair


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes before node 0 tries again soon."""
    monkeypatch.setattr("trainwiz.core.nodes.meeting.TRY_EVERY_S", 0.05)


@pytest.fixture
def address() -> Address:
    return Address("127.0.0.1", free_port_pair())


ARGUMENTS = ["--resume", "checkpoint-5"]
SOURCE = "data.sources.0"
DATA = {SOURCE: {"files": 1, "bytes": 9, "sample": "6f1c", "changed_s": 1.0, "name": "x.txt"}}


def nothing() -> None:
    """Nobody asks for a stop."""


def introduce(node: int, nodes: int, processes: int = 1, data: Any = None, torch: str = "2.9") -> Handshake:
    counts = {"nodes": nodes, "processes": processes}
    return Handshake(node, "box", {"processes": counts, "engine": {"torch": torch}, "data": data or {}})


def host(folder: Path, address: Address, nodes: int, patience_s: float = 100.0, data: Any = None) -> list[Channel]:
    meeting = Meeting(folder, introduce(0, nodes, 1, data), address, nodes)
    return meeting.gather(patience_s, nothing, ARGUMENTS)


def meet(
    folder: Path, address: Address, guests: list[Handshake], nodes: int
) -> tuple[Future[list[Channel]], list[Future[tuple[Channel, list[str]]]]]:
    """Futures of node 0 and of the guests, all of them done."""
    with ThreadPoolExecutor(len(guests) + 1) as pool:
        first = pool.submit(host, folder, address, nodes, data=DATA)
        others = [pool.submit(attend, folder, guest, address, 100.0, nothing) for guest in guests]
    return first, others


def test_all_start_together_with_the_arguments_of_node_0(tmp_path: Path, address: Address) -> None:
    # Data that is alike but for its time and place is the same.
    copy = {SOURCE: {**DATA[SOURCE], "changed_s": 2.0, "name": "/elsewhere/x.txt"}}
    first, others = meet(tmp_path, address, [introduce(2, 3, 1, DATA), introduce(1, 3, 1, copy)], 3)
    members = first.result()
    assert [member.node for member in members] == [1, 2]
    assert [one.result()[1] for one in others] == [ARGUMENTS] * 2
    assert not (tmp_path / ".meeting").exists()
    for one in others:
        one.result()[0].close()
    for member in members:
        with pytest.raises(ChannelClosed):
            while True:  # What a slow machine had to say before is heard first.
                member.receive(wait_s=30.0)


def test_who_does_not_come_and_a_node_0_that_is_not_there_are_named_in_time(tmp_path: Path, address: Address) -> None:
    with pytest.raises(NodeProblem, match=r"Node 1, 2 of 3 did not connect within 1 s") as caught:
        host(tmp_path, address, 3, patience_s=1.0)
    assert caught.value.code == "node_missing" and f"port {address.meeting_port}" in caught.value.message
    assert f"all nodes need the run folder {tmp_path}" in caught.value.message
    with pytest.raises(NodeProblem, match=r"was unreachable at 127\.0\.0\.1") as caught:
        attend(tmp_path, introduce(1, 2), address, 0.3, nothing)
    assert caught.value.code == "node_missing" and "Connection refused" in caught.value.message


@each("taken", ["rendezvous", "meeting"])
def test_a_port_in_use_is_named(tmp_path: Path, address: Address, taken: str) -> None:
    port = address.port if taken == "rendezvous" else address.meeting_port
    with (
        socket.create_server(("", port)),
        pytest.raises(NodeProblem, match=f"cannot listen on .*, port {port}") as caught,
    ):
        Meeting(tmp_path, introduce(0, 2), address, 2)
    assert caught.value.code == "port_in_use"


@each(("changes", "said"), [
    ({}, "Two machines claim to be node 1"), ({"nodes": 3}, "nodes: 2 → 3"), ({"processes": 4}, "processes: 1 → 4"),
    ({"torch": "1.0"}, "torch: 2.9 → 1.0"), ({"data": {SOURCE: {**DATA[SOURCE], "files": 2}}}, "9 bytes → 2 file(s)"),
    ({"data": {SOURCE: {**DATA[SOURCE], "sample": "0"}}}, "the same size with different content"),
])  # fmt: skip
def test_a_node_that_does_not_fit_ends_it_for_both(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    address = Address("127.0.0.1", free_port_pair())
    guests = [introduce(1, **{"nodes": 2, "data": DATA, **changes})] if changes else [introduce(1, 3, 1, DATA)] * 2
    first, others = meet(tmp_path, address, guests, len(guests) + 1)
    for future in (first, *others):
        with pytest.raises(NodeProblem) as caught:
            future.result()
        assert caught.value.code == "config_mismatch"
        assert said in caught.value.message


def test_the_data_as_a_machine_finds_it(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("something")
    sources = [{"name": "x.txt"}, {"name": "gone.txt"}, {"name": "owner/not-fetched-yet"}]
    config = RunConfig.model_validate({"task": "causal-lm", "model": {"name": "m"}, "data": {"sources": sources}})
    found = handshake.introduce(1, config, tmp_path).facts["data"]
    assert found["data.sources.0"]["bytes"] == 9
    assert "data.sources.1" not in found and "data.sources.2" not in found


def test_a_folder_that_is_not_shared(tmp_path: Path, address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwiz.core.nodes.handshake.GREETING_S", 0.3)
    with (
        waiting_host(tmp_path, address),
        pytest.raises(NodeProblem, match=f"is node 0 .* need the run folder {tmp_path}/b"),
    ):
        attend(tmp_path / "b", introduce(1, 2), address, 2.0, nothing)


def leave_after(looks: int) -> Callable[[], None]:
    """Somebody who waits, and gives up after so many looks."""
    left = iter(range(looks))

    def look() -> None:
        if next(left, None) is None:
            raise InterruptedError

    return look


@contextmanager
def waiting_host(folder: Path, address: Address) -> Iterator[None]:
    """Node 0 of two, which waits for as long as that, and for nothing else."""
    over = threading.Event()

    def look() -> None:
        if over.is_set():
            raise InterruptedError

    meeting = Meeting(folder, introduce(0, 2), address, 2)
    with ThreadPoolExecutor(1) as pool:
        host = pool.submit(meeting.gather, 1000.0, look, [])
        try:
            yield
            assert not host.done()
        finally:
            over.set()
        with pytest.raises(InterruptedError):
            host.result()


def test_a_stop_ends_the_waiting(tmp_path: Path, address: Address) -> None:
    with pytest.raises(InterruptedError):
        Meeting(tmp_path, introduce(0, 2), address, 2).gather(20.0, leave_after(0), [])
    with pytest.raises(InterruptedError):
        attend(tmp_path, introduce(1, 2), address, 20.0, leave_after(0))
    # The port is free again.
    Meeting(tmp_path, introduce(0, 2), address, 2)


def test_a_node_that_leaves_before_the_start_may_come_again(tmp_path: Path, address: Address) -> None:
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(host, tmp_path, address, 3)
        early = pool.submit(attend, tmp_path, introduce(1, 3), address, 20.0, leave_after(5))
        with pytest.raises(InterruptedError):
            early.result()
        again = [pool.submit(attend, tmp_path, introduce(node, 3, 1), address, 100.0, nothing) for node in (1, 2)]
        assert [member.node for member in first.result()] == [1, 2]
        assert all(one.result()[1] for one in again)


def test_silence_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwiz.core.nodes.handshake.SILENT_LOST_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = Channel(socket.create_connection(server.getsockname()[:2]), "worker")
        other = Channel(server.accept()[0], "main")
        other.beat()
        assert one.receive(wait_s=1.0) == []
        time.sleep(0.5)
        with pytest.raises(ChannelClosed, match=r"no message for \d+ s"):
            one.receive()
        other.close()
        one.close()


# Strangers on the port.


GREETING = (json.dumps({"kind": "hello", **asdict(introduce(1, 2, torch="0"))}) + "\n").encode()


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
    "a huge line": lambda connection: connection.sendall(b"x" * 100_000),
    "a greeting without proof": lambda connection: connection.sendall(GREETING),
    "a nonce that is none": lambda connection: connection.sendall(b'{"kind": "nonce", "nonce": [[]]}\n{}\n' + GREETING),
    "another token": prove_wrongly,
    "an echo": reflect,
}


@each("kind", STRANGERS)
def test_a_stranger_changes_nothing(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whom nobody drops would be waited for longer than the worker has patience.
    monkeypatch.setattr("trainwiz.core.nodes.handshake.GREETING_S", 1000.0)
    address = Address("127.0.0.1", free_port_pair())
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(host, tmp_path, address, 2)
        # More silent connections than node 0 serves.
        strangers = [connected(address) for _ in range(3 * MOST_GREETINGS if kind == "silent" else 3)]
        for stranger in strangers:
            with suppress(OSError):
                STRANGERS[kind](stranger)
        _, arguments = pool.submit(attend, tmp_path, introduce(1, 2), address, 100.0, nothing).result()
        first.result()
    assert arguments == ARGUMENTS
    for stranger in strangers:
        heard = all_that_came(stranger)
        assert set(heard) <= {"nonce"}, heard


def test_a_replay_and_silence_prove_nothing(tmp_path: Path, address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a true worker sent is sent again to the next meeting."""
    with relayed(address) as (relay, sent), ThreadPoolExecutor(2) as pool:
        first = pool.submit(host, tmp_path, address, 2)
        channel, _ = pool.submit(attend, tmp_path, introduce(1, 2), relay, 100.0, nothing).result()
        first.result()
        channel.close()
    assert b"hello" in b"".join(sent)
    monkeypatch.setattr("trainwiz.core.nodes.handshake.GREETING_S", 0.5)
    with waiting_host(tmp_path, address):
        replay, silent = connected(address), connected(address)
        replay.sendall(b"".join(sent))
        assert set(all_that_came(replay)) <= {"nonce"}
        assert all_that_came(silent) == []


def test_a_false_node_0_starts_nothing_and_hears_nothing(tmp_path: Path, address: Address) -> None:
    """It knows the protocol, not the token; when the true one is there at last, the worker meets that."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", address.meeting_port)) as server, ThreadPoolExecutor(2) as pool:
        (tmp_path / ".meeting").write_text("1" * 64)
        worker = pool.submit(attend, tmp_path, introduce(1, 2), address, 100.0, nothing)
        for answer in (b'{"kind": "nonce", "nonce": "0"}\n', b""):
            connection, _ = server.accept()
            connection.sendall(answer + b'{"kind": "proof"}\n{"kind": "go", "arguments": ["--evil"]}\n')
            connection.settimeout(1.0)
            with suppress(OSError):
                while data := connection.recv(65536):
                    heard.append(data)
            connection.close()
        server.close()
        first = pool.submit(host, tmp_path, address, 2)
        assert worker.result()[1] == ARGUMENTS
        first.result()
    assert b"nonce" in b"".join(heard)
    assert b"torch" not in b"".join(heard)


def test_what_is_changed_on_the_way_is_not_done(
    tmp_path: Path, address: Address, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody between the two lets them prove who they are, and then puts arguments of his own into the start."""

    def noticed() -> None:
        if "received a line that is not from this run" in capsys.readouterr().out:
            raise InterruptedError

    with (
        relayed(address, lambda data: data.replace(b"checkpoint-5", b"checkpoint-6")) as (relay, _),
        ThreadPoolExecutor(2) as pool,
    ):
        pool.submit(host, tmp_path, address, 2)
        with pytest.raises(InterruptedError):
            attend(tmp_path, introduce(1, 2), relay, 100.0, noticed)


def test_node_0_listens_where_it_was_told_to(tmp_path: Path, address: Address) -> None:
    modes = []

    def look() -> None:
        """While node 0 waits."""
        modes.append((tmp_path / ".meeting").stat().st_mode & 0o077)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", address.meeting_port), 1.0)

    with pytest.raises(NodeProblem):
        Meeting(tmp_path, introduce(0, 2), address, 2).gather(0.5, look, ARGUMENTS)
    assert set(modes) == {0}, "the token is for the owner alone"
    with pytest.raises(NodeProblem, match=r"cannot listen on 192\.0\.2\.1, .* Use an address of node 0 itself"):
        Meeting(tmp_path, introduce(0, 2), Address("192.0.2.1", address.port), 2)


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
