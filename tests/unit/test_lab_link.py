"""A link relays real connections, with the delays, rates and failures that were set."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from mirrortest.errors import LabError, UsageError
from mirrortest.lab.free_ports import ADDRESS, free_ports
from mirrortest.lab.link.condition import Condition, parse_rate
from mirrortest.lab.link.link import Link
from mirrortest.lab.link.relay import Relay
from tests.lab.harness import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PORT, TARGET = free_ports(2)
DEADLINE = 30.0


def _echo(listener: socket.socket) -> None:
    """Send each connection's bytes back, until it ends."""

    def answer(line: socket.socket) -> None:
        with line, contextlib.suppress(ConnectionResetError):
            while data := line.recv(1 << 16):
                line.sendall(data)

    while True:
        try:
            line, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=answer, args=(line,), daemon=True).start()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Link]:
    """A link to an echo server."""
    with socket.create_server((ADDRESS, TARGET)) as listener:
        threading.Thread(target=_echo, args=(listener,), daemon=True).start()
        link = Link("link-source", tmp_path_factory.mktemp("link"), {PORT: TARGET})
        link.start()
        link.wait_ready()
        yield link
        link.kill()
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def link(running: Link) -> Iterator[Link]:
    """The link without faults; a test's faults are healed after it."""
    yield running
    running.heal()


def connect() -> socket.socket:
    return socket.create_connection((ADDRESS, PORT), DEADLINE)


def exchange(line: socket.socket, data: bytes) -> bytes:
    """Send all data while reading it back."""
    sender = threading.Thread(target=line.sendall, args=(data,))
    sender.start()
    found = bytearray()
    while len(found) < len(data) and (part := line.recv(1 << 16)):
        found += part
    sender.join()
    return bytes(found)


def test_bytes_arrive_as_they_were_sent(link: Link) -> None:
    """With jitter and a rate, over several connections at once, up to the end of each."""
    link.delay(0.02, jitter=0.02)
    link.rate(20_000_000)
    data = bytes(range(256)) * 4000
    lines = [connect() for _ in range(5)]
    found: dict[int, bytes] = {}

    def use(number: int, line: socket.socket) -> None:
        found[number] = exchange(line, data[number:])
        line.shutdown(socket.SHUT_WR)
        assert line.recv(1) == b""
        line.close()

    threads = [threading.Thread(target=use, args=each) for each in enumerate(lines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[number] == data[number:] for number in range(5))


def test_an_answer_takes_both_delays(link: Link) -> None:
    """A round trip takes one delay per direction, never less."""
    link.delay(0.1)
    with connect() as line:
        began = time.monotonic()
        assert exchange(line, b"ping") == b"ping"
        assert time.monotonic() - began >= 0.2


def test_a_rate_is_that_of_all_connections_together(link: Link) -> None:
    """Two connections take as long as one with all their bytes."""
    link.rate(500_000)
    began = time.monotonic()
    with connect() as one, connect() as two:
        threads = [
            threading.Thread(target=exchange, args=(each, bytes(60_000))) for each in (one, two)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert time.monotonic() - began >= 120_000 / 500_000 - 0.05


def test_nothing_passes_a_cut_link_and_connections_outlive_it(link: Link) -> None:
    """Bytes, new connections and a connection's end wait until the link is healed."""
    with connect() as old, connect() as left:
        assert exchange(old, b"before") == b"before"
        link.cut()
        old.sendall(b"held")
        with connect() as new:
            new.sendall(b"new")
            left.shutdown(socket.SHUT_WR)
            for each in (old, new, left):
                each.settimeout(0.1)
                with pytest.raises(TimeoutError):
                    each.recv(10)
                each.settimeout(DEADLINE)
            link.heal("cut")
            assert old.recv(10) == b"held"
            assert new.recv(10) == b"new"
            assert left.recv(10) == b""


def test_a_reset_link_breaks_connections_and_refuses_new_ones(link: Link) -> None:
    """Connections end by RST; after `heal`, the link accepts connections again."""
    with connect() as line:
        assert exchange(line, b"before") == b"before"
        link.reset()
        with pytest.raises(ConnectionResetError):
            line.recv(10)
    with pytest.raises(ConnectionRefusedError):
        connect()
    link.heal()
    with connect() as line:
        assert exchange(line, b"after") == b"after"


async def test_a_connection_that_is_accepted_at_the_reset_is_broken_too(running: Link) -> None:
    """Its task runs only afterwards: it was not among those that the reset ends, and worked on."""
    assert running.alive  # its target is there
    relay = Relay({})
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=theirs)
    accepted = asyncio.ensure_future(relay._accept(TARGET)(reader, writer))
    await relay.apply(Condition(reset=True))
    with ours:
        assert (await asyncio.wait([accepted], timeout=DEADLINE))[0]
    assert writer.is_closing()


def test_a_fault_ends_apart_from_the_others(link: Link) -> None:
    """`heal` of one leaves the others as they are; the log shows each condition."""
    link.delay(0.001)
    link.rate(9_000_000)
    link.heal("delay")
    assert link.condition == Condition(rate=9_000_000)
    assert "delay 1.00 ms, rate 9,000,000 B/s" in link.log_since_start()


def test_faults_at_the_same_time_add_up(link: Link) -> None:
    """A scenario injects each from a thread of its own: none is lost."""
    changes = [lambda: link.delay(0.001), lambda: link.rate(9_000_000), link.cut]
    threads = [threading.Thread(target=change) for change in changes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert link.condition == Condition(delay=0.001, rate=9_000_000, cut=True)
    assert f"condition {link._number}: {link.condition}" in link.log_since_start()
    assert "Warning" not in link.log_since_start()


def test_a_restarted_link_is_as_bad_as_before(link: Link) -> None:
    """Its faults belong to the link, not to its process."""
    link.cut()
    link.kill()
    with pytest.raises(LabError, match="link-source is down: start or continue it first"):
        link.heal()
    link.start()
    link.wait_ready()
    with connect() as line:
        line.sendall(b"held")
        line.settimeout(0.1)
        with pytest.raises(TimeoutError):
            line.recv(10)
        line.settimeout(DEADLINE)
        link.heal()
        assert line.recv(10) == b"held"


def test_a_link_that_just_starts_takes_a_fault(link: Link) -> None:
    """Once, a fault that came while another one restarted the link ended the link."""
    for _ in range(3):
        link.kill()
        link.start()
        link.delay(0.001)
        assert f"condition {link._number}: {link.condition}" in link.log_since_start()


def test_a_target_that_is_down_breaks_the_connection(tmp_path: Path) -> None:
    """The client's connection ends, as with a broker that is down; the link keeps running."""
    port, nobody = free_ports(2)
    link = Link("link-source", tmp_path, {port: nobody})
    link.start()
    try:
        link.wait_ready()
        # The reset may come before the client knows that it is connected.
        with (
            contextlib.suppress(ConnectionResetError),
            socket.create_connection((ADDRESS, port), DEADLINE) as line,
        ):
            until(lambda: _is_broken(line), what="the connection ends")
        assert link.alive
        assert "Traceback" not in link.log_since_start()
    finally:
        link.kill()


def test_a_users_file_of_a_librarys_name_is_no_module_of_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part runs in its user's directory, which may contain a file asyncio.py."""
    (tmp_path / "asyncio.py").write_text("raise SystemExit('taken for the library')")
    monkeypatch.chdir(tmp_path)
    port, nobody = free_ports(2)
    link = Link("link-source", tmp_path, {port: nobody})
    link.start()
    try:
        link.wait_ready()
    finally:
        link.kill()


def _is_broken(line: socket.socket) -> bool:
    try:
        return line.recv(1) == b""
    except ConnectionResetError:
        return True


def test_rates_are_read_with_their_unit() -> None:
    """A rate is bytes per second, in any unit of size."""
    assert parse_rate("1MB/s", option="") == 1_000_000
    assert parse_rate("64KiB/s", option="") == 65_536
    for wrong in ("0", "fast", "1MB/h", ""):
        with pytest.raises(UsageError, match=r"--rate .*bytes per second"):
            parse_rate(wrong, option="--rate")
