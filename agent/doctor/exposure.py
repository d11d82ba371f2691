"""Whether others than the agent can start containers: then it does not start.

Who may is root of this host and of every session. An agent that served all the same would look as
if its policy and its limits held. Blocks.
"""

from pathlib import Path

from agent.docker.answers import OPEN_LISTENER, open_listeners
from agent.docker.dockerd import daemon_pid, known_settings
from agent.doctor.gather import engine_facts
from agent.doctor.host_checks import is_world_accessible
from agent.doctor.host_facts import file_facts
from agent.domain.errors import AgentError

ANSWER_SECONDS = 3.0
"""An engine that hangs delays the agent's start at most this long."""


def exposure(docker_socket: Path) -> str:
    """Describe how anyone could start containers, with a hint; None if that is not known.

    An engine that does not answer is not waited for: its settings alone count. What it warns of
    shows among the warnings of `status` when it does answer.
    """
    try:
        socket = file_facts(docker_socket)
    except OSError:
        socket = None
    if socket is not None and is_world_accessible(socket):
        return (
            f"{docker_socket} is open to everybody on this host, who are root by it: "
            f"chmod 0660 {docker_socket}"
        )
    try:
        info = engine_facts(docker_socket, ANSWER_SECONDS).info
    except AgentError:
        info = {}
    addresses = open_listeners(info, known_settings(daemon_pid(str(docker_socket))))
    if not addresses:
        return ""
    return f"Docker Engine serves anyone on {', '.join(addresses)}; {OPEN_LISTENER}"
