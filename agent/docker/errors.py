"""Convert errors of Docker Engine: by call and status, and only without those by wording. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from agent.docker.wording import Meaning, Parts, find
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
    new_name: str = ""
    changes: bool = False


class RemovalInProgressError(EngineError):
    """Another removal of the same container has not ended yet."""


class PartMissingError(EngineError):
    """The container or something that it needs is missing; an inspect shows which."""


def already_so(call: Call, status: int) -> bool:
    """True if an error only means that the desired state is reached already."""
    return (call.name, status) in _ALREADY_SO


def error_of_answer(call: Call, status: int, message: str) -> AgentError:
    """Convert an error status of the engine, or an error within a stream."""
    error = _error_of_status(call, status, short(message.strip()))
    if error is not None:
        return error
    if status == 404 and call.container:
        return ContainerGoneError(call.container)
    return _error_of_text(call, message.strip() or f"status {status}")


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


_ALSO_SAID_OF = "if no disk is full: a limit on keys, inotify watches, cgroups, IPC or mounts"

_ALREADY_SO = frozenset(
    {
        ("kill", 409),
        ("remove", 404),
        ("remove-image", 404),
        ("rename", 400),  # it has the name
    }
)

_NEVER_SENT = (FileNotFoundError, ConnectionRefusedError, PermissionError, BlockingIOError)
"""Connection failures before a request was sent."""


def _error_of_status(call: Call, status: int, cause: str) -> AgentError | None:
    """The error of a call whose status alone says what has failed, else None."""
    error: AgentError | None = None
    match call.name, status:
        case "inspect-image" | "create", 404:
            error = ImageMissingError(call.image)
        case "create", 409:
            error = ContainerExistsError(call.container)
        case "rename", 409:
            error = ContainerExistsError(call.new_name)
        case "start", 404:
            error = PartMissingError(call.name, cause)
        case "logs", 409:  # It is being removed
            error = ContainerGoneError(call.container)
        case "archive", 404:
            error = PathNotFoundError(call.path)
        case "remove", 409:
            error = RemovalInProgressError(call.name, cause)
        case "remove-image", 409:
            error = ImageInUseError(call.image, cause)
    return error


def _error_of_text(call: Call, text: str) -> AgentError:
    found = find(call.name, _without_names(call.image, text))
    if found is None:
        return EngineError(call.name, short(text))
    meaning, parts = found
    return _error_of_meaning(call, meaning, short(text), parts)


def _error_of_meaning(call: Call, meaning: Meaning, cause: str, parts: Parts) -> AgentError:
    """The error of a call that failed with a text of this meaning."""
    match meaning:
        case Meaning.DISK_FULL:
            error: AgentError = DiskFullError(STORAGE, cause)
        case Meaning.NO_SPACE:
            error = EngineError(call.name, f"{cause} ({_ALSO_SAID_OF})")
        case Meaning.PORT_TAKEN:
            error = PortTakenError(parts.get("protocol", ""), int(parts["port"]))
        case Meaning.FIREWALL:
            error = FirewallFailedError(call.name, cause)
        case Meaning.CANNOT_RUN:
            error = ImageCannotRunError(parts.get("cause") or cause)
        case Meaning.IN_THE_WAY:
            error = ImageCannotRunError(f"it has something of its own at {parts['path']}")
        case Meaning.NO_PATH:
            error = PathNotFoundError(call.path)
        case _:
            error = _error_of_registry(call, meaning, cause)
    return error


def _error_of_registry(call: Call, meaning: Meaning, cause: str) -> AgentError:
    """The error of a pull that its registry has failed."""
    match meaning:
        case Meaning.REGISTRY_REFUSES:
            error: AgentError = RegistryRefusedError(call.image, cause)
        case Meaning.IMAGE_NOT_FOUND:
            error = ImageNotFoundError(call.image)
        case Meaning.REGISTRY_LATE:
            error = RegistryTimeoutError(call.image, cause)
        case Meaning.REGISTRY_FAILS:
            error = RegistryUnavailableError(call.image, cause)
        case _:
            error = EngineError(call.name, cause)
    return error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes, outermost first."""
    while error is not None:
        yield error
        inner = next((part for part in error.args if isinstance(part, BaseException)), None)
        error = inner or error.__cause__ or error.__context__


def _without_names(image: str, text: str) -> str:
    """Remove the caller's names: a repository may be called `timeout`."""
    if not image:
        return text
    host, _, repository = image.partition("@")[0].partition("/")
    return text.replace(f"{host}/{repository}", "").replace(f"/v2/{repository}/", "/")


def short(text: str, most: int = _MAX_CAUSE) -> str:
    """Return a text, or the `most` first characters of a longer one."""
    return text if len(text) <= most else f"{text[:most]}…"
