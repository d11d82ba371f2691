"""Reconciliation as a property: with lost, late and duplicate messages, and kills.

Once all hosts are connected and reconciled, an (account, id) has at most one live session, every
running session is listed, and every start answered with 201 exists.
"""

import asyncio
import dataclasses
import logging
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from agent.domain.containers.engine import container_name
from tests.flow.bad_network import Fate
from tests.flow.small_fleet import (
    ACCOUNTS,
    Box,
    Control,
    SmallFleet,
    remove_database,
    restore_database,
)
from tests.support.agent.samples import a_spec

Key = tuple[str, str]

HOSTS = 3
CONVERGENCE_SECONDS = 45.0  # Longer than a stop, a dial, a snapshot and a start together

IDS = ("x", "y")
keys = st.sampled_from(
    (*[(ACCOUNTS[0], IDS[0])] * 3, (ACCOUNTS[1], IDS[0]), (ACCOUNTS[0], IDS[1]))
)
boxes = st.integers(0, HOSTS - 1)
fates = st.sampled_from(([], [], *([fate] * 2 for fate in Fate), list(Fate)))
pauses = st.sampled_from((1.0, 0.0, 0.001, 0.1, 3.5, 7.0))
skews = st.sampled_from((0.0, 0.0, 40.0, -40.0))


class Convergence(SmallFleet, RuleBasedStateMachine):
    """Three hosts, their control plane, and the faults that they meet."""

    @initialize(skews=st.tuples(*[skews] * HOSTS))
    def boot(self, skews: tuple[float, ...]) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.copied: set[Key] | None = None
        self.posts: dict[asyncio.Task[bool], Key] = {}
        self.deletes: dict[asyncio.Task[bool], str | None] = {}
        self.answered: set[Key] = set()
        """Sessions that this database must have: answered with 201 and known to the hosts."""
        self.may_live: set[Key] = set()  # Sessions that may live: all others were always refused
        self.over: dict[str, int] = {}
        """Unanswered attempts that can no longer start, with their number of starts."""
        self.given_up: set[str] = set()  # Attempts that were replaced by another or refused
        self.stopped: set[str] = set()
        self.ended: set[Key] = set()
        self.invented: dict[str, Box] = {}
        self.begin(Path(self.folder.name), skews)
        self.serve()
        self.wait(1.0)

    def serve(self) -> None:
        self.control = Control(self.loop, self.state, self.boxes, self.given_up.add)
        self.run(self.control.open())

    @rule(starts=st.lists(keys, min_size=1, max_size=3), fates=fates, pause=pauses)
    def start(self, starts: list[Key], fates: list[Fate], pause: float) -> None:
        self.spoil(fates)
        for key in starts:
            self.posts[self.control.start(*key)] = key
        self.wait(pause)

    @rule(key=keys, fates=fates, pause=pauses)
    def stop(self, key: Key, fates: list[Fate], pause: float) -> None:
        self.spoil(fates)
        sql = "SELECT account, id, internal_id FROM session WHERE ended_ms IS NULL"
        found: dict[Key, str | None] = {row[:2]: row[2] for row in self.control.store.rows(sql)}
        self.deletes[self.control.stop(*key)] = found.get(key)
        self.wait(pause)

    @rule(key=keys, fates=fates, pause=pauses)
    def stop_and_start(self, key: Key, fates: list[Fate], pause: float) -> None:
        self.stop(key, fates, 0.001)
        self.start([key], fates, pause)

    @rule(number=boxes, deed=st.sampled_from(("cut", "restore", "kill", "boot")), pause=pauses)
    def disturb_a_host(self, number: int, deed: str, pause: float) -> None:
        box = self.boxes[number]
        if deed == "cut":
            box.line.cut()
        elif deed == "restore":
            box.line.restore()
        else:
            self.run(box.kill() if deed == "kill" else box.boot())
        self.wait(pause)

    @rule(number=boxes, pause=pauses)
    def leave_one_host(self, number: int, pause: float) -> None:
        """Cut off all other hosts, so that the next start is on another host."""
        for box in self.boxes:
            if box is self.boxes[number]:
                box.line.restore()
            else:
                box.line.cut()
        self.wait(pause)

    @rule(key=keys, fates=fates, number=boxes, cut=st.booleans(), pause=pauses)
    def start_and_crash(
        self, key: Key, fates: list[Fate], number: int, cut: bool, pause: float
    ) -> None:
        """Crash during or after a start on one host, which may be unreachable by then."""
        self.leave_one_host(number, 10.0)
        self.start([key], fates, pause)
        if cut:
            self.boxes[number].line.cut()
            self.wait(10.0)
        self.crash("kept", pause)

    @rule(key=keys, fates=fates, number=boxes, others=st.booleans(), pause=pauses)
    def start_again_elsewhere(
        self, key: Key, fates: list[Fate], number: int, others: bool, pause: float
    ) -> None:
        """Lose the database, and start a session that an unreachable host already has."""
        self.leave_one_host((number + 1) % HOSTS, 10.0)
        self.start([key], [], 1.0)
        self.lose_database_and_reconnect_one(number)
        self.start([key], fates, 0.1)
        for box in self.boxes if others else []:
            box.line.restore()
        self.wait(pause)

    @rule(number=boxes)
    def lose_database_and_reconnect_one(self, number: int) -> None:
        self.leave_one_host(number, 0.0)
        self.crash("lost", 3.5)

    @rule(database=st.sampled_from(("kept", "kept", "lost", "old")), pause=pauses)
    def crash(self, database: str, pause: float) -> None:
        self.run(self.control.crash())
        self.note()
        if database == "lost":
            remove_database(self.state)
            self.forget(set())
        elif database == "old" and self.copied is not None:
            restore_database(Path(self.folder.name) / "copy.db", self.state)
            self.forget(self.copied)
        self.run(asyncio.sleep(pause))
        self.serve()
        self.wait(pause)

    @rule()
    def copy_database(self) -> None:
        self.control.store.copy(Path(self.folder.name) / "copy.db")
        self.copied = self.answered & self.rows()

    @rule(number=boxes, key=keys)
    def invent(self, number: int, key: Key) -> None:
        """Make a host report a session that it was not ordered to start."""
        box = self.boxes[number]
        if box.is_up and len(self.invented) < HOSTS:
            spec = a_spec()
            internal_id = str(uuid.uuid4())
            identity = dataclasses.replace(
                spec.identity, account=key[0], session_id=key[1], ticket="00" * 32
            )
            spec = dataclasses.replace(spec, identity=identity)
            self.run(self.loop.spawn(box, box.agent.sessions.start(internal_id, spec), "invent"))
            self.invented[internal_id] = box

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        try:
            self.reconcile()
            self.check()
        finally:
            self.close()
            self.folder.cleanup()

    def reconcile(self) -> None:
        for box in self.boxes:
            box.line.fates.clear()
            box.line.restore()
            self.run(box.boot())
        self.wait(CONVERGENCE_SECONDS)

    def check(self) -> None:
        live = {
            (box.name, each.internal_id): _key(each)
            for box in self.boxes
            for each in self.recorded(box)
        }
        assert len(set(live.values())) == len(live), f"two sessions of one id: {live}"
        rows = self.control.store.rows(
            "SELECT agent, internal_id, account, id FROM session WHERE ended_ms IS NULL"
        )
        in_database = {
            (agent, internal_id): (account, session_id)
            for agent, internal_id, account, session_id in rows
        }
        assert in_database == live
        for box in self.boxes:
            recorded = {each.internal_id for each in box.live}
            assert box.running == recorded, f"containers of {box.name}"
            mine = {internal_id for internal_id, where in self.invented.items() if where is box}
            link = self.control.fleet.host(box.name)
            assert link is not None
            assert mine <= recorded, "invented sessions are let be"
            assert link.state.unclaimed == mine, "operators see invented sessions alone"
            assert link.state.in_flight == 0, f"{box.name} holds what no start has"
        live_ids = {internal_id for _, internal_id in live}
        assert set(live.values()) <= self.may_live, "it was refused, and runs"
        assert not live_ids & self.given_up, "it was given up, and runs"
        assert not live_ids & self.stopped, "it was stopped, and runs"
        assert self.answered <= self.rows(), "it was answered with 201, and is gone"
        back = {key for key in self.ended if key in live.values()}
        assert not back, f"{back} had ended"
        owed = self.control.store.rows("SELECT * FROM stop_order WHERE confirmed_ms IS NULL")
        assert not owed, "a stop is owed"

    # Helpers of the rules.

    def wait(self, pause: float) -> None:
        self.run(asyncio.sleep(pause))
        self.note()

    def spoil(self, fates: list[Fate]) -> None:
        for box in self.boxes:
            box.line.fates.clear()
            box.line.fates.extend(fates)

    def note(self) -> None:
        """Record the answers since the last call."""
        for post in [post for post in self.posts if post.done()]:
            key = self.posts.pop(post)
            if post.cancelled() or post.result():
                self.may_live.add(key)
            if not post.cancelled() and post.result():
                self.answered.add(key)
        for delete in [delete for delete in self.deletes if delete.done()]:
            internal_id = self.deletes.pop(delete)
            if not delete.cancelled() and delete.result() and internal_id is not None:
                self.stopped.add(internal_id)
        if self.control.alive:
            ended = "SELECT account, id FROM session WHERE ended_ms IS NOT NULL"
            self.ended |= set(self.control.store.rows(f"{ended} AND NOT adopted_ended"))
            self.note_over()

    def forget(self, known: set[Key]) -> None:
        """Note that the database knows only these sessions; hosts report the others."""
        self.note()
        reported = {_key(each) for box in self.boxes for each in self.recorded(box)}
        self.answered = known | (self.answered & reported)
        self.may_live = {(account, key) for account in ACCOUNTS for key in IDS}
        self.stopped = set()
        self.ended = set()
        self.over = {}
        self.given_up = set()

    def note_over(self) -> None:
        for internal_id, times in self.over.items():
            assert times == self.starts_of(internal_id), f"{internal_id} was over, and starts"
        sql = "SELECT internal_id FROM stop_order WHERE confirmed_ms IS NOT NULL"
        for (internal_id,) in self.control.store.rows(sql):
            self.over.setdefault(internal_id, self.starts_of(internal_id))

    def starts_of(self, internal_id: str) -> int:
        call = ("start", container_name(internal_id))
        return sum(box.engine.calls.count(call) for box in self.boxes)

    def recorded(self, box: Box) -> list[Any]:
        if not box.is_up:
            return []
        return [each for each in box.live if each.internal_id not in self.invented]

    def rows(self) -> set[Key]:
        return set(self.control.store.rows("SELECT account, id FROM session"))


def _key(session: Any) -> Key:
    return session.spec.identity.account, session.spec.identity.session_id


def _explore(examples: int, steps: int, *, derandomize: bool) -> None:
    logging.disable(logging.CRITICAL)  # only useful to reproduce a failure
    try:
        run_state_machine_as_test(
            Convergence,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                derandomize=derandomize,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                phases=(Phase.generate, Phase.shrink),
                print_blob=True,
            ),
        )
    finally:
        logging.disable(logging.NOTSET)


def test_every_session_is_reconciled() -> None:
    _explore(20, 15, derandomize=True)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(600)  # Most of a minute on a quiet machine
def test_every_session_is_reconciled_over_many_runs() -> None:
    _explore(120, 30, derandomize=False)
