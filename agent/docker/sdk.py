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
from docker.transport.unixconn import UnixHTTPAdapter, UnixHTTPConnection, UnixHTTPConnectionPool

from agent.docker.errors import Call, error_of_answer, error_of_connection
from agent.docker.facts import MIN_API
from agent.domain.errors import EngineError


class _Connection(UnixHTTPConnection):
    """Closes its socket after an error; the SDK leaves that to the garbage collector."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(self.unix_socket)
        except OSError:
            self.close()
            raise


class _Pool(UnixHTTPConnectionPool):
    def _new_conn(self) -> Any:
        return _Connection(self.base_url, self.socket_path)


class _Adapter(UnixHTTPAdapter):
    def get_connection(self, url: Any, proxies: Any = None) -> Any:
        return self.pools.get(self.socket_path) or self._new_pool(url)

    def _new_pool(self, url: Any) -> _Pool:
        pool = self.pools[self.socket_path] = _Pool(url, self.socket_path, self.timeout, 1)
        return pool


@contextlib.contextmanager
def sdk_client(path: Path, call: Call, seconds: float) -> Iterator[docker.APIClient]:
    """A client with a timeout per request; converts its exceptions to AgentError."""
    client = docker.APIClient(f"unix://{path}", version=MIN_API)
    client.mount("http+docker://", _Adapter(f"http+unix://{path}"))
    client.timeout = seconds  # type: ignore[assignment]  # requests takes fractions
    try:
        yield client
    except docker.errors.APIError as error:
        raise error_of_answer(call, error.status_code or 0, str(error.explanation)) from error
    except (docker.errors.DockerException, KeyError, TypeError, ValueError) as error:
        raise EngineError(call.name, f"the engine's answer cannot be read: {error}") from error
    except OSError as error:  # the base class of requests' errors
        raise error_of_connection(call, error) from error
    finally:
        client.close()
