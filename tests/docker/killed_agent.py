"""Agents that a test kills at a given step and restarts, also with a warm pool."""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from tests.docker.machine import Agent, identity
from tests.docker.stack import PATIENCE, eventually
from tests.faults.real_host import listed
from tiltyard.agent.v1 import agent_pb2 as pb

_LINE = re.compile(rb"(\d{6,}) (\S+) (.*)")
_KILLED = -9
POOL = "aaaaaaaa-0000-4000-8000-000000000000"


class LogLine(NamedTuple):
    """A line of the demo game."""

    number: int
    time: str
    text: str


@contextlib.contextmanager
def or_else(code: grpc.StatusCode) -> Iterator[None]:
    """Allow the calls in the block to fail with this code."""
    try:
        yield
    except grpc.RpcError as error:
        if error.code() is not code:
            raise


class KilledAgent(Agent):
    """One agent, over all its incarnations."""

    def break_at(self, step: str, action: str = "kill") -> None:
        """Make the agent kill itself by SIGKILL at a step, from now on."""
        self.settings["failpoint"] = f"{step}:{action}"
        self.come_back_as_it_is()

    def come_back(self) -> None:
        """Restart the agent without failpoints; kills a running one."""
        self.settings["failpoint"] = ""
        self.come_back_as_it_is()

    def come_back_as_it_is(self) -> None:
        channel = self._channel
        self.kill()
        self.start()
        channel.close()  # calls on it have ended with the agent

    def await_kill(self, where: str) -> None:
        """Wait until the agent has killed itself."""
        eventually(lambda: self.process.returncode == _KILLED, f"it is killed at {where}")

    def known(self) -> set[str]:
        """The internal ids of all sessions that the agent knows."""
        return {session.internal_id for session in listed(self._stub)}

    def discard(self, session: pb.Session) -> None:
        """End and remove a session, and retry until it is gone."""
        request = pb.StopSessionRequest(internal_id=session.internal_id, discard=True)
        with or_else(grpc.StatusCode.NOT_FOUND):
            self._stub.StopSession(request, timeout=PATIENCE)

    def stopping(self, session: pb.Session, timeout: float | None = PATIENCE) -> Any:
        """A call in progress that stops a session."""
        request = pb.StopSessionRequest(internal_id=session.internal_id)
        return self._stub.StopSession.future(request, timeout=timeout)

    def following(self, session: pb.Session, timeout: float | None = PATIENCE) -> Any:
        """A call in progress that follows a log."""
        request = pb.StreamLogsRequest(internal_id=session.internal_id, follow=True)
        return self._stub.StreamLogs(request, timeout=timeout)

    def until_sealed(self, session: pb.Session) -> pb.Session:
        """Wait until the session has ended and its log is sealed."""
        eventually(lambda: self.session(session).log_sealed, "its log is sealed")
        return self.session(session)

    def log(self, session: pb.Session) -> list[LogLine]:
        """The whole log of a game."""
        request = pb.StreamLogsRequest(internal_id=session.internal_id)
        whole = b"".join(part.data for part in self._stub.StreamLogs(request, timeout=PATIENCE))
        found = [_LINE.fullmatch(line) for line in whole.splitlines()]
        assert all(found), "a line was torn"
        return [
            LogLine(int(line[1]), line[2].decode(), line[3].decode()) for line in found if line
        ]

    def report(self, session: pb.Session) -> pb.Report:
        request = pb.GetReportRequest(internal_id=session.internal_id)
        return self._stub.GetReport(request, timeout=PATIENCE).report

    def fetch(self, session: pb.Session, path: str) -> Any:
        """A call in progress that reads an artifact."""
        request = pb.FetchArtifactRequest(internal_id=session.internal_id, path=path)
        return self._stub.FetchArtifact(request, timeout=PATIENCE)

    def pull(self, image: str) -> None:
        for _ in self._stub.PullImage(pb.PullImageRequest(image=image), timeout=PATIENCE):
            continue

    def remove_image(self, image: str) -> None:
        self._stub.RemoveImage(pb.RemoveImageRequest(image=image), timeout=PATIENCE)

    def removing(self, image: str) -> Any:
        """A call in progress that removes an image."""
        return self._stub.RemoveImage.future(pb.RemoveImageRequest(image=image), timeout=PATIENCE)

    def images(self) -> set[str]:
        parts = self._stub.ListImages(pb.ListImagesRequest(), timeout=PATIENCE)
        return {image.image for part in parts for image in part.images}


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
