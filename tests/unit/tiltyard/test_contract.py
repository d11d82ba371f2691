"""Tests of the types that both programs share."""

from dataclasses import fields, replace

import pytest

from tiltyard.contract import (
    Capability,
    Identity,
    NetworkMode,
    PortRequest,
    Protocol,
    Resources,
    SessionSpec,
    shape_key,
)

SPEC = SessionSpec(
    identity=Identity(
        account="acme",
        session_id="match-1",
        application="arena",
        tag="1.0",
        location="eu",
        labels={"mode": "ranked"},
        external_id="42",
        ticket="00ff",
    ),
    image="registry.example/arena@sha256:" + "0" * 64,
    network_mode=NetworkMode.BRIDGE,
    reservation=Resources(nano_cpus=10**9, memory_bytes=2**30),
    limits=Resources(nano_cpus=2 * 10**9, memory_bytes=2**31),
    args=("--map", "dust"),
    env={"MODE": "ranked"},
    restart=True,
    ttl=600,
    ports=(PortRequest(7777, Protocol.UDP), PortRequest(443, Protocol.TCP, tls=True)),
    disk_bytes=10**9,
    pids=1000,
    shm_bytes=2**28,
)
GPU = Resources(nano_cpus=10**9, memory_bytes=2**30, gpus=1)


def key_of(spec: SessionSpec) -> str:
    """Return the key of the shape of a spec that has one."""
    shape = spec.shape
    assert shape is not None
    return shape_key(shape)


def test_a_shape_keeps_what_a_container_has_from_its_creation() -> None:
    shape = SPEC.shape
    assert shape is not None
    assert shape.identity == Identity("acme", "", "", "", "")
    assert shape.image == SPEC.image
    assert shape.network_mode is SPEC.network_mode
    assert shape.reservation == SPEC.reservation
    assert shape.limits == SPEC.limits
    assert shape.ports == SPEC.ports
    assert shape.disk_bytes == SPEC.disk_bytes
    assert shape.pids == SPEC.pids
    assert shape.shm_bytes == SPEC.shm_bytes


def test_a_shape_has_nothing_that_a_start_hands_over_or_records() -> None:
    shape = SPEC.shape
    assert shape is not None
    assert shape.args == ()
    assert shape.env == {}
    assert not shape.restart
    assert shape.ttl is None


def test_a_container_serves_images_with_and_without_an_init_of_their_own() -> None:
    assert replace(SPEC, image_init=True).shape == SPEC.shape


def test_shape_leaves_out_how_a_session_is_stopped() -> None:
    asked = replace(SPEC, stop_signal="SIGINT", stop_grace=30.0)
    assert asked.shape == SPEC.shape


def test_a_shape_is_its_own_shape() -> None:
    shape = SPEC.shape
    assert shape is not None
    assert shape.shape == shape


@pytest.mark.parametrize(
    "other",
    [
        replace(SPEC, identity=Identity("acme", "match-2", "duel", "2.0", "us", {"a": "b"}, "7")),
        replace(SPEC, args=()),
        replace(SPEC, env={}),
        replace(SPEC, restart=False),
        replace(SPEC, ttl=None),
    ],
    ids=["identity", "args", "env", "restart", "ttl"],
)
def test_sessions_that_differ_in_what_is_handed_over_have_one_shape(other: SessionSpec) -> None:
    assert other.shape == SPEC.shape
    assert key_of(other) == key_of(SPEC)


@pytest.mark.parametrize(
    "other",
    [
        replace(SPEC, identity=replace(SPEC.identity, account="rival")),
        replace(SPEC, image="registry.example/arena@sha256:" + "1" * 64),
        replace(SPEC, network_mode=NetworkMode.HOST),
        replace(SPEC, reservation=Resources(nano_cpus=1, memory_bytes=2**30)),
        replace(SPEC, reservation=Resources(nano_cpus=10**9, memory_bytes=1)),
        replace(SPEC, limits=Resources(nano_cpus=1, memory_bytes=2**31)),
        replace(SPEC, limits=Resources(nano_cpus=2 * 10**9, memory_bytes=1)),
        replace(SPEC, ports=tuple(reversed(SPEC.ports))),
        replace(SPEC, ports=SPEC.ports[:1]),
        replace(SPEC, ports=(PortRequest(7777, Protocol.TCP), SPEC.ports[1])),
        replace(SPEC, ports=(SPEC.ports[0], PortRequest(443, Protocol.TCP))),
        replace(SPEC, disk_bytes=0),
        replace(SPEC, capabilities=(Capability.CHOWN,)),
        replace(SPEC, contiguous=True),
        replace(SPEC, ports=(replace(SPEC.ports[0], same=True), SPEC.ports[1])),
    ],
    ids=[
        "account",
        "image",
        "network mode",
        "reserved cores",
        "reserved memory",
        "limit of cores",
        "limit of memory",
        "order of the ports",
        "number of the ports",
        "protocol of a port",
        "TLS of a port",
        "limit of the disk",
        "capabilities",
        "neighbouring ports",
        "port that the program binds",
    ],
)
def test_sessions_that_differ_in_their_containers_have_other_shapes(other: SessionSpec) -> None:
    assert other.shape != SPEC.shape
    assert key_of(other) != key_of(SPEC)


@pytest.mark.parametrize(
    "spec",
    [
        replace(SPEC, reservation=GPU),
        replace(SPEC, limits=GPU),
        replace(SPEC, ports=(SPEC.ports[0], PortRequest(443, Protocol.TCP, pinned=30_443))),
    ],
    ids=["reserved GPU", "GPU", "pinned port"],
)
def test_a_session_that_needs_certain_parts_of_a_host_has_no_shape(spec: SessionSpec) -> None:
    assert spec.shape is None


OTHERS: dict[str, object] = {
    "identity": Identity("rival", "match-1", "arena", "1.0", "eu"),
    "image": "another",
    "network_mode": NetworkMode.HOST,
    "reservation": Resources(1, 1),
    "limits": Resources(1, 1),
    "args": (),
    "env": {},
    "restart": False,
    "ttl": None,
    "ports": (),
    "disk_bytes": 0,
    "pids": 0,
    "shm_bytes": 0,
    "stop_signal": "SIGINT",
    "stop_grace": 30.0,
    "capabilities": (Capability.CHOWN,),
    "image_init": True,
    "contiguous": True,
}
"""Another value of each field."""


@pytest.mark.parametrize("field", [field.name for field in fields(SessionSpec)])
def test_shapes_that_differ_have_different_keys(field: str) -> None:
    other = replace(SPEC, **{field: OTHERS[field]})  # type: ignore[arg-type]  # of each field
    assert (key_of(other) == key_of(SPEC)) == (other.shape == SPEC.shape)


def test_the_key_of_a_shape_does_not_change_between_versions() -> None:
    assert key_of(SPEC) == "d6883b42ee7dda0157503e10db25545c"
