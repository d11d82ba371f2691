"""Certificates that are renewed, expire or change their authority while games are played."""

import itertools
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.client import HTTPResponse

import grpc
import pytest
from cryptography import x509

from tests.docker.machine import Player
from tests.docker.operated_host import identity_of, run
from tests.docker.other_bounds import LongStreams, ShortLived
from tests.docker.remote_hosts import (
    BOTH_WAYS,
    MARKS,
    RPC_PORT,
    SHORT_TIMEOUTS,
    Fleet,
    Machines,
    RemoteHost,
    a_fleet,
)
from tests.docker.stack import PATIENCE, eventually, udp_port_of
from tests.faults.plugin import Rounds
from tests.support.certificates import CALLS, CONTROL_PLANE, Party, Signer
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.v1 import agent_pb2_grpc

pytestmark = MARKS

GRACE = timedelta(seconds=10)
BROKEN = "stream broke"


def a_caller(fleet: Fleet, life: timedelta = timedelta(hours=1)) -> Party:
    """A client certificate of the control plane's current authority."""
    text = (fleet.control_plane.state_dir / "authority.pem").read_bytes()
    return Signer.of(text).sign(CALLS, [CONTROL_PLANE], life=life)


def admits(host: RemoteHost, caller: Party) -> bool:
    """Return whether a host accepts calls on a new connection."""
    identity = identity_of(host)
    extensions = x509.load_pem_x509_certificate(identity.certificate).extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    [dns] = names.get_values_for_type(x509.DNSName)
    shown = grpc.ssl_channel_credentials(identity.authority, caller.key, caller.certificate)
    options = [("grpc.ssl_target_name_override", dns)]
    with grpc.secure_channel(f"{host.ip}:{RPC_PORT}", shown, options) as channel:
        try:
            agent_pb2_grpc.AgentServiceStub(channel).GetHost(pb.GetHostRequest(), timeout=PATIENCE)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return False
        return True


def shown_by(host: RemoteHost) -> str:
    """The server certificate on a new connection."""
    return ssl.get_server_certificate((host.ip, RPC_PORT))


def expire_time(certificate: str) -> datetime:
    return x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc


def has_expired(certificate: str) -> bool:
    return expire_time(certificate) < datetime.now(UTC)


def read_beyond(log: HTTPResponse, moment: datetime) -> None:
    """Read a game's log from its beginning to a line written after a given time."""
    for number in itertools.count(1):
        counted, written, *_ = log.readline().decode().split()
        assert int(counted) == number
        if datetime.fromisoformat(written) > moment:
            return


@contextmanager
def undisturbed(fleet: Fleet) -> Iterator[tuple[RemoteHost, HTTPResponse]]:
    """Play and follow a session meanwhile, on this host; nothing that is open may end."""
    kept = fleet.start(id="kept")
    far = fleet.host_of(kept)
    before = far.games()
    broken = fleet.logged(BROKEN)
    pids = [host.process.pid for host in fleet.hosts.values()]
    with (
        Player(far.machine, udp_port_of(kept)) as player,
        fleet.client.stream("/logs", id="kept", follow="true", timeout=PATIENCE) as log,
    ):
        yield far, log
        player.wait_for_more_answers("kept")
    assert fleet.logged(BROKEN) == broken
    assert [host.process.pid for host in fleet.hosts.values()] == pids
    assert far.games() == before
    far.restart()  # so that the control plane presents its current certificate
    fleet.until_reported(far)
    fleet.everything_runs_once()


@pytest.mark.thorough
def test_f42_certificates_are_renewed_and_nothing_that_is_open_ends(
    machines: Machines, rounds: Rounds
) -> None:
    with (
        a_fleet(*machines, plane=ShortLived, **SHORT_TIMEOUTS) as fleet,
        undisturbed(fleet) as (far, log),
    ):
        first = shown_by(far)
        caller = a_caller(fleet, GRACE)
        assert admits(far, caller)
        shown = [first]
        for _ in range(rounds(2, 20)):
            eventually(lambda: shown_by(far) not in shown, "a new connection sees another")
            shown.append(shown_by(far))
            assert shown[-1] == identity_of(far).certificate.decode()
            fleet.end(fleet.start()["id"])
        eventually(lambda: has_expired(first), "the first one has expired")
        eventually(lambda: not admits(far, caller), "an old caller is refused")
        assert admits(far, a_caller(fleet))
        read_beyond(log, expire_time(first))


def test_f42_a_host_whose_certificate_has_expired_is_refused_until_it_enrols_again(
    machines: Machines,
) -> None:
    with a_fleet(*machines, plane=ShortLived, **SHORT_TIMEOUTS) as fleet:
        kept = fleet.start(id="kept")
        far = fleet.host_of(kept)
        before = far.games()
        breaks = len(fleet.logged(BROKEN))

        def broke(why: str = "") -> bool:
            return any(why in line for line in fleet.logged(BROKEN)[breaks:])

        with Player(far.machine, udp_port_of(kept)) as player:
            with far.cut_off(BOTH_WAYS):
                eventually(broke, "the connection breaks")
                eventually(lambda: has_expired(identity_of(far).certificate.decode()), "expired")
                fleet.until("kept", "server_unreachable")
            eventually(lambda: broke("expired"), "it is refused")
            assert fleet.status("kept") == "server_unreachable"
            assert fleet.start()["host"] == fleet.other_than(far).ip
            fleet.enrol(far, "--agent", far.name)
            fleet.until("kept", "running")
            player.wait_for_more_answers("kept")
        assert far.games() == before
        fleet.everything_runs_once()


@pytest.mark.thorough
def test_f42_the_authority_is_rotated_and_nothing_that_is_open_ends(machines: Machines) -> None:
    with a_fleet(*machines, plane=LongStreams, **SHORT_TIMEOUTS) as fleet:
        former = a_caller(fleet)
        with undisturbed(fleet) as (_, log):
            fleet.operator.run("authority", "rotate")

            def have_moved() -> bool:
                fleet.end(fleet.start()["id"])
                return "HOSTS    2 of 2" in fleet.operator.run("authority", "status")

            eventually(have_moved, "both hosts have moved, and took every start meanwhile")
            assert "FORMER" not in fleet.operator.run("authority", "finish")
            for host in fleet.hosts.values():
                assert not admits(host, former)
                assert admits(host, a_caller(fleet))
            read_beyond(log, datetime.now(UTC))


@pytest.mark.thorough
def test_f42_the_authority_is_replaced_while_games_are_played(machines: Machines) -> None:
    with a_fleet(*machines, **SHORT_TIMEOUTS) as fleet:
        kept = fleet.start(id="kept")
        far = fleet.host_of(kept)
        before = far.games()
        plane = fleet.control_plane
        stolen = a_caller(fleet)
        assert admits(far, stolen)
        with Player(far.machine, udp_port_of(kept)) as player:
            plane.process.stop()
            authority = plane.state_dir / "authority.pem"
            authority.rename(plane.folder / "authority.old")
            run([sys.executable, "-m", "controlplane", "init", "--config", str(plane.config)])
            plane.start()
            for host in fleet.hosts.values():
                fleet.enrol(host, "--agent", host.name)
            fleet.until_ready()
            assert fleet.status("kept") == "running"
            player.wait_for_more_answers("kept")
        for host in fleet.hosts.values():
            assert not admits(host, stolen)
            assert admits(host, a_caller(fleet))
        assert far.games() == before
        fleet.start()
        fleet.everything_runs_once()
