"""F06 on a real engine: an agent that returns to lost, damaged or older records."""

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.init.channel import FOLDER
from tests.docker.killed_agent import KilledAgent
from tests.docker.machine import Machine, Player, port_of
from tests.docker.stack import eventually
from tests.docker.test_long_runs import assert_complete
from tests.faults.records import lose_records
from tiltyard.agent.v1 import agent_pb2 as pb

pytestmark = pytest.mark.slow

DAMAGED = slice(8, 24)  # Bytes of a record, within its first names


def delete(state: Path, _older: Path) -> None:
    lose_records(state)


def flip(state: Path, _older: Path) -> None:
    for path in (state / "sessions").glob("*/record.json"):
        content = bytearray(path.read_bytes())
        content[DAMAGED] = bytes(byte ^ 0xFF for byte in content[DAMAGED])
        path.write_bytes(content)


def restore(state: Path, older: Path) -> None:
    shutil.rmtree(state)
    shutil.copytree(older, state)


@pytest.mark.parametrize("damage", [delete, flip, restore])
def test_f06_sessions_are_rebuilt_from_their_containers_while_games_are_played(
    machine: Machine, tmp_path: Path, damage: Callable[[Path, Path], None]
) -> None:
    with KilledAgent(machine, ports=6) as agent, contextlib.ExitStack() as players:
        playing = agent.play()
        restarted = agent.play(restart=True)
        ending = agent.play()
        sealed = agent.play()
        for session in (ending, sealed):
            eventually(lambda: bool(agent.log(session)), "SIGTERM now has it save")  # noqa: B023
        agent.end(sealed)
        agent.until_sealed(sealed)
        for session in (playing, restarted, ending):
            eventually(lambda: agent.session(session).HasField("ready_time"), "it is recorded")  # noqa: B023
        # From now on the agent writes nothing.
        no_fifos = shutil.ignore_patterns(FOLDER)
        older = shutil.copytree(agent.state_dir, tmp_path / "older", ignore=no_fifos)
        later = agent.play()  # which the older copy does not have
        agent.container_of(restarted).kill()
        eventually(lambda: agent.session(restarted).restart_count == 1, "it is started again")
        agent.started_by_others = 1  # no label counts that restart
        live = [playing, restarted, later]
        connected = [players.enter_context(Player(machine, port_of(each))) for each in live]
        before = agent.processes()

        agent.kill()
        damage(agent.state_dir, older)
        agent.container_of(ending).kill("SIGTERM")
        for player, session in zip(connected, live, strict=True):
            assert player.seen_as(session) == player.address  # without an agent
        agent.start()

        for session in (ending, sealed):
            found = agent.until_sealed(session)
            assert found.state == pb.STATE_EXITED
            assert found.exit_code == 0
            assert_complete(agent.log(session))
        assert agent.processes() == {**before, ending.internal_id: 0}
        assert len(agent.containers()) == len(before)  # none is doubled
        for player, session in zip(connected, live, strict=True):
            assert agent.session(session).state == pb.STATE_RUNNING
            player.wait_for_more_answers(session.internal_id)
            with Player(machine, port_of(session)) as newcomer:
                assert newcomer.seen_as(session) == newcomer.address
        agent.assert_ports_agree(*live)
        assert agent.refusal(pinned=port_of(playing)) == "PORT_TAKEN"
        agent.come_back()  # what was rebuilt is on disk
        agent.assert_ports_agree(*live)
