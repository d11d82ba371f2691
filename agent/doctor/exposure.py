"""Checks at the agent's start whether the engine is open to every user."""

from pathlib import Path

from agent.docker import sdk as docker_sdk
from agent.docker.answers import OPEN_LISTENER, open_listeners
from agent.docker.dockerd import daemon_pid, known_settings
from agent.docker.errors import Call
from agent.doctor.host_checks import is_world_accessible
from agent.doctor.host_facts import file_facts
from agent.domain.errors import AgentError

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
    clients = docker_sdk.Clients(str(docker_socket))
    try:
        with docker_sdk.translated(Call("info"), lambda: None):
            info = clients.mine(docker_sdk.MIN_API, ENGINE_SECONDS).info()
    except AgentError:
        info = {}
    finally:
        clients.close()
    addresses = open_listeners(info, known_settings(daemon_pid(str(docker_socket))))
    if not addresses:
        return ""
    return f"Docker Engine serves anyone on {', '.join(addresses)}; {OPEN_LISTENER}"
