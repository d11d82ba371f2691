"""The engine of a test's own: apart from the machine's, and gone without a trace."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container

from tests.demo_game import TCP_PORT, UDP_PORT, build_image
from tests.demo_game.player import tcp_greeting, udp_round_trip
from tests.support.harness import Registry
from tests.support.private_engine import PrivateEngine, cgroups
from tests.support.real_engine import accepts

pytestmark = [pytest.mark.docker, pytest.mark.registry, pytest.mark.root]


def traces(engine: PrivateEngine) -> list[str]:
    """Whatever of this machine still names the engine or belongs to it."""
    left = [str(engine.folder)] if engine.folder.exists() else []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes() + (path / "cgroup").read_bytes()
        except OSError:
            continue  # it ended
        if engine.folder.name.encode() in words:
            left.append(words.replace(b"\0", b" ").decode(errors="replace"))
    for listing in (Path("/proc/mounts").read_text(), command("ip", "link")):
        left += [
            line
            for line in listing.splitlines()
            if engine.folder.name in line or engine.namespace in line
        ]
    left += map(str, cgroups(engine.folder.name))
    left += [name for name in command("ip", "netns").splitlines() if engine.namespace in name]
    return left


def command(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=10).stdout


def shim_sockets(engine: PrivateEngine) -> list[Path]:
    """Sockets of its shims, which are in a folder that all of a machine's engines share."""
    addresses = (engine.folder / "containerd").rglob("address")
    return [Path(path.read_text().removeprefix("unix://")) for path in addresses]


class Game:
    """The demo game on a private engine."""

    def __init__(self, engine: PrivateEngine, client: docker.DockerClient) -> None:
        self.engine, self.client = engine, client
        with Registry(engine.host_address) as registry:
            image = build_image(engine.socket, registry.address)
            client.images.pull(image.reference)
            self.container: Container = client.containers.create(
                image.reference, ports={f"{UDP_PORT}/udp": None, f"{TCP_PORT}/tcp": None}
            )
        self.container.start()

    def plays(self) -> int:
        """Play a round; return the game's process."""
        self.container.reload()
        udp_round_trip(self.engine.engine_address, self._host_port(f"{UDP_PORT}/udp"))
        tcp_greeting(self.engine.engine_address, self._host_port(f"{TCP_PORT}/tcp"))
        return int(self.container.attrs["State"]["Pid"])

    def _host_port(self, port: str) -> int:
        published = self.container.ports[port]
        assert published
        return int(published[0]["HostPort"])


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def started(stack: ExitStack, engine: PrivateEngine) -> Game:
    stack.enter_context(engine)
    client = docker.DockerClient(base_url=f"unix://{engine.socket}", timeout=30)
    stack.enter_context(closing(client))
    return Game(engine, client)


def test_a_game_outlives_its_engine_and_ends_with_the_context(stack: ExitStack) -> None:
    engine = PrivateEngine()
    game = started(stack, engine)
    process = game.plays()
    engine.kill()
    engine.start()
    assert game.plays() == process
    engine.stop()
    engine.start()
    assert game.plays() == process
    assert len(traces(engine)) > 5
    sockets = shim_sockets(engine)
    assert sockets
    assert all(map(accepts, sockets))
    stack.close()
    assert traces(engine) == []
    assert not any(path.exists() for path in sockets)


def test_an_engine_that_cannot_start_leaves_nothing() -> None:
    engine = PrivateEngine({"no-such-setting": True})
    with pytest.raises(RuntimeError, match="no-such-setting"), engine:
        pass
    assert traces(engine) == []
