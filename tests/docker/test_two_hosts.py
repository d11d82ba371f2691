"""Two hosts with their own networks: cut off, far away or suddenly gone."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.docker.machine import Player
from tests.docker.remote_hosts import (
    BOTH_WAYS,
    FROM_THE_HOST,
    MARKS,
    RPC_PORT,
    SHORT_TIMEOUTS,
    TO_THE_HOST,
    Machines,
    a_fleet,
)
from tests.docker.stack import eventually, udp_port_of
from tests.faults.plugin import Figure
from tests.flow.relay import Relay
from tests.support.api_client import Answer
from tests.support.serving_thread import ServingThread

pytestmark = MARKS

GIVEN_UP_AFTER = 15.0
NO_ANSWER = "start unknown"
LONG_CUT = 600.0  # Seconds, in the long form
LIFETIME_PATIENCE = 90.0  # Seconds; the minimum lifetime is a minute
START_TIMEOUT = 20.0  # Seconds; an unresponsive host takes half of it
AT_ONCE = 5
LOST = ("-p", "tcp", "-m", "statistic", "--mode", "random", "--probability", "0.2")
MOST_TRIES = 10  # Each try may fail if a packet is lost at the wrong moment


class SlowLink(ServingThread):
    """Relays TCP from `address` to `host:port` with `delay` seconds each way."""

    def __init__(self, host: str, port: int, delay: float) -> None:
        super().__init__("slow-link")
        self._relay = Relay(partial(asyncio.open_connection, host, port), delay)
        self.address = ""

    @property
    def connections(self) -> int:
        return self._relay.connections

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._relay.take, "127.0.0.1", 0)
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname())

    async def _stop(self) -> None:
        self._server.close()
        await self._relay.close()


@pytest.mark.parametrize(
    "ways",
    [
        pytest.param(BOTH_WAYS, id="both ways"),
        pytest.param(TO_THE_HOST, id="to it", marks=pytest.mark.thorough),
        pytest.param(FROM_THE_HOST, id="from it", marks=pytest.mark.thorough),
    ],
)
def test_f39_a_host_that_is_cut_off_is_done_without_and_comes_back(
    machines: Machines, ways: Sequence[str]
) -> None:
    with a_fleet(*machines, **SHORT_TIMEOUTS, start_timeout=START_TIMEOUT) as fleet:
        kept = fleet.start(id="kept")
        stopped = fleet.start(id="stopped")
        assert kept["host"] == stopped["host"]
        far = fleet.host_of(kept)
        near = fleet.other_than(far)
        before = dict(far.games())
        with Player(far.machine, udp_port_of(kept)) as player:
            with far.cut_off(ways):
                # The fullest host is tried first until it is unresponsive for longer.
                assert fleet.start(id="answer-lost")["host"] == near.ip
                if ways == FROM_THE_HOST:
                    assert "answer-lost" in dict(far.games())
                fleet.until("kept", "server_unreachable")
                tried = fleet.logged(NO_ANSWER)
                for _ in range(3):
                    assert fleet.start()["host"] == near.ip
                assert fleet.logged(NO_ANSWER) == tried, "no start is sent there any more"
                fleet.client.delete_session("stopped").expect(503)
                player.wait_for_more_answers("kept")
                assert before.items() <= dict(far.games()).items()
            fleet.until("kept", "running")
            fleet.until("stopped", "exited")
            fleet.everything_runs_once()
            assert far.games() == [("kept", before["kept"])]
            assert "answer-lost" in dict(near.games())
            player.wait_for_more_answers("kept")


@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_f39_a_lifetime_ends_on_a_host_that_is_cut_off(
    machines: Machines, pytestconfig: pytest.Config, figure: Figure
) -> None:
    least = LONG_CUT if pytestconfig.getoption("long") else 0.0
    with a_fleet(*machines, **SHORT_TIMEOUTS) as fleet:
        kept = fleet.start(id="kept")
        _ = fleet.start(id="short", ttl="0h1m")
        far = fleet.host_of(kept)
        with Player(far.machine, udp_port_of(kept)) as player:
            begin = time.monotonic()
            with far.cut_off(BOTH_WAYS):
                fleet.until("short", "server_unreachable")
                eventually(
                    lambda: [who for who, _ in far.games()] == ["kept"],
                    "its lifetime has ended",
                    patience=LIFETIME_PATIENCE,
                )
                while time.monotonic() < begin + least:
                    player.wait_for_more_answers("kept")
                assert fleet.status("short") == "server_unreachable"
                figure("seconds cut off", round(time.monotonic() - begin))
            fleet.until("short", "exited")
            fleet.until("kept", "running")
            player.wait_for_more_answers("kept")
        fleet.everything_runs_once()


def test_f39_a_host_that_was_given_up_ends_its_games_once_it_is_told(machines: Machines) -> None:
    with a_fleet(*machines, **SHORT_TIMEOUTS, lost_after=GIVEN_UP_AFTER) as fleet:
        lost = fleet.start(id="lost")
        far = fleet.host_of(lost)
        before = far.games()
        with Player(far.machine, udp_port_of(lost)) as player, far.cut_off(BOTH_WAYS):
            fleet.until("lost", "dead")
            assert fleet.host_of(fleet.start(id="instead")) is not far
            player.wait_for_more_answers("lost")
            assert far.games() == before, "the host does not know yet"
        eventually(lambda: far.games() == [], "the host learns of it")
        fleet.everything_runs_once()
        assert fleet.status("lost") == "dead"
        assert fleet.status("instead") == "running"


@pytest.mark.thorough
def test_f40_over_a_slow_link_that_loses_packets_starts_end_and_the_host_is_heard(
    machines: Machines, figure: Figure
) -> None:
    [machine, *_], registry = machines
    with (
        SlowLink(machine.engine.network.address, RPC_PORT, delay=0.25) as link,
        a_fleet(
            [machine], registry, agent={"rpc_address": link.address}, start_timeout=START_TIMEOUT
        ) as fleet,
    ):
        fleet.start(id="kept")
        [host] = fleet.hosts.values()
        before = link.connections
        with host.dropping(BOTH_WAYS, *LOST):

            def start(number: int) -> Answer:
                answer = fleet.try_to_start(id=f"match-{number}")
                assert fleet.status("kept") == "running"
                return answer

            with ThreadPoolExecutor(AT_ONCE) as callers:
                answers = list(callers.map(start, range(4 * AT_ONCE)))
            assert {answer.status for answer in answers} <= {201, 420}
            started = sum(answer.status == 201 for answer in answers)
            figure("started", f"{started} of {len(answers)}")
            assert started >= len(answers) // 2
            held = link.connections
            assert held <= before + MOST_TRIES, "not one for each start"
            fleet.control_plane.restart()
            fleet.until_ready()
            assert link.connections <= held + MOST_TRIES
        fleet.everything_runs_once()


@pytest.mark.thorough
def test_f41_a_host_that_is_gone_without_a_word_is_missed_and_comes_back(
    machines: Machines,
) -> None:
    with a_fleet(*machines, **SHORT_TIMEOUTS) as fleet:
        kept = fleet.start(id="kept")
        far = fleet.host_of(kept)
        before = far.games()
        connected = ("ss", "-Htn", "state", "established", "sport", "=", f":{RPC_PORT}")
        assert far.machine.run(*connected)
        with far.dropping(BOTH_WAYS):
            far.machine.engine.network.unplug()
        fleet.until("kept", "server_unreachable")
        eventually(lambda: not far.machine.run(*connected), "the host lets go of its caller")
        assert fleet.start()["host"] == fleet.other_than(far).ip
        far.machine.engine.network.plug_in()
        fleet.until("kept", "running")
        assert far.games() == before
        with Player(far.machine, udp_port_of(kept)) as player:
            player.wait_for_more_answers("kept")
        fleet.everything_runs_once()
