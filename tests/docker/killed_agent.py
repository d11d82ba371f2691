"""An agent that a test kills at a given step and restarts."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import grpc

from tests.docker.machine import Agent
from tests.docker.stack import PATIENCE, eventually
from tests.faults.real_host import listed
from tiltyard.agent.v1 import agent_pb2 as pb

_LINE = re.compile(rb"(\d{6,}) (\S+) (.*)")
_KILLED = -9


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

    def stopping(self, session: pb.Session) -> Any:
        """A call in progress that stops a session."""
        request = pb.StopSessionRequest(internal_id=session.internal_id)
        return self._stub.StopSession.future(request, timeout=PATIENCE)

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
