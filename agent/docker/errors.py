"""Convert errors of Docker Engine: by call and status, and only without those by wording. Pure."""

from collections.abc import Callable, Iterator, Mapping
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
    make = _BY_STATUS.get((call.name, status))
    if make is not None:
        return make(call, short(message.strip()))
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


_ALREADY_SO = frozenset(
    {
        ("kill", 409),
        ("remove", 404),
        ("remove-image", 404),
        ("rename", 400),  # it has the name
    }
)

_BY_STATUS: Mapping[tuple[str, int], Callable[[Call, str], AgentError]] = {
    ("inspect-image", 404): lambda call, _: ImageMissingError(call.image),
    ("create", 404): lambda call, _: ImageMissingError(call.image),
    ("create", 409): lambda call, _: ContainerExistsError(call.container),
    ("rename", 409): lambda call, _: ContainerExistsError(call.new_name),
    ("start", 404): lambda call, cause: PartMissingError(call.name, cause),
    ("logs", 409): lambda call, _: ContainerGoneError(call.container),  # being removed
    ("archive", 404): lambda call, _: PathNotFoundError(call.path),
    ("remove", 409): lambda call, cause: RemovalInProgressError(call.name, cause),
    ("remove-image", 409): lambda call, cause: ImageInUseError(call.image, cause),
}

_BY_MEANING: Mapping[Meaning, Callable[[Call, str, Parts], AgentError]] = {
    Meaning.DISK_FULL: lambda _, cause, __: DiskFullError(STORAGE, cause),
    Meaning.PORT_TAKEN: lambda _, __, parts: PortTakenError(
        parts.get("protocol", ""), int(parts["port"])
    ),
    Meaning.FIREWALL: lambda call, cause, _: FirewallFailedError(call.name, cause),
    Meaning.CANNOT_RUN: lambda _, cause, parts: ImageCannotRunError(parts.get("cause") or cause),
    Meaning.IN_THE_WAY: lambda _, __, parts: ImageCannotRunError(
        f"it has something of its own at {parts['path']}"
    ),
    Meaning.NO_PATH: lambda call, _, __: PathNotFoundError(call.path),
    Meaning.REGISTRY_REFUSES: lambda call, cause, _: RegistryRefusedError(call.image, cause),
    Meaning.IMAGE_NOT_FOUND: lambda call, _, __: ImageNotFoundError(call.image),
    Meaning.REGISTRY_LATE: lambda call, cause, _: RegistryTimeoutError(call.image, cause),
    Meaning.REGISTRY_FAILS: lambda call, cause, _: RegistryUnavailableError(call.image, cause),
}

_NEVER_SENT = (FileNotFoundError, ConnectionRefusedError, PermissionError, BlockingIOError)
"""Connection failures before a request was sent."""


def _error_of_text(call: Call, text: str) -> AgentError:
    found = find(call.name, _without_names(call.image, text))
    if found is None:
        return EngineError(call.name, short(text))
    meaning, parts = found
    return _BY_MEANING[meaning](call, short(text), parts)


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
