"""Checks at the agent's start whether the engine is open to every user."""

import asyncio
from pathlib import Path

from agent.docker.answers import OPEN_LISTENER
from agent.docker.calls import Timeouts
from agent.docker.engine import DockerEngine
from agent.doctor.host_checks import is_world_accessible
from agent.doctor.host_facts import file_facts

ENGINE_SECONDS = 3.0  # Timeout of the engine call


def exposure(docker_socket: Path) -> str:
    """Describe how any user could start containers, and so become root; "" if none. Blocks.

    The agent does not start then, since its policy and limits could be bypassed. If the engine
    does not answer, only its settings are checked.
    """
    try:
        socket = file_facts(docker_socket)
    except OSError:
        socket = None
    if socket is not None and is_world_accessible(socket):
        return (
            f"{docker_socket} is open to all users of this host, which makes them root: "
            f"chmod 0660 {docker_socket}"
        )
    addresses = asyncio.run(_open_listeners(docker_socket))
    if not addresses:
        return ""
    return f"Docker Engine serves anyone on {', '.join(addresses)}; {OPEN_LISTENER}"


async def _open_listeners(docker_socket: Path) -> tuple[str, ...]:
    engine = DockerEngine(str(docker_socket), timeouts=Timeouts(read=ENGINE_SECONDS))
    try:
        return await engine.open_listeners()
    finally:
        await engine.close()
