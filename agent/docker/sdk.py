"""Docker's SDK, for `doctor`. Only this imports `docker`.

The agent itself calls the engine by aiohttp: the SDK and requests take 10 MB and 0.1 s to import.
"""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import docker
import docker.errors

from agent.docker.errors import Call, error_of_answer, error_of_connection
from agent.docker.facts import MIN_API
from agent.domain.errors import EngineError


@contextlib.contextmanager
def sdk_client(path: Path, call: Call, seconds: float) -> Iterator[docker.APIClient]:
    """A client with a timeout per request; converts its exceptions to AgentError."""
    client = docker.APIClient(f"unix://{path}", version=MIN_API)
    client.timeout = seconds  # type: ignore[assignment]  # requests takes fractions
    try:
        with socket.socket(socket.AF_UNIX) as probe:  # the SDK leaks one that cannot connect
            probe.settimeout(seconds)
            probe.connect(str(path))
        yield client
    except docker.errors.APIError as error:
        raise error_of_answer(call, error.status_code or 0, str(error.explanation)) from error
    except (docker.errors.DockerException, KeyError, TypeError, ValueError) as error:
        raise EngineError(call.name, f"the engine's answer cannot be read: {error}") from error
    except OSError as error:  # the base class of requests' errors
        raise error_of_connection(call, error) from error
    finally:
        client.close()
