"""An agent killed by SIGKILL at every failpoint, on a real engine.

After its restart the step has been finished or undone, without an effect on other sessions.
`SCENARIOS` defines how an agent reaches each step; a step without one fails.
"""

import contextlib
import io
import itertools
import signal
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import grpc
import pytest

from agent.domain.sessions import restarts
from agent.domain.steps import STEPS
from tests.docker.killed_agent import KilledAgent, PoolAgent, or_else, seen_by
from tests.docker.machine import ENDED, Machine
from tests.docker.stack import PATIENCE, eventually
from tests.faults.invariants import LATE_SECONDS
from tests.faults.plugin import Rounds
from tests.support.agent.claiming import reason_of
from tests.support.agent.samples import an_id
from tests.support.harness import Registry
from tests.support.pushed_image import push_image
from tests.support.real_engine import ends
from tiltyard.agent.v1 import agent_pb2 as pb

ADOPTED = {"start.saved", "start.handed"}
"""Steps of a start after which the session is kept: its game runs, or is executed then."""
KILLED_AFTER = (1.5, 7.5)  # Seconds between two kills, as in Nomad's test of a crash loop
LONGEST_STOP = 30.0  # Seconds; the unit allows 60


@contextlib.contextmanager
def beside_others(machine: Machine, *, stop_grace: float = 10) -> Iterator[PoolAgent]:
    """An agent with two sessions that must not notice faults of a third."""
    with PoolAgent(machine, ports=4, stop_grace=stop_grace, prepared=0) as agent:
        others = [agent.play(), agent.play(restart=True)]
        before = agent.processes()
        yield agent
        agent.assert_undisturbed(before, *others)
        assert agent.directories() == {other.internal_id for other in others}


def while_it_starts(agent: KilledAgent, step: str) -> None:
    internal_id = an_id()
    agent.break_at(step)
    with pytest.raises(grpc.RpcError):
        agent.play(internal_id=internal_id)
    agent.await_kill(step)
    left = agent.processes().get(internal_id)
    agent.come_back()
    if step in ADOPTED:
        session = agent.session(pb.Session(internal_id=internal_id))
        assert session.pid == left
        eventually(lambda: bool(agent.log(session)), "its game was executed")
    else:
        eventually(lambda: internal_id not in agent.processes(), "no container is left")
        eventually(lambda: internal_id not in agent.directories(), "no directory is left")
        eventually(lambda: internal_id not in agent.known(), "it is forgotten")
    again = agent.play(internal_id=internal_id)
    assert again.state == pb.STATE_RUNNING
    assert agent.processes()[internal_id] == again.pid
    assert step not in ADOPTED or again.pid == left
    assert_executed(agent, again, 1)
    agent.discard(again)


def assert_executed(agent: KilledAgent, session: pb.Session, runs: int) -> None:
    """The game was executed as often as this, by its log: each run of it counts from 1."""
    eventually(lambda: _begun(agent, session) >= runs, "it writes")
    assert _begun(agent, session) == runs


def _begun(agent: KilledAgent, session: pb.Session) -> int:
    return sum(line.number == 1 for line in agent.log(session))


def while_it_restarts(agent: KilledAgent, step: str) -> None:
    agent.break_at(step)
    session = agent.play(restart=True)
    eventually(lambda: _begun(agent, session) == 1, "it writes")
    agent.container_of(session).kill()
    agent.await_kill(step)
    restarted = agent.processes()[session.internal_id]
    assert restarted not in {0, session.pid}
    agent.come_back()
    found = agent.until(session, pb.STATE_RUNNING)
    assert found.pid == restarted
    assert found.restart_count == 1
    assert_executed(agent, session, 2)
    agent.end(session)
    agent.come_back()
    found = agent.until_sealed(session)
    assert found.state == pb.STATE_EXITED
    assert found.end_reason == pb.END_REASON_STOPPED
    assert found.restart_count == 1
    assert agent.processes()[session.internal_id] == 0
    assert len(agent.report(session).failed_runs) == 1
    agent.discard(session)


def while_it_stops(agent: KilledAgent, step: str) -> None:
    agent.break_at(step)
    session = agent.play("--lines-per-second", "200", restart=True)
    eventually(lambda: bool(agent.log(session)), "it writes: from now on SIGTERM has it save")
    with or_else(grpc.StatusCode.UNAVAILABLE):
        agent.end(session)
    agent.await_kill(step)
    agent.come_back()
    found = agent.until_sealed(session)
    assert found.state == pb.STATE_EXITED
    assert found.end_reason == pb.END_REASON_STOPPED
    assert found.restart_count == 0
    assert agent.processes()[session.internal_id] == 0
    lines = agent.log(session)
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    assert lines[-1].text == "SIGTERM: saving"
    report = agent.report(session)
    assert report.end_reason == pb.END_REASON_STOPPED
    assert report.exit_code == 0
    agent.discard(session)


def while_it_is_discarded(agent: KilledAgent, step: str) -> None:
    agent.break_at(step)
    session = agent.play()
    with or_else(grpc.StatusCode.UNAVAILABLE):
        agent.discard(session)
    agent.await_kill(step)
    agent.come_back()
    agent.discard(session)
    agent.come_back()
    assert session.internal_id not in agent.known()
    assert agent.refusal(internal_id=session.internal_id) == "SESSION_STOPPED"


def while_it_is_claimed(agent: KilledAgent, step: str) -> None:
    assert isinstance(agent, PoolAgent)
    agent.break_at(step)
    agent.keep(1, claim_signal="SIGUSR1")
    [standby] = agent.until_ready(1)
    last = agent.play()  # takes the last port, so that the pool is not refilled
    with pytest.raises(grpc.RpcError):
        agent.claim(standby, "m1")
    agent.await_kill(step)
    agent.come_back()
    again = agent.claim(standby, "m1", again=True)
    assert again.pid == standby.pid
    assert again.identity.session_id == "m1"
    assert seen_by(again)["id"] == "m1"
    refused = next(agent.claiming(standby, "m2", again=True))
    assert reason_of(refused) == "STANDBY_NOT_CLAIMABLE"
    assert 1 <= len(agent.claim_lines(again)) <= 2
    agent.keep(0)
    agent.discard(last)
    agent.discard(again)


def while_it_prepares(agent: KilledAgent, step: str) -> None:
    agent.settings["prepared"] = 1
    agent.break_at(step)
    session = pb.Session(internal_id=an_id())
    with or_else(grpc.StatusCode.UNAVAILABLE):  # the kill may come before the answer
        agent.play(internal_id=session.internal_id)  # then another of its shape is prepared
    agent.await_kill(step)
    agent.come_back()
    left = 1 if step == "prepare.waiting" else 0
    eventually(lambda: len(agent.prepared_containers()) == left, "only one that waits is kept")
    again = agent.play()
    assert_executed(agent, again, 1)
    agent.end(again)
    assert agent.report(again).prepared == bool(left)
    agent.settings["prepared"] = 0
    agent.come_back()
    eventually(lambda: not agent.prepared_containers(), "none is kept any more")
    agent.discard(again)
    agent.discard(session)


SCENARIOS: dict[str, Callable[[KilledAgent, str], None]] = {
    "start": while_it_starts,
    "claim": while_it_is_claimed,
    "restart": while_it_restarts,
    "stop": while_it_stops,
    "end": while_it_stops,
    "log": while_it_stops,
    "report": while_it_stops,
    "container": while_it_is_discarded,
    "discard": while_it_is_discarded,
    "prepare": while_it_prepares,
}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_f02_f03_an_agent_killed_at_any_step_finishes_or_undoes_it(
    machine: Machine, step: str
) -> None:
    with beside_others(machine) as agent:
        SCENARIOS[step.partition(".")[0]](agent, step)


@pytest.mark.slow
def test_f03_an_agent_killed_while_it_hands_out_an_artifact_leaves_an_empty_spool(
    machine: Machine, rounds: Rounds, chance: Random
) -> None:
    """Killed while packing, or after it with a stalled reader."""
    size = 64 * 10**6
    with beside_others(machine) as agent:
        session = agent.play("--write-file", "/data/save", str(size), "--exit-after", "0.1")
        agent.until_sealed(session)
        spool = agent.state_dir / "spool"
        for _ in range(rounds(2, 20)):
            fetching = agent.fetch(session, "/data/save")
            begun = chance.choice((1, 10**6))
            eventually(lambda begun=begun: _spooled(agent) >= begun, "it is packed")  # type: ignore[misc]
            agent.kill()
            with pytest.raises(grpc.RpcError):
                list(fetching)
            (spool / "left").write_bytes(b"by an agent on a disk without nameless files")
            agent.come_back()
            assert list(spool.iterdir()) == []
            packed = b"".join(part.data for part in agent.fetch(session, "/data/save"))
            with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
                assert [member.size for member in tar] == [size]
        agent.discard(session)


def _spooled(agent: KilledAgent) -> int:
    """Bytes of the largest spool file, which is unlinked but open in the agent."""
    sizes = [0]
    for link in Path(f"/proc/{agent.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if str(link.readlink()).startswith(f"{agent.state_dir}/spool/"):
                sizes.append(link.stat().st_size)
    return max(sizes)


@pytest.mark.slow
def test_f03_an_agent_killed_while_it_removes_an_image_knows_which_there_are(
    machine: Machine, rounds: Rounds, chance: Random
) -> None:
    with (
        Registry(machine.engine.network.host_address) as registry,
        beside_others(machine) as agent,
    ):
        image = push_image(registry.address, "pruned", more=[b"unlike the others'"]).reference
        for _ in range(rounds(3, 30)):
            agent.pull(image)
            assert image in agent.images()
            removing = agent.removing(image)
            time.sleep(chance.uniform(0, 0.05))
            agent.kill()
            removing.exception(PATIENCE)
            agent.come_back()
            eventually(
                lambda: (image in agent.images()) == _has(machine, image),
                "it knows whether the image is there, which the engine may just be removing",
            )
            agent.remove_image(image)
            assert image not in agent.images()


def _has(machine: Machine, image: str) -> bool:
    """Whether the engine lists an image; inspecting each could race with a removal."""
    return any(image in (each["RepoDigests"] or ()) for each in machine.client.api.images())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_f04_a_crash_loop_goes_on_while_the_agent_is_killed_again_and_again(
    machine: Machine, rounds: Rounds, chance: Random
) -> None:
    with KilledAgent(machine, ports=3) as agent:
        session = agent.play("--crash-after", "0.3", restart=True)
        counts = [0]
        time_alive = 0.0
        for _ in range(rounds(3, 66)):
            begin = time.monotonic()
            lives = chance.uniform(*KILLED_AFTER)
            while time.monotonic() < begin + lives:
                counts.append(agent.session(session).restart_count)
                time.sleep(0.02)
            time_alive += lives
            agent.come_back()
        counts.append(agent.session(session).restart_count)
        assert counts == sorted(counts)
        assert counts[-1] >= _restarts_within(time_alive / 2)
        agent.end(session)
        found = agent.until_sealed(session)
        assert found.state == pb.STATE_EXITED
        assert found.end_reason == pb.END_REASON_STOPPED
        assert agent.processes()[session.internal_id] == 0
        runs = agent.report(session).failed_runs
        assert len(runs) - found.restart_count in {0, 1}  # stopped in a run or before one
        delays = [run.restart_delay.ToSeconds() for run in runs]
        assert delays == list(itertools.islice(_delays(), len(delays)))
        for run, following in itertools.pairwise(runs):
            gap = following.start_time.ToNanoseconds() - run.end_time.ToNanoseconds()
            assert gap >= run.restart_delay.ToNanoseconds()


def _delays() -> Iterator[float]:
    """The delays of the restarts of a game that fails at once."""
    delay = 0.0
    while True:
        delay = restarts.next_delay(delay, 0)
        yield delay


def _restarts_within(seconds: float) -> int:
    times = itertools.accumulate(_delays())
    return sum(1 for _ in itertools.takewhile(lambda time: time <= seconds, times))


@pytest.mark.slow
def test_f24_a_lifetime_that_ended_while_the_agent_was_down_ends_the_game_on_its_return(
    machine: Machine,
) -> None:
    with KilledAgent(machine, ports=2) as agent:
        session = agent.play(ttl=2)
        agent.kill()
        due = session.expire_time.ToSeconds()
        eventually(lambda: time.time() > due + 1, "its time is over")
        assert agent.processes()
        agent.start()
        returned = time.time()
        ended = agent.until(session, pb.STATE_EXITED)
        assert ended.end_reason == pb.END_REASON_TTL
        assert ended.end_time.ToSeconds() - returned <= LATE_SECONDS


@pytest.mark.slow
def test_f05_an_agent_told_to_end_answers_what_is_under_way_and_leaves_its_games(
    machine: Machine,
) -> None:
    with beside_others(machine, stop_grace=1) as agent:  # half of the agent's own grace
        session = agent.play("--ignore-sigterm")
        following = agent.following(session)
        assert next(following).data  # from now on it ignores the signal
        stopping = agent.stopping(session)
        agent.until(session, pb.STATE_SHUTTINGDOWN, *ENDED)
        assert ends(agent.process.pid, signal.SIGTERM, LONGEST_STOP)
        assert agent.process.returncode == 0
        answer = stopping.result(PATIENCE).session
        assert answer.state == pb.STATE_EXITED
        assert answer.exit_code == 137
        with or_else(grpc.StatusCode.UNAVAILABLE):
            list(following)
        agent.come_back()
        assert agent.session(session).end_reason == pb.END_REASON_STOPPED
        agent.discard(session)
