"""An agent with a warm pool and an intermittent control plane."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.docker.killed_agent import KilledAgent
from tests.docker.machine import identity
from tests.docker.stack import PATIENCE, eventually
from tests.faults.real_host import listed
from tiltyard.agent.v1 import agent_pb2 as pb

POOL = "aaaaaaaa-0000-4000-8000-000000000000"


class PoolAgent(KilledAgent):
    """One agent with one pool."""

    revision = 0

    def keep(self, size: int, *args: str, claim_signal: str = "", restart: bool = False) -> None:
        """Request this number of standbys."""
        self.revision += 1
        request = pb.SetWarmPoolRequest(
            revision=self.revision,
            pool_id=POOL,
            size=size,
            spec=self.spec(*args, restart=restart),
            claim_signal=claim_signal,
        )
        self._stub.SetWarmPool(request, timeout=PATIENCE)

    def standbys(self) -> list[pb.Session]:
        """Live standbys, oldest first."""
        return [each for each in listed(self._stub, live_only=True) if each.warm_pool == POOL]

    def ready(self) -> list[pb.Session]:
        found = self.standbys()
        return [each for each in found if each.HasField("ready_time") and not each.in_doubt]

    def until_ready(self, size: int) -> list[pb.Session]:
        """Wait for exactly `size` live standbys, all ready."""
        eventually(lambda: len(self.ready()) == len(self.standbys()) == size, f"{size} are ready")
        return self.ready()

    def claim(self, standby: pb.Session, session_id: str, *, again: bool = False) -> pb.Session:
        """Claim a standby as a session."""
        result = next(self.claiming(standby, session_id, again=again))
        assert result.HasField("session"), result
        return result.session

    def claiming(
        self, standby: pb.Session, session_id: str, *, again: bool = False
    ) -> Iterator[pb.ClaimResult]:
        """The result of a claim, which is sent at once."""
        claim = pb.Claim(
            internal_id=standby.internal_id,
            identity=identity(session_id),
            request_json=json.dumps({"args": ["--ignored"], "labels": {"who": session_id}}),
            again=again,
        )
        requests = iter([pb.ClaimSessionsRequest(claims=[claim])])
        responses = self._stub.ClaimSessions(requests, timeout=PATIENCE)
        return (response.results[0] for response in responses)

    def claim_lines(self, session: pb.Session) -> list[str]:
        """Wait for the game's log line about its claim."""

        def lines() -> list[str]:
            return [line.text for line in self.log(session) if line.text.startswith("SIGUSR1: ")]

        eventually(lambda: bool(lines()), "the game has logged its claim")
        return lines()

    def drain(self, *, draining: bool) -> None:
        self._stub.SetDrain(pb.SetDrainRequest(draining=draining), timeout=PATIENCE)

    def give_up(self, *sessions: pb.Session) -> None:
        """Remove the pool and end these sessions; nothing must be left."""
        self.keep(0)
        for session in sessions:
            self.discard(session)
        eventually(lambda: not self.containers(), "no container is left")
        eventually(lambda: not self.directories(), "no directory is left")


def seen_by(session: pb.Session) -> dict[str, Any]:
    """The metadata that a running game finds in its file system."""
    path = Path(f"/proc/{session.pid}/root/run/tiltyard/session.json")
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found
