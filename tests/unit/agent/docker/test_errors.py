"""What errors of the engine mean by their call and status; test_wording.py has their texts."""

import pytest

from agent.docker import errors as engine_errors
from agent.docker.errors import Call, error_of_answer, error_of_connection
from agent.domain import errors

Expected = errors.AgentError | type[errors.AgentError]
IMAGE = "registry.test/timeout/denied@sha256:" + "a" * 64
"""Its name is none of the registry's words."""


def call(name: str) -> Call:
    return Call(name, container="tiltyard-x", image=IMAGE, path="/data", new_name="tiltyard-new")


def assert_means(found: errors.AgentError, error: Expected, message: str) -> None:
    """Check the error, and that one without fields of its own shows the message."""
    assert type(found) is (error if isinstance(error, type) else type(error))
    if isinstance(error, errors.AgentError):
        assert str(found) == str(error)
    elif message:
        assert str(found).endswith(f": {message}")


@pytest.mark.parametrize("message", ["", "worded in another way", "No such container: x"])
@pytest.mark.parametrize(
    ("name", "status", "error"),
    [
        ("create", 404, errors.ImageMissingError(IMAGE)),
        ("create", 409, errors.ContainerExistsError("tiltyard-x")),
        ("create", 400, errors.EngineError),
        ("rename", 409, errors.ContainerExistsError("tiltyard-new")),
        ("rename", 404, errors.ContainerGoneError("tiltyard-x")),
        ("start", 404, engine_errors.PartMissingError),
        ("start", 409, errors.EngineError),
        ("inspect", 404, errors.ContainerGoneError("tiltyard-x")),
        ("kill", 404, errors.ContainerGoneError("tiltyard-x")),
        ("logs", 404, errors.ContainerGoneError("tiltyard-x")),
        ("logs", 409, errors.ContainerGoneError("tiltyard-x")),
        ("archive", 404, errors.PathNotFoundError("/data")),
        ("archive", 500, errors.EngineError),
        ("remove", 409, engine_errors.RemovalInProgressError),
        ("remove", 500, errors.EngineError),
        ("remove-image", 409, errors.ImageInUseError),
    ],
)
def test_call_and_status_decide_whatever_the_wording(
    name: str, status: int, message: str, error: Expected
) -> None:
    assert_means(error_of_answer(call(name), status, f"{message}\n"), error, message)


def test_not_found_without_a_container_is_an_engine_error() -> None:
    assert str(error_of_answer(Call("info"), 404, "")) == "cannot info: status 404"


def test_desired_state_is_detected_by_status() -> None:
    so = {("kill", 409), ("remove", 404), ("remove-image", 404), ("rename", 400)}
    for name in ("create", "start", "kill", "remove", "remove-image", "rename", "inspect", "logs"):
        for status in (400, 404, 409, 500):
            assert engine_errors.already_so(call(name), status) is ((name, status) in so)


NO_USER = "unable to find user x: no matching entries in passwd file"
REQUEST = 'Get "https://registry.test/v2/timeout/denied/x": EOF'
NO_MANIFEST = "no matching manifest for x"
LOCKED = "Another app is currently holding the xtables lock"
LISTEN = "listen udp4 0.0.0.0:30001: bind: address already in use"


@pytest.mark.parametrize(
    ("name", "message", "error"),
    [
        ("create", "mkdir /x: no space left on device", errors.DiskFullError),
        ("start", LISTEN, errors.PortTakenError("udp", 30001)),
        ("start", "Bind for :1 failed: port is already allocated", errors.PortTakenError("", 1)),
        ("start", LOCKED, errors.FirewallFailedError),
        ("start", NO_USER, errors.ImageCannotRunError("unable to find user x")),
        ("archive", "lstat /data: not a directory", errors.PathNotFoundError("/data")),
        ("archive", LISTEN, errors.EngineError),
        ("pull", "unauthorized: authentication required", errors.RegistryRefusedError),
        ("pull", "manifest unknown", errors.ImageNotFoundError(IMAGE)),
        ("pull", NO_MANIFEST, errors.ImageCannotRunError(NO_MANIFEST)),
        ("pull", "net/http: TLS handshake timeout", errors.RegistryTimeoutError),
        ("pull", "write /x: disk quota exceeded", errors.DiskFullError),
        ("pull", f"pulling {IMAGE}: EOF", errors.RegistryUnavailableError),
        ("pull", REQUEST, errors.RegistryUnavailableError),
        ("pull", "worded in another way", errors.EngineError),
    ],
)
def test_wording_decides_if_the_status_does_not(name: str, message: str, error: Expected) -> None:
    assert_means(error_of_answer(call(name), 500, message), error, message)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("dial tcp: lookup registry.test: no such host", errors.RegistryUnavailableError),
        (
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            errors.RegistryUnavailableError,
        ),
        ("http: server gave HTTP response to HTTPS client", errors.RegistryUnavailableError),
        ("dial tcp 192.0.2.1:443: i/o timeout", errors.RegistryTimeoutError),
        ("context deadline exceeded", errors.RegistryTimeoutError),
        (
            'Get "http://registry.test/v2/game/manifests/x": no basic auth credentials',
            errors.RegistryRefusedError,
        ),
        ("unknown blob", errors.ImageNotFoundError),
        ("repository name not known to registry", errors.ImageNotFoundError),
    ],
)
def test_failed_pull_is_reported_by_its_cause(
    message: str, error: type[errors.AgentError]
) -> None:
    assert type(error_of_answer(call("pull"), 500, message)) is error


def test_truncates_long_messages() -> None:
    error = error_of_answer(Call("info"), 500, "x" * 10_000)
    assert isinstance(error, errors.EngineError)
    assert len(error.cause) < 400


@pytest.mark.parametrize("changes", [True, False])
def test_a_broken_connection_leaves_a_change_unknown(*, changes: bool) -> None:
    call = Call("start", changes=changes)
    refused = OSError("wrapped", ConnectionRefusedError(111, "Connection refused"))
    assert isinstance(error_of_connection(call, refused), errors.EngineUnavailableError)
    cut = OSError("wrapped", ConnectionResetError(104, "Connection reset by peer"))
    kind = errors.EngineTimeoutError if changes else errors.EngineUnavailableError
    assert type(error_of_connection(call, cut)) is kind
    late = OSError("wrapped", TimeoutError("timed out"))
    assert isinstance(error_of_connection(call, late), errors.EngineTimeoutError)
