"""A private engine is separate from the machine's and leaves no trace."""

from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.demo_game import UDP_PORT
from tests.demo_game.player import udp_round_trip
from tests.docker.machine import Machine
from tests.support.private_engine import PrivateEngine, cgroups
from tests.support.private_network import run
from tests.support.real_engine import accepts


def traces(engine: PrivateEngine) -> list[str]:
    """Processes and kernel objects of this machine that belong to the engine."""
    left = [str(engine.folder)] if engine.folder.exists() else []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command, groups = (path / "cmdline").read_bytes(), (path / "cgroup").read_bytes()
        except OSError:
            continue  # it ended
        words = command + groups
        # One that ended, and that its parent has not waited for yet, has only its cgroups left.
        if command and engine.folder.name.encode() in words:
            left.append(words.replace(b"\0", b" ").decode(errors="replace"))
    for listing in (Path("/proc/mounts").read_text(), run("ip", "link")):
        left += [
            line
            for line in listing.splitlines()
            if engine.folder.name in line or engine.network.name in line
        ]
    left += map(str, cgroups(engine.folder.name))
    left += [name for name in run("ip", "netns").splitlines() if engine.network.name in name]
    return left


def test_a_game_outlives_its_engine_and_ends_with_the_context() -> None:
    engine = PrivateEngine()
    with ExitStack() as stack:
        machine = Machine(stack.enter_context(engine))
        stack.enter_context(closing(machine.client))
        published = {f"{UDP_PORT}/udp": None}
        container = machine.client.containers.run(machine.image, detach=True, ports=published)

        def plays() -> int:
            """Play a round; return the game's process."""
            container.reload()
            bound = container.ports[f"{UDP_PORT}/udp"]
            assert bound
            udp_round_trip(engine.network.address, int(bound[0]["HostPort"]))
            return int(container.attrs["State"]["Pid"])

        process = plays()
        engine.kill()
        engine.start()
        assert plays() == process
        engine.stop()
        engine.start()
        assert plays() == process
        assert len(traces(engine)) > 5
        sockets = engine.shim_sockets()
        assert sockets
        assert all(map(accepts, sockets))
    assert traces(engine) == []
    assert not any(path.exists() for path in sockets)


def test_an_engine_that_cannot_start_leaves_nothing() -> None:
    engine = PrivateEngine({"no-such-setting": True})
    with pytest.raises(RuntimeError, match="no-such-setting"), engine:
        pass
    assert traces(engine) == []
