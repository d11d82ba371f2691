from dataclasses import replace
from typing import Any

import pytest

from agent.docker.container_config import container_config
from agent.domain.engine import ContainerSpec
from agent.domain.session import Port
from tiltyard.contract import NetworkMode, Protocol, Resources

MEBIBYTE = 2**20

SPEC = ContainerSpec(
    internal_id="0123abcd",
    agent_id="agent-1",
    image="registry.test/game@sha256:" + "a" * 64,
    args=("--map", "$HOME; rm -rf /"),
    env={"B": "2", "A": "1=\n"},
    network_mode=NetworkMode.BRIDGE,
    ports=(
        Port(container=7777, protocol=Protocol.UDP, host=20000),
        Port(container=7777, protocol=Protocol.TCP, host=20001),
        Port(container=7777, protocol=Protocol.TCP, host=20002),
    ),
    bind_address="192.0.2.1",
    reservation=Resources(nano_cpus=10**9 // 2, memory_bytes=64 * MEBIBYTE),
    limits=Resources(nano_cpus=10**9, memory_bytes=128 * MEBIBYTE),
    public_dir="/var/lib/tiltyard/sessions/0123abcd/public",
    record='{"format": 1}',
)

GOLDEN: dict[str, Any] = {
    "Image": "registry.test/game@sha256:" + "a" * 64,
    "Cmd": ["--map", "$HOME; rm -rf /"],
    "Env": ["A=1=\n", "B=2"],
    "Labels": {
        "io.tiltyard.agent": "agent-1",
        "io.tiltyard.session": "0123abcd",
        "io.tiltyard.record": '{"format": 1}',
    },
    "ExposedPorts": {"7777/udp": {}, "7777/tcp": {}},
    "Healthcheck": {"Test": ["NONE"]},
    "Tty": False,
    "OpenStdin": False,
    "HostConfig": {
        "Init": True,
        "AutoRemove": False,
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "Privileged": False,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "LogConfig": {
            "Type": "local",
            "Config": {"max-size": "67108864", "max-file": "2", "compress": "false"},
        },
        "Memory": 128 * MEBIBYTE,
        "MemorySwap": 128 * MEBIBYTE,
        "MemoryReservation": 64 * MEBIBYTE,
        "NanoCpus": 10**9,
        "CpuShares": 512,
        "PidsLimit": 512,
        "Ulimits": [
            {"Name": "core", "Soft": 0, "Hard": 0},
            {"Name": "nofile", "Soft": 20000, "Hard": 20000},
        ],
        "DeviceRequests": [],
        "NetworkMode": "bridge",
        "PortBindings": {
            "7777/udp": [{"HostIp": "192.0.2.1", "HostPort": "20000"}],
            "7777/tcp": [
                {"HostIp": "192.0.2.1", "HostPort": "20001"},
                {"HostIp": "192.0.2.1", "HostPort": "20002"},
            ],
        },
        "PublishAllPorts": False,
        "Mounts": [
            {
                "Type": "bind",
                "Source": "/var/lib/tiltyard/sessions/0123abcd/public",
                "Target": "/run/tiltyard",
                "ReadOnly": True,
                "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
            }
        ],
    },
}


def made(
    spec: ContainerSpec, *, nofile: int | None = 20000, has_layer_quota: bool = False
) -> dict[str, Any]:
    return container_config(
        spec, cpus=4, nofile=nofile, network="bridge", has_layer_quota=has_layer_quota
    )


def golden(**host_config: object) -> dict[str, Any]:
    return GOLDEN | {"HostConfig": GOLDEN["HostConfig"] | host_config}


def test_the_whole_body_on_a_bridge() -> None:
    assert made(SPEC) == GOLDEN


def test_the_host_network_publishes_nothing() -> None:
    body = made(replace(SPEC, network_mode=NetworkMode.HOST))
    assert body == golden(NetworkMode="host", PortBindings={}) | {"ExposedPorts": {}}


def test_gpus_are_asked_for_by_id() -> None:
    request = {"Driver": "nvidia", "DeviceIDs": ["GPU-1", "GPU-2"], "Capabilities": [["gpu"]]}
    body = made(replace(SPEC, gpu_ids=("GPU-1", "GPU-2")))
    assert body == golden(DeviceRequests=[request])


def test_an_unknown_limit_of_open_files_is_not_sent() -> None:
    assert made(SPEC, nofile=None) == golden(Ulimits=[{"Name": "core", "Soft": 0, "Hard": 0}])


def test_another_network() -> None:
    body = container_config(SPEC, cpus=4, nofile=20000, network="tiltyard0", has_layer_quota=False)
    assert body == golden(NetworkMode="tiltyard0")


def test_an_engine_that_can_bounds_the_layer_above_the_limit() -> None:
    spec = replace(SPEC, disk_bytes=2**30)
    assert made(spec) == GOLDEN
    size = {"size": str(2**30 + 2**27)}
    assert made(spec, has_layer_quota=True) == golden(StorageOpt=size)
    assert made(SPEC, has_layer_quota=True) == GOLDEN


def test_without_arguments_the_image_decides() -> None:
    assert made(replace(SPEC, args=())) == GOLDEN | {"Cmd": None}


@pytest.mark.parametrize(
    ("limit", "sent"), [(8 * 10**9, 4 * 10**9), (10**9, 10**9), (1, 10**7), (0, 0)]
)
def test_cores_are_kept_to_what_the_machine_can_give(limit: int, sent: int) -> None:
    spec = replace(SPEC, limits=replace(SPEC.limits, nano_cpus=limit))
    assert made(spec) == golden(NanoCpus=sent)


@pytest.mark.parametrize(
    ("reserved", "shares"), [(0, 2), (10**6, 2), (2 * 10**9, 2048), (10**13, 2**18)]
)
def test_the_weight_is_that_of_the_reservation(reserved: int, shares: int) -> None:
    spec = replace(SPEC, reservation=replace(SPEC.reservation, nano_cpus=reserved))
    assert made(spec) == golden(CpuShares=shares)


@pytest.mark.parametrize(
    ("reserved", "limit", "sent"),
    [
        (256 * MEBIBYTE, 128 * MEBIBYTE, (128 * MEBIBYTE, 128 * MEBIBYTE)),
        (0, 1, (6 * MEBIBYTE, 0)),
        (64 * MEBIBYTE, 0, (0, 64 * MEBIBYTE)),
    ],
)
def test_swap_is_never_added_and_no_more_is_reserved_than_allowed(
    reserved: int, limit: int, sent: tuple[int, int]
) -> None:
    spec = replace(
        SPEC,
        limits=replace(SPEC.limits, memory_bytes=limit),
        reservation=replace(SPEC.reservation, memory_bytes=reserved),
    )
    memory, reservation = sent
    wanted = golden(Memory=memory, MemorySwap=memory, MemoryReservation=reservation)
    assert made(spec) == wanted
