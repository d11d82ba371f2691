"""Convert error messages of Docker Engine 20.10.24, 26.1.5 and 28.5.2. Pure."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.domain.errors import (
    AgentError,
    ContainerExistsError,
    ContainerGoneError,
    DiskFullError,
    EngineError,
    EngineTimeoutError,
    EngineUnavailableError,
    FirewallFailedError,
    ImageCannotRunError,
    ImageInUseError,
    ImageMissingError,
    ImageNotFoundError,
    PathNotFoundError,
    PortTakenError,
    RegistryRefusedError,
    RegistryTimeoutError,
    RegistryUnavailableError,
)

STORAGE = "the engine's storage"
"""The path in DiskFullError: the engine names an internal one or none."""

_MAX_CAUSE = 300  # Maximum characters of the engine's message, which may quote a whole request


@dataclass(frozen=True, slots=True)
class Call:
    """A call to the engine. `changes`: the outcome is unknown if the connection breaks."""

    name: str
    container: str = ""
    image: str = ""
    path: str = ""
    changes: bool = False


class RemovalInProgressError(EngineError):
    """Another removal of the same container has not ended yet."""


def error_of_answer(call: Call, status: int, message: str) -> AgentError:
    """Convert an error status of the engine."""
    text = message.strip()
    lower = text.lower()
    if _disk_full(lower):
        return DiskFullError(STORAGE, _short(text))
    if status == 404 and "no such container" in lower:
        return ContainerGoneError(call.container)
    if status == 404 and "no such image" in lower:
        return ImageMissingError(call.image)
    if status == 404 and call.name == "archive":
        return PathNotFoundError(call.path)
    refusal = _conflict(call, text) if status == 409 else None
    if refusal is None and call.name in _REFUSALS:
        refusal = _REFUSALS[call.name](call, text)
    return refusal or EngineError(call.name, _short(text) or f"status {status}")


def _conflict(call: Call, text: str) -> AgentError | None:
    if call.name == "remove-image":
        return ImageInUseError(call.image, _short(text))
    if call.name == "remove" and "already in progress" in text.lower():
        return RemovalInProgressError(call.name, _short(text))
    return None


def error_of_pull(image: str, message: str) -> AgentError:
    """Convert the error of a failed pull, from the status or the stream."""
    text = message.strip()
    lower = _without_names(image, text).lower()
    if _disk_full(lower):
        return DiskFullError(STORAGE, _short(text))
    for parts, make in _PULL_FAILURES:
        if any(part in lower for part in parts):
            return make(image, _short(text))
    return EngineError("pull", _short(text))


def error_of_connection(call: Call, error: BaseException) -> AgentError:
    """Convert a broken or stalled connection, after which a change may still take effect."""
    causes = list(_causes(error))
    never_sent = any(isinstance(cause, _NEVER_SENT) for cause in causes)
    if timed_out(error) or (call.changes and not never_sent):
        return EngineTimeoutError(call.name)
    reasons = (cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror)
    return EngineUnavailableError(next(reasons, "it closed the connection"))


def timed_out(error: BaseException) -> bool:
    """True if a connection timed out, even if the error is wrapped."""
    return any(isinstance(cause, TimeoutError) for cause in _causes(error))


def already_so(call: Call, status: int, message: str) -> bool:
    """True if an error only means that the desired state is reached already."""
    lower = message.lower()
    if call.name == "kill":
        return any(part in lower for part in _NOT_RUNNING)
    gone = {"remove": "no such container", "remove-image": "no such image"}.get(call.name)
    return gone is not None and status == 404 and gone in lower


_NOT_RUNNING = ("is not running", "process already finished", "no such process")

_REGISTRY_LIMITS = ("toomanyrequests", "error parsing http 429", "429 too many requests")
_REGISTRY_REFUSES = (
    "unauthorized",
    "authentication required",
    "no basic auth credentials",
    "access denied",  # also for a missing image
    "access to the resource is denied",
    "denied: ",
    "incorrect username or password",
    "error parsing http 401",
    "error parsing http 403",
)
_IMAGE_NOT_FOUND = (
    "manifest unknown",
    "name unknown",
    "repository name not known",
    "blob unknown",
    "unknown blob",
    "not found",
    "error parsing http 404",
)
_REGISTRY_LATE = (
    "timeout",  # TLS handshake, client, connection I/O
    "timed out",
    "deadline exceeded",
)
_REGISTRY_FAILS = (
    "connection refused",
    "connection reset",
    "no such host",
    "no route to host",
    "network is unreachable",
    "server misbehaving",
    "unexpected eof",
    ": eof",
    "x509:",
    "tls:",
    "http response to https client",
    "digest verification failed",
    "verification failed for digest",
    "unsupported manifest",
    "invalid character",  # malformed JSON
    "unexpected end of json input",
    "received unexpected http status",
    "unknown: ",  # not an error of the registry API: 26.1 and 28.5
    "error parsing http",
    "internal server error",
    "bad gateway",
    "service unavailable",
)

_TAKEN = ("port is already allocated", "address already in use")
_PORT_FORMS = (
    re.compile(r"listen (?P<protocol>tcp|udp)\d? \S*:(?P<port>\d+)"),
    re.compile(r"host port (?:for )?\S*?:(?P<port>\d+)(?::\S+)?/(?P<protocol>tcp|udp)"),
    re.compile(r"Bind for \S*:(?P<port>\d+) failed"),
)

_FIREWALL = ("iptables failed", "xtables lock")

_CANNOT_RUN = (
    "executable file not found",
    "no such file or directory",
    "permission denied",
    "exec format error",
    "is a directory",
)
_EXEC = re.compile(r"""exec(?:_linux\.go:\d+)?:? "?(?P<program>[^":]*)"?:""")
_NO_USER = re.compile(
    r"unable to find (?:user|group) [^:]*|no matching entries in (?:passwd|group)"
)
_PLATFORM = "does not match the specified platform"

_NEVER_SENT = (FileNotFoundError, ConnectionRefusedError, PermissionError, BlockingIOError)
"""Connection failures before a request was sent."""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes, outermost first."""
    while error is not None:
        yield error
        inner = next((part for part in error.args if isinstance(part, BaseException)), None)
        error = inner or error.__cause__ or error.__context__


def _create_refusal(call: Call, text: str) -> AgentError | None:
    lower = text.lower()
    if "is already in use by container" in lower:
        return ContainerExistsError(call.container)
    if "no command specified" in lower:
        return ImageCannotRunError("it names no command and none is given")
    return None


def _read_refusal(call: Call, text: str) -> AgentError | None:
    lower = text.lower()
    if "dead or marked for removal" in lower:
        return ContainerGoneError(call.container)
    lower = lower.replace(call.path.lower(), "")
    if call.name == "archive" and any(part in lower for part in _NO_PATH):
        return PathNotFoundError(call.path)
    return None


def _start_refusal(call: Call, text: str) -> AgentError | None:
    lower = text.lower()
    if any(part in lower for part in _TAKEN):
        found = next((match for form in _PORT_FORMS if (match := form.search(text))), None)
        named = found.groupdict() if found else {}
        return PortTakenError(named.get("protocol") or "", int(named.get("port", 0)))
    if any(part in lower for part in _FIREWALL):
        return FirewallFailedError(call.name, _short(text))
    if (user := _NO_USER.search(text)) is not None:
        return ImageCannotRunError(_short(user[0]))
    if _PLATFORM in lower:
        return ImageCannotRunError(_PLATFORM)
    program = _EXEC.search(text)
    cause = next((part for part in _CANNOT_RUN if part in lower), None)
    if program is None or cause is None:
        return None
    return ImageCannotRunError(f"{program['program'][:100]}: {cause}")


def _without_names(image: str, text: str) -> str:
    """Remove the caller's names: a repository may be called `timeout`."""
    host, _, repository = image.partition("@")[0].partition("/")
    return text.replace(f"{host}/{repository}", "").replace(f"/v2/{repository}/", "/")


def _disk_full(lower: str) -> bool:
    return "no space left on device" in lower or "disk quota exceeded" in lower


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CAUSE else f"{text[:_MAX_CAUSE]}…"


_NO_PATH = (
    "no such file or directory",
    "not a directory",
    "file name too long",
    "too many levels of symbolic links",  # symlink loop within a path: 26.1 and 28.5
    "too many links",  # symlink loop within or at the end of a path: 20.10
)
"""Messages for a missing path, with status 500; all but the last are the kernel's."""

_REFUSALS: Mapping[str, Callable[[Call, str], AgentError | None]] = {
    "create": _create_refusal,
    "start": _start_refusal,
    "logs": _read_refusal,
    "archive": _read_refusal,
}

_PULL_FAILURES: Sequence[tuple[Sequence[str], Callable[[str, str], AgentError]]] = (
    (_REGISTRY_LIMITS, RegistryUnavailableError),
    (_REGISTRY_REFUSES, RegistryRefusedError),
    (_IMAGE_NOT_FOUND, lambda image, _: ImageNotFoundError(image)),
    (("no matching manifest for",), lambda _, cause: ImageCannotRunError(cause)),
    (_REGISTRY_LATE, RegistryTimeoutError),
    (_REGISTRY_FAILS, RegistryUnavailableError),
)
"""Messages of failed pulls; the first match applies."""
