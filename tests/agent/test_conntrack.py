"""Flows in a network namespace of the test, created and listed by conntrack(8)."""

import asyncio
import ctypes
import errno
import logging
import os
import socket
import struct
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from types import SimpleNamespace
from typing import Any, ParamSpec

import pytest

from agent.domain.sessions.session import Port
from agent.network import conntrack
from tiltyard.contract import Protocol

CLONE_NEWNET = 0x40000000
CAPABILITY_VERSION_3 = 0x20080522
PORT = 20000
UDP = Port(7777, Protocol.UDP, PORT)
TCP = Port(7778, Protocol.TCP, PORT)
REFUSED = PermissionError(errno.EPERM, "Operation not permitted")

_P = ParamSpec("_P")


def apart(test: Callable[_P, None]) -> Callable[_P, None]:
    """Run a test in a thread with a network namespace of its own, which ends with it."""

    def leave() -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "unshare")

    @wraps(test)
    def run(*args: _P.args, **named: _P.kwargs) -> None:
        with ThreadPoolExecutor(1, initializer=leave) as thread:
            thread.submit(test, *args, **named).result()

    return run


def tool(*arguments: str) -> str:
    command = ["conntrack", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout


def flows() -> set[tuple[str, str, int, int]]:
    """Return protocol, source and both ports of all flows."""
    found = set()
    for family in ("ipv4", "ipv6"):
        for line in tool("-L", "-f", family).splitlines():
            words = dict(word.split("=") for word in reversed(line.split()) if "=" in word)
            protocol = line.split()[0]
            source = words["src"]
            found.add((protocol, source, int(words["sport"]), int(words["dport"])))
    return found


STALE = {
    ("udp", "198.51.100.1", 5000, PORT),
    ("udp", "198.51.100.2", 5000, PORT),
    ("udp", "198.51.100.3", 5000, PORT),  # to a former container
    ("udp", "198.51.100.1", PORT, 5000),  # of docker-proxy
    ("udp", "2001:db8::2", 5000, PORT),
    ("udp", "2001:db8::3", 5000, PORT),  # to a former container
    ("udp", "2001:db8::2", PORT, 5000),
}
MASQUERADED = ("udp", "198.51.100.4", PORT, 5000)  # of a container
OTHERS = {
    ("udp", "198.51.100.1", 5000, PORT + 1),
    MASQUERADED,
    ("tcp", "198.51.100.1", 5000, PORT),
    ("udp", "2001:db8::2", 5000, PORT + 1),
    ("tcp", "2001:db8::2", 5000, PORT),
}
TRANSLATED = {
    ("udp", "198.51.100.3", 5000, PORT): ("--dst-nat", "192.0.2.9:7777"),
    ("udp", "2001:db8::3", 5000, PORT): ("--dst-nat", "[2001:db8::9]:7777"),
    MASQUERADED: ("--src-nat", "192.0.2.8:30000"),
}
FLOWS = conntrack.flows_of(PORT)


def know_flows() -> None:
    for flow in STALE | OTHERS:
        protocol, source, from_port, to_port = flow
        to = "2001:db8::1" if ":" in source else "192.0.2.1"
        ports = ("--sport", str(from_port), "--dport", str(to_port))
        state = ("--state", "ESTABLISHED") if protocol == "tcp" else TRANSLATED.get(flow, ())
        tool("-I", "-p", protocol, "-s", source, "-d", to, *ports, *state, "--timeout", "600")
    assert flows() == STALE | OTHERS


GET = 1
DELETE = 2
FILTER = FLOWS[0].filter[-20:]  # Says which fields of the tuple must match


class SomeKernel:
    """This machine's kernel; counts requests by kind."""

    def __init__(self, kernel: socket.socket) -> None:
        self._kernel = kernel
        self.recv = kernel.recv
        self.asked = Counter[int]()

    def send(self, data: bytes) -> None:
        self.asked[data[4]] += 1
        self._kernel.send(data)


class OlderKernel(SomeKernel):
    """Cannot delete by filter; `lists_all`: nor does it filter a list, as before 5.8."""

    def __init__(self, kernel: socket.socket, *, lists_all: bool) -> None:
        super().__init__(kernel)
        self._lists_all = lists_all

    def send(self, data: bytes) -> None:
        if data[4] == GET and self._lists_all:
            data = data[:20]
        elif data[4] == DELETE and data[-20:-12] == FILTER[:8]:
            data = data[:-20]
        super().send(struct.pack("=I", len(data)) + data[4:])


@pytest.mark.root
@pytest.mark.parametrize("lists_all", [False, True])
@pytest.mark.parametrize("few", [-1, 5000])
@apart
def test_deletes_only_udp_flows_to_the_ports(
    monkeypatch: pytest.MonkeyPatch, few: int, *, lists_all: bool
) -> None:
    monkeypatch.setattr(conntrack, "FEW_FLOWS", few)
    know_flows()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as kernel:
        asked: Any = OlderKernel(kernel, lists_all=lists_all)
        to_port = FLOWS[0]
        conntrack.forget_listed(asked, socket.AF_INET, [to_port], to_port.filter)
        gone = {one for one in STALE if ":" not in one[1] and one[3] == PORT}
        assert flows() == (STALE | OTHERS) - gone
        conntrack.forget_by(asked, [*conntrack.flows_of(PORT - 1), *FLOWS])
    assert flows() == OTHERS
    forget(conntrack.flows_of(PORT + 1))
    assert flows() == {flow for flow in OTHERS if flow[3] != PORT + 1}


@pytest.mark.root
@pytest.mark.parametrize("lists_all", [False, True, None])
@apart
def test_deletes_only_flows_translated_to_a_port(*, lists_all: bool | None) -> None:
    know_flows()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as kernel:
        asked: Any = kernel
        if lists_all is not None:
            asked = OlderKernel(kernel, lists_all=lists_all)
        conntrack.forget_by(asked, [conntrack.translated_flows(30001)])
        assert flows() == STALE | OTHERS
        conntrack.forget_by(asked, [conntrack.translated_flows(30000)])
    assert flows() == (STALE | OTHERS) - {MASQUERADED}


@pytest.mark.root
@apart
def test_deletes_by_filter_without_a_list() -> None:
    know_flows()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as kernel:
        asked: Any = SomeKernel(kernel)
        conntrack.forget_by(asked, FLOWS)
    assert flows() == OTHERS
    if tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 11):
        assert asked.asked == {DELETE: 4}


@pytest.mark.root
@apart
def test_ignores_flow_that_is_already_gone() -> None:
    know_flows()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as kernel:

        def send(data: bytes) -> None:
            if data[4] == 2:  # deletes one that was listed
                tool("-F")
            kernel.send(data)

        asked: Any = SimpleNamespace(send=send, recv=kernel.recv)
        conntrack.forget_listed(asked, socket.AF_UNSPEC, FLOWS)
    assert flows() == set()


@pytest.mark.root
@apart
def test_raises_without_capability() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    none = (ctypes.c_uint32 * 6)()
    # Capabilities are per thread, and this one ends with the test.
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    assert libc.capset(header, none) == 0, os.strerror(ctypes.get_errno())
    with pytest.raises(PermissionError):
        forget(FLOWS)


def forget(flows: list[conntrack.Flows]) -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as kernel:
        conntrack.forget_by(kernel, flows)


@pytest.fixture
async def flushing(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(conntrack, "WAIT_SECONDS", 60.0)  # threads may wait for a busy machine
    flushing = conntrack.Conntrack()
    yield flushing
    await flushing.close()


async def test_flushes_only_udp_ports_and_starts_that_wait_share_one_list(
    flushing: conntrack.Conntrack, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[conntrack.Flows]] = []
    monkeypatch.setattr(conntrack, "forget_by", lambda _, flows: asked.append(flows))
    await flushing.forget([TCP])
    await flushing.forget([])
    twice = [Port(1, Protocol.UDP, 20002), Port(2, Protocol.UDP, 20002)]
    await flushing.forget([TCP, UDP, *twice])
    assert asked == [sorted(FLOWS + conntrack.flows_of(20002))]
    asked.clear()
    ports = [Port(1, Protocol.UDP, number) for number in (20003, PORT, 20002)]
    await asyncio.gather(*(flushing.forget([port]) for port in ports))
    [flows] = asked
    assert {one.port for one in flows} == {PORT, 20002, 20003}


async def test_failures_are_counted_and_logged_once(
    flushing: conntrack.Conntrack,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    outcomes: list[OSError | None] = [REFUSED, REFUSED, None]

    def forget(*_: object) -> None:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    monkeypatch.setattr(conntrack, "forget_by", forget)
    caplog.set_level(logging.WARNING)
    assert flushing.warnings == ()
    await flushing.forget([UDP])
    await flushing.forget([UDP])
    assert flushing.failures == 2
    warning = "".join(flushing.warnings)
    assert "CAP_NET_ADMIN" in warning
    assert "Operation not permitted" in warning
    assert caplog.messages == [f"connection tracking of UDP ports is not flushed error={warning}"]
    await flushing.forget([UDP])
    assert flushing.warnings == ()
    assert flushing.failures == 2


async def test_unresponsive_kernel_delays_a_start_only_briefly(
    flushing: conntrack.Conntrack, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = threading.Event()
    ended = threading.Event()

    def hang(*_: object) -> None:
        let_go.wait()
        ended.set()
        raise REFUSED

    monkeypatch.setattr(conntrack, "forget_by", hang)
    monkeypatch.setattr(conntrack, "WAIT_SECONDS", 0.01)
    await flushing.forget([UDP])
    assert flushing.failures == 1
    assert "does not answer" in flushing.warnings[0]
    let_go.set()
    await flushing.close()
    assert ended.is_set()
