"""Host ports on a real engine: allocation, reuse and stale UDP flows."""

import shutil
from collections.abc import Iterator
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from tests.docker.machine import FIRST, Agent, Machine, Player, a_machine, port_of, ports_of
from tests.docker.stack import eventually
from tiltyard.agent.v1 import agent_pb2 as pb


def test_f21_a_port_used_again_at_once_serves_the_player_who_never_stopped_sending(
    any_machine: Machine,
) -> None:
    with Agent(any_machine, ports=1) as agent, Player(any_machine, FIRST) as old:
        old.wait_for_more_datagrams()  # before there was a container at all
        first = agent.play()
        assert old.seen_as(first) == old.address
        agent.assert_ports_agree(first)
        agent.end(first)
        agent.assert_ports_agree()
        old.wait_for_more_datagrams()
        second = agent.play()
        assert port_of(second) == FIRST
        assert old.seen_as(second) == old.address
        with Player(any_machine, FIRST) as new:
            assert new.seen_as(second) == new.address
        [address] = set(any_machine.flows(FIRST))
        container = agent.container_of(second)
        [network] = container.attrs["NetworkSettings"]["Networks"].values()
        assert address == network["IPAddress"]
        agent.assert_ports_agree(second)
        agent.end(second)
        agent.assert_ports_agree()


@pytest.mark.slow
def test_f21_a_restarted_game_keeps_the_player_who_never_stopped_sending(
    any_machine: Machine,
) -> None:
    with Agent(any_machine, ports=1) as agent:
        session = agent.play(restart=True)
        with Player(any_machine, FIRST) as player:
            assert player.seen_as(session) == player.address
            [container] = agent.containers()
            container.kill("SIGKILL")
            eventually(lambda: agent.session(session).restart_count == 1, "it is restarted")
            assert player.seen_as(session) == player.address
        agent.assert_ports_agree(session)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with a_machine(userland_proxy=False) as machine:
        yield machine


@pytest.mark.slow
def test_f21_a_port_is_not_used_again_while_others_are_free(machine: Machine) -> None:
    # A prepared container would hold a port, too.
    with Agent(machine, ports=3, prepared=0) as agent, Player(machine, FIRST) as old:
        first = agent.play()
        assert old.seen_as(first) == old.address
        agent.end(first)
        others = [agent.play()]
        agent.restart()
        others.append(agent.play())
        assert [port_of(other) for other in others] == [FIRST + 1, FIRST + 2]
        old.wait_for_more_datagrams()
        assert not any(old.answers_from(other.internal_id) for other in others)
        last = agent.play()
        assert port_of(last) == FIRST
        assert old.seen_as(last) == old.address
        agent.assert_ports_agree(*others, last)


FILL_TIMEOUT = 600.0  # Seconds for a table of 260,000 flows on a busy machine
PROTOCOLS = {"tcp": pb.PROTOCOL_TCP, "udp": pb.PROTOCOL_UDP}


@pytest.mark.slow
def test_f19_a_port_that_a_process_of_the_host_has_is_passed_over(machine: Machine) -> None:
    taken = [("udp", "127.0.0.1"), ("udp", "::"), ("tcp", "0.0.0.0"), ("tcp", "::")]  # IPv6 alone
    with Agent(machine, ports=30, prepared=0) as agent:
        for number, (protocol, address) in enumerate(taken):
            port = FIRST + 2 * (number % 2)
            kind = PROTOCOLS[protocol]
            with machine.occupied(protocol, address, port):
                session = agent.play(protocol=kind)
                assert port_of(session) == port + 1, (protocol, address)
                assert agent.refusal(protocol=kind, pinned=port) == "PORT_TAKEN"
                agent.assert_ports_agree(session)
                agent.end(session)
            back = agent.play(protocol=kind, pinned=port)
            agent.assert_ports_agree(back)
            agent.end(back)
        agent.assert_ports_agree()


def test_f19_a_port_that_the_engine_refuses_is_passed_over(machine: Machine) -> None:
    # An agent outside of the engine's network cannot see ports there.
    with (
        Agent(machine, ports=9, first=28100, wrapper=()) as agent,
        machine.occupied("udp", "0.0.0.0", 28100),
    ):
        session = agent.play()
        assert port_of(session) == 28101
        assert len(agent.containers()) == 1
        agent.assert_ports_agree(session)
        assert agent.refusal(pinned=28100) == "PORT_TAKEN"
        agent.assert_ports_agree(session)


@pytest.mark.slow
def test_f20_no_port_left_is_a_refusal_that_leaves_nothing(machine: Machine) -> None:
    with Agent(machine, ports=3) as agent:
        three = [agent.play() for _ in range(3)]
        before = agent.directories()
        assert agent.refusal() == "NO_FREE_PORT"
        assert len(agent.containers()) == 3
        assert agent.directories() == before
        agent.assert_ports_agree(*three)
        agent.end(three[1])
        again = agent.play()
        assert ports_of(again) == ports_of(three[1])
        agent.assert_ports_agree(three[0], again, three[2])


@pytest.mark.slow
def test_f20_ports_that_all_are_others_are_a_refusal_that_leaves_nothing(machine: Machine) -> None:
    with Agent(machine, ports=2) as agent:
        with machine.occupied("udp", "::", FIRST), machine.occupied("udp", "::", FIRST + 1):
            assert agent.refusal() == "NO_FREE_PORT"
            assert agent.containers() == []
            agent.assert_ports_agree()
        session = agent.play()
        agent.assert_ports_agree(session)


def logged(agent: Agent, warning: str) -> bool:
    return warning in agent.process.log.read_text()


def test_f22_without_the_capability_sessions_start_and_the_host_says_so(machine: Machine) -> None:
    unable = machine.engine.network.inside("setpriv", "--bounding-set=-net_admin", "--")
    with Agent(machine, ports=2, wrapper=unable) as agent:
        sessions = [agent.play(), agent.play()]
        agent.assert_ports_agree(*sessions)
        with Player(machine, port_of(sessions[0])) as player:
            assert player.seen_as(sessions[0]) == player.address
        flows, source = agent.warnings
        assert "connection tracking" in flows
        assert "the source of packets" in source
        for warning in (flows, source):
            assert "CAP_NET_ADMIN" in warning
            eventually(partial(logged, agent, warning), "the log has it")
            assert agent.process.log.read_text().count(warning) == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_f22_a_full_table_keeps_new_players_out_and_disturbs_nobody_else(
    machine: Machine, tmp_path: Path
) -> None:
    with Agent(machine, ports=9) as agent:
        session = agent.play()
        with Player(machine, port_of(session)) as player:
            assert player.seen_as(session) == player.address
            _fill_connection_tracking(machine, tmp_path)
            later = agent.play()
            agent.end(agent.play())
            with Player(machine, port_of(later)) as newcomer:
                newcomer.wait_for_more_datagrams()
                assert newcomer.answers_from(later.internal_id) == 0
                assert player.seen_as(session) == player.address
                machine.run("conntrack", "-F")
                assert newcomer.seen_as(later) == newcomer.address
            assert player.seen_as(session) == player.address
        # A busy machine may not have looked through the full table in time; now it is empty.
        agent.end(agent.play())
        eventually(lambda: agent.warnings == [], "flows can be flushed again")
        agent.assert_ports_agree(session, later)


def _fill_connection_tracking(machine: Machine, folder: Path) -> None:
    """Fill the namespace's table with flows that the kernel does not drop for new ones.

    Its maximum is that of the whole machine; a namespace counts its own flows.
    """
    machine.run("conntrack", "-F")  # flows that end would make room
    most = int(Path("/proc/sys/net/netfilter/nf_conntrack_max").read_text())
    flows = folder / "flows"
    with flows.open("w") as file:
        for number in range(most):
            source = IPv4Address("10.0.0.0") + number
            destination = "192.0.2.1"
            there = f"-s {source} -d {destination}"
            back = f"-r {destination} -q {source}"
            ports = "--sport 9 --dport 9 --reply-port-src 9 --reply-port-dst 9"
            file.write(f"-I -p udp {there} {back} {ports} -t 3600 -u ASSURED,SEEN_REPLY\n")
    # The table is full before the last line, which fails, and whose error is no matter.
    fill = 'conntrack -R "$0" >"$0.log" 2>&1 || true'
    machine.run("sh", "-c", fill, str(flows), timeout=FILL_TIMEOUT)
    assert int(machine.run("conntrack", "-C")) >= most


IPTABLES = """#!/bin/sh
case "$*" in
*"-A DOCKER "*DNAT*) rm {folder}/failure-1 || rm {folder}/failure-2 && exit 4 ;;
esac 2>/dev/null
exec {iptables} "$@"
"""


@pytest.fixture
def busy_machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine whose engine finds the firewall locked at its first two tries."""
    iptables = tmp_path / "iptables"
    iptables.write_text(IPTABLES.format(folder=tmp_path, iptables=shutil.which("iptables")))
    iptables.chmod(0o755)
    for number in (1, 2):
        (tmp_path / f"failure-{number}").touch()
    with a_machine(userland_proxy=False, programs=tmp_path) as machine:
        yield machine


def test_f23_a_start_waits_for_a_firewall_in_others_hands(busy_machine: Machine) -> None:
    with Agent(busy_machine, ports=1) as agent:
        session = agent.play()
        log = agent.process.log  # A thread writes it.
        eventually(lambda: log.read_text().count("trying again") == 2, "two tries have failed")
        with Player(busy_machine, FIRST) as player:
            assert player.seen_as(session) == player.address
        agent.assert_ports_agree(session)
        agent.end(session)
        agent.assert_ports_agree()


@pytest.mark.slow
def test_f23_a_firewall_that_stays_broken_is_a_refusal_that_leaves_nothing(
    machine: Machine,
) -> None:
    with Agent(machine, ports=1) as agent:
        machine.run("iptables", "-t", "nat", "-E", "DOCKER", "AWAY")
        try:
            assert agent.refusal() == "ENGINE_ERROR"
            assert agent.containers() == []
        finally:
            machine.run("iptables", "-t", "nat", "-E", "AWAY", "DOCKER")
        agent.assert_ports_agree()
        agent.assert_ports_agree(agent.play())
