"""Error messages of Docker, mostly of 20.10.24, 26.1.5 or 28.5.2, and their meaning."""

import pytest

from agent.docker.errors import (
    Call,
    RemovalInProgressError,
    already_so,
    error_of_answer,
    error_of_connection,
    error_of_pull,
)
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
    ImageMissingError,
    ImageNotFoundError,
    PathNotFoundError,
    PortTakenError,
    RegistryRefusedError,
    RegistryTimeoutError,
    RegistryUnavailableError,
)

IMAGE = "registry.test/game@sha256:" + "a" * 64
CREATE = Call("create", container="tiltyard-x", image=IMAGE, changes=True)
START = Call("start", container="tiltyard-x", changes=True)
ARCHIVE = Call("archive", container="tiltyard-x", path="/data")

EXTERNAL = "driver failed programming external connectivity on endpoint tiltyard-x (7ec8): "
SHIM = (
    "failed to create shim task: OCI runtime create failed: runc create failed: "
    "unable to start container process: "
)


NAME_TAKEN = 'Conflict. The container name "/tiltyard-x" is already in use by container "7c2".'
NO_SOURCE = 'invalid mount config for type "bind": bind source path does not exist: /x'
UDP_TAKEN = f"{EXTERNAL}listen udp4 0.0.0.0:30001: bind: address already in use"
IPTABLES = (
    f"{EXTERNAL} (iptables failed: iptables --wait -t nat -A DOCKER -p udp -d 0/0 --dport 20000 "
    "-j DNAT --to-destination 172.17.0.2:7777 ! -i docker0: iptables: No chain/target/match by "
    "that name.\n (exit status 1))"
)
LOCKED = "Another app is currently holding the xtables lock; waiting (1s) for it to exit"
HOST_PORT = (
    "failed to bind host port for 0.0.0.0:30003:172.17.0.2:7777/udp: address already in use"
)
NO_PROGRAM = f'{SHIM}exec: "game": executable file not found in $PATH: unknown'
BAD_FORMAT = f"{SHIM}exec /game: exec format error: unknown"
NO_USER = "unable to find user nobody: no matching entries in passwd file"
CIRCLE = "evalSymlinksInScope: too many links in /var/lib/docker/overlay2/8a86/merged/data"
DEAD = "can not get logs from container which is dead or marked for removal"
REMOVE = Call("remove", container="tiltyard-x")
REMOVING = "removal of container x is already in progress"
NO_DIRECTORY = Call("archive", container="tiltyard-x", path="/not a directory")


@pytest.mark.parametrize(
    ("call", "status", "message", "error"),
    [
        (CREATE, 404, f"No such image: {IMAGE}", ImageMissingError(IMAGE)),
        (CREATE, 409, NAME_TAKEN, ContainerExistsError("tiltyard-x")),
        (
            CREATE,
            400,
            "No command specified",
            ImageCannotRunError("it names no command and none is given"),
        ),
        (CREATE, 500, "mkdir /var/lib/docker/x: no space left on device", DiskFullError("", "")),
        (CREATE, 400, NO_SOURCE, EngineError("create", "")),
        (START, 404, "No such container: tiltyard-x", ContainerGoneError("tiltyard-x")),
        (
            START,
            500,
            "Bind for 0.0.0.0:30000 failed: port is already allocated",
            PortTakenError("", 30000),
        ),
        (START, 500, UDP_TAKEN, PortTakenError("udp", 30001)),
        (START, 500, HOST_PORT, PortTakenError("udp", 30003)),
        (START, 500, "address already in use", PortTakenError("", 0)),
        (REMOVE, 409, REMOVING, RemovalInProgressError("remove", "")),
        (REMOVE, 409, "conflict", EngineError("remove", "")),
        (REMOVE, 500, REMOVING, EngineError("remove", "")),
        (START, 500, IPTABLES, FirewallFailedError("start", "")),
        (START, 500, LOCKED, FirewallFailedError("start", "")),
        (START, 400, NO_PROGRAM, ImageCannotRunError("game: executable file not found")),
        (START, 400, BAD_FORMAT, ImageCannotRunError("/game: exec format error")),
        (START, 400, NO_USER, ImageCannotRunError("unable to find user nobody")),
        (START, 500, "open /var/run/docker/netns/x: permission denied", EngineError("start", "")),
        (ARCHIVE, 404, "worded in another way", PathNotFoundError("/data")),
        (ARCHIVE, 500, "lstat /data: not a directory", PathNotFoundError("/data")),
        (ARCHIVE, 500, CIRCLE, PathNotFoundError("/data")),  # 20.10
        (
            ARCHIVE,
            500,
            "lstat /data: too many levels of symbolic links",
            PathNotFoundError("/data"),
        ),  # 26.1 and 28.5
        (ARCHIVE, 500, "lstat /data: input/output error", EngineError("archive", "")),
        (
            NO_DIRECTORY,
            500,
            "lstat /not a directory: input/output error",
            EngineError("archive", ""),
        ),
        (Call("logs", container="tiltyard-x"), 409, DEAD, ContainerGoneError("tiltyard-x")),
        (Call("info"), 500, "", EngineError("info", "")),
    ],
)
def test_converts_error_answers(call: Call, status: int, message: str, error: AgentError) -> None:
    found = error_of_answer(call, status, f"{message}\n")
    assert type(found) is type(error)
    if not isinstance(error, EngineError | DiskFullError):
        assert str(found) == str(error)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (f"manifest for {IMAGE} not found: manifest unknown", ImageNotFoundError),
        ("error parsing HTTP 404 response body: invalid character 'c'", ImageNotFoundError),
        # Messages of 26.1 and 28.5 for HTML answers.
        ("unknown: <h1>404</h1>", RegistryUnavailableError),
        (
            "pull access denied for x, repository does not exist or may … denied: <h1>",
            RegistryRefusedError,
        ),
        ("error parsing HTTP 403 response body: invalid character 'c'", RegistryRefusedError),
        ("error parsing HTTP 429 response body: invalid character 'c'", RegistryUnavailableError),
        ("unauthorized: authentication required", RegistryRefusedError),
        ("toomanyrequests: you have reached your pull rate limit", RegistryUnavailableError),
        ("dial tcp 127.0.0.1:1: connect: connection refused", RegistryUnavailableError),
        ("filesystem layer verification failed for digest sha256:aaaa", RegistryUnavailableError),
        ("tls: failed to verify certificate: x509: unknown authority", RegistryUnavailableError),
        ("net/http: TLS handshake timeout", RegistryTimeoutError),
        ("write /var/lib/docker/tmp/x: no space left on device", DiskFullError),
        ("no matching manifest for linux/amd64 in the manifest list entries", ImageCannotRunError),
        ("failed to register layer: Error processing tar file(exit status 1)", EngineError),
    ],
)
def test_converts_failed_pulls(message: str, kind: type[AgentError]) -> None:
    assert type(error_of_pull(IMAGE, message)) is kind


@pytest.mark.parametrize("form", ["pulling {image}: EOF", 'Get "https://{url}": EOF'])
def test_ignores_image_name_in_message(form: str) -> None:
    image = f"registry.test/timeout/unauthorized@sha256:{'a' * 64}"
    url = "registry.test/v2/timeout/unauthorized/manifests/sha256:aa"
    assert (
        type(error_of_pull(image, form.format(image=image, url=url))) is RegistryUnavailableError
    )


def test_truncates_long_messages() -> None:
    error = error_of_answer(Call("info"), 500, "x" * 10_000)
    assert isinstance(error, EngineError)
    assert len(error.cause) < 400


def test_detects_desired_state_in_error() -> None:
    kill, remove = Call("kill", container="x"), Call("remove", container="x")
    assert already_so(kill, 409, "Cannot kill container: x: Container 0ff is not running")
    assert not already_so(kill, 404, "Cannot kill container: x: No such container: x")
    assert already_so(remove, 404, "No such container: x")
    assert not already_so(remove, 500, "device or resource busy")


@pytest.mark.parametrize("changes", [True, False])
def test_a_broken_connection_leaves_a_change_unknown(*, changes: bool) -> None:
    call = Call("start", changes=changes)
    refused = OSError("wrapped", ConnectionRefusedError(111, "Connection refused"))
    assert isinstance(error_of_connection(call, refused), EngineUnavailableError)
    cut = OSError("wrapped", ConnectionResetError(104, "Connection reset by peer"))
    kind = EngineTimeoutError if changes else EngineUnavailableError
    assert type(error_of_connection(call, cut)) is kind
    late = OSError("wrapped", TimeoutError("timed out"))
    assert isinstance(error_of_connection(call, late), EngineTimeoutError)
