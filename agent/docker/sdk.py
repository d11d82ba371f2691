"""Docker's SDK, for `doctor`. Only this imports `docker`.

The agent itself calls the engine by aiohttp: the SDK and requests take 10 MB and 0.1 s to import.
"""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import docker.errors

from agent.docker.errors import Call, error_of_answer, error_of_connection
from agent.docker.facts import MIN_API, api_of
from agent.domain.errors import EngineError


@contextlib.contextmanager
def sdk_client(
    path: Path, call: Call, seconds: float
) -> Iterator[tuple[docker.APIClient, dict[str, Any]]]:
    """A client with a timeout per request, and the engine's version; raises AgentError.

    The version of the API is negotiated as by the agent, since engines refuse those that are too
    old for them.
    """
    with _translated(call):
        with socket.socket(socket.AF_UNIX) as probe:  # the SDK leaks one that cannot connect
            probe.settimeout(seconds)
            probe.connect(str(path))
        with contextlib.closing(_client(path, MIN_API, seconds)) as first:
            version = dict(first.version(api_version=False))
        with contextlib.closing(_client(path, api_of(version), seconds)) as client:
            yield client, version


def _client(path: Path, api: str, seconds: float) -> docker.APIClient:
    client = docker.APIClient(f"unix://{path}", version=api)
    client.timeout = seconds  # type: ignore[assignment]  # requests takes fractions
    return client


@contextlib.contextmanager
def _translated(call: Call) -> Iterator[None]:
    """Convert the SDK's exceptions to AgentError."""
    try:
        yield
    except docker.errors.APIError as error:
        raise error_of_answer(call, error.status_code or 0, str(error.explanation)) from error
    except (docker.errors.DockerException, KeyError, TypeError, ValueError) as error:
        raise EngineError(call.name, f"the engine's answer cannot be read: {error}") from error
    except OSError as error:  # the base class of requests' errors
        raise error_of_connection(call, error) from error
