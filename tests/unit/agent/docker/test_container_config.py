from dataclasses import replace
from typing import Any

import pytest

from agent.docker.container_config import config_digest, container_config
from agent.docker.facts import DaemonFacts, EngineFacts, has_layer_quota
from agent.domain.containers.engine import ContainerSpec
from agent.domain.sessions.session import Port
from tests.support.agent.samples import a_container_spec
from tiltyard.contract import Capability, NetworkMode, Protocol, Resources

MEBIBYTE = 2**20

SPEC = a_container_spec(
    internal_id="0123abcd",
    agent_id="agent-1",
    image="registry.test/game@sha256:" + "a" * 64,
    init="/var/lib/tiltyard/init/0e5751c026e5",
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
    "Entrypoint": ["/run/tiltyard-init", "/run/tiltyard/.init"],
    "Labels": {
        "io.tiltyard.agent": "agent-1",
        "io.tiltyard.session": "0123abcd",
        "io.tiltyard.record": '{"format": 1}',
        "io.tiltyard.init": "0e5751c026e5",
    },
    "ExposedPorts": {"7777/udp": {}, "7777/tcp": {}},
    "Healthcheck": {"Test": ["NONE"]},
    "Tty": False,
    "OpenStdin": False,
    "HostConfig": {
        "Init": False,
        "AutoRemove": False,
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "Privileged": False,
        "CapDrop": ["ALL"],
        "CapAdd": [],
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
        "ShmSize": 64 * MEBIBYTE,
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
                "Source": "/var/lib/tiltyard/init/0e5751c026e5",
                "Target": "/run/tiltyard-init",
                "ReadOnly": True,
                "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
            },
            {
                "Type": "bind",
                "Source": "/var/lib/tiltyard/sessions/0123abcd/public",
                "Target": "/run/tiltyard",
                "ReadOnly": True,
                "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
            },
        ],
    },
}


FACTS = EngineFacts(
    api="1.41",
    cpus=4,
    network="bridge",
    runc="",
    daemon=DaemonFacts(nofile=20000, settings={}, mounts=""),
    has_layer_quota=False,
)


def made(spec: ContainerSpec, *, files: int | None = 20000, quota: bool = False) -> dict[str, Any]:
    daemon = replace(FACTS.daemon, nofile=files)
    return container_config(spec, replace(FACTS, daemon=daemon, has_layer_quota=quota))


def golden(**host_config: object) -> dict[str, Any]:
    return GOLDEN | {"HostConfig": GOLDEN["HostConfig"] | host_config}


def test_the_whole_body_on_a_bridge() -> None:
    assert made(SPEC) == GOLDEN


def test_adds_only_the_capabilities_that_are_asked_for() -> None:
    body = made(replace(SPEC, capabilities=(Capability.CHOWN, Capability.SETUID)))
    assert body == golden(CapAdd=["CHOWN", "SETUID"])


def test_the_host_network_publishes_nothing() -> None:
    body = made(replace(SPEC, network_mode=NetworkMode.HOST))
    assert body == golden(NetworkMode="host", PortBindings={}) | {"ExposedPorts": {}}


def test_same_port_is_published_under_its_own_number() -> None:
    port = Port(7777, Protocol.UDP, 20005, same=True)
    body = made(replace(SPEC, ports=(port,)))
    published = {"20005/udp": [{"HostIp": "192.0.2.1", "HostPort": "20005"}]}
    assert body == golden(PortBindings=published) | {"ExposedPorts": {"20005/udp": {}}}


def test_limits_processes_and_shared_memory() -> None:
    body = made(replace(SPEC, pids=20, shm_bytes=5 * MEBIBYTE))
    assert body == golden(PidsLimit=20, ShmSize=5 * MEBIBYTE)


def test_requests_gpus_by_id() -> None:
    request = {"Driver": "nvidia", "DeviceIDs": ["GPU-1", "GPU-2"], "Capabilities": [["gpu"]]}
    assert made(replace(SPEC, gpu_ids=("GPU-1", "GPU-2"))) == golden(DeviceRequests=[request])


def test_omits_unknown_limit_of_open_files() -> None:
    assert made(SPEC, files=None) == golden(Ulimits=[{"Name": "core", "Soft": 0, "Hard": 0}])


def test_layer_quota_is_above_the_disk_limit() -> None:
    assert made(replace(SPEC, disk_bytes=2**30)) == GOLDEN
    for limit, size in ((2**20, 2**20 + 2**26), (2**30, 2**30 + 2**27)):
        body = made(replace(SPEC, disk_bytes=limit), quota=True)
        assert body == golden(StorageOpt={"size": str(size)})
    assert made(SPEC, quota=True) == GOLDEN


@pytest.mark.parametrize(
    ("limit", "sent"),
    [
        (8 * 10**9, 4 * 10**9),
        (10**9, 10**9),
        (1, 10**7),
        (0, 0),
    ],
)
def test_clamps_cpu_limit_to_the_machine(limit: int, sent: int) -> None:
    spec = replace(SPEC, limits=replace(SPEC.limits, nano_cpus=limit))
    assert made(spec) == golden(NanoCpus=sent)


@pytest.mark.parametrize(
    ("reserved", "shares"),
    [
        (0, 2),
        (10**6, 2),
        (2 * 10**9, 2048),
        (10**13, 2**18),
    ],
)
def test_cpu_shares_follow_the_reservation(reserved: int, shares: int) -> None:
    spec = replace(SPEC, reservation=replace(SPEC.reservation, nano_cpus=reserved))
    assert made(spec) == golden(CpuShares=shares)


@pytest.mark.parametrize(
    ("reserved", "limit", "sent"),
    [
        (256 * MEBIBYTE, 128 * MEBIBYTE, (128 * MEBIBYTE, 128 * MEBIBYTE)),
        (0, 1, (6 * MEBIBYTE, 0)),
        (64 * MEBIBYTE, 0, (0, 64 * MEBIBYTE)),
        (MEBIBYTE, 64 * MEBIBYTE, (64 * MEBIBYTE, 6 * MEBIBYTE)),
        (MEBIBYTE, MEBIBYTE, (6 * MEBIBYTE, 6 * MEBIBYTE)),
        (1, 0, (0, 6 * MEBIBYTE)),
    ],
)
def test_no_swap_and_capped_reservation(reserved: int, limit: int, sent: tuple[int, int]) -> None:
    spec = replace(
        SPEC,
        limits=replace(SPEC.limits, memory_bytes=limit),
        reservation=replace(SPEC.reservation, memory_bytes=reserved),
    )
    memory, reservation = sent
    wanted = golden(Memory=memory, MemorySwap=memory, MemoryReservation=reservation)
    assert made(spec) == wanted


def test_a_prepared_container_has_the_digest_of_its_shape() -> None:
    prepared = replace(SPEC, prepared=True)
    labels = made(prepared)["Labels"]
    assert labels == {
        "io.tiltyard.agent": "agent-1",
        "io.tiltyard.prepared": "0123abcd",
        "io.tiltyard.record": '{"format": 1}',
        "io.tiltyard.init": "0e5751c026e5",
        "io.tiltyard.config": config_digest(prepared, FACTS),
    }


@pytest.mark.parametrize(
    "change",
    [
        {"internal_id": "4567cdef"},
        {"record": '{"format": 2}'},
        {"public_dir": "/elsewhere"},
        {"ports": tuple(replace(port, host=port.host + 10) for port in SPEC.ports)},
    ],
)
def test_containers_of_one_shape_have_one_digest(change: dict[str, Any]) -> None:
    assert config_digest(replace(SPEC, **change), FACTS) == config_digest(SPEC, FACTS)


@pytest.mark.parametrize(
    "change",
    [
        {"cpus": 1},
        {"network": "tiltyard0"},
        {"daemon": replace(FACTS.daemon, nofile=None)},
        {"has_layer_quota": True},
    ],
)
def test_another_engine_changes_the_digest(change: dict[str, Any]) -> None:
    limited = replace(SPEC, disk_bytes=MEBIBYTE, limits=replace(SPEC.limits, nano_cpus=10**10))
    before = config_digest(limited, FACTS)
    assert config_digest(limited, replace(FACTS, **change)) != before


def test_containers_with_same_ports_have_one_digest() -> None:
    ports = tuple(replace(port, same=True) for port in SPEC.ports)
    others = tuple(replace(port, host=port.host + 10) for port in ports)
    digest = config_digest(replace(SPEC, ports=ports), FACTS)
    assert config_digest(replace(SPEC, ports=others), FACTS) == digest
    assert config_digest(SPEC, FACTS) != digest


def test_another_init_changes_the_digest() -> None:
    other = replace(SPEC, init="/var/lib/tiltyard/init/1e5751c026e5")
    assert config_digest(other, FACTS) != config_digest(SPEC, FACTS)


ROOT = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro"
QUOTAS = "90 22 8:2 / /var/lib/docker rw,relatime shared:2 - xfs /dev/sdb rw,attr2,prjquota"
NO_QUOTAS = "91 22 8:2 / /var/lib/docker rw,relatime shared:2 - xfs /dev/sdb rw,attr2,noquota"
BESIDE = "92 22 8:3 / /var/lib/docker2 rw,relatime shared:3 - xfs /dev/sdc rw,prjquota"
EXT4 = "93 90 8:4 / /var/lib/docker/overlay2 rw,relatime - ext4 /dev/sdd rw,prjquota"


@pytest.mark.parametrize(
    ("driver", "mounts", "expected"),
    [
        ("overlay2", [ROOT, QUOTAS], True),
        ("overlay2", [QUOTAS, ROOT], True),  # the deeper mount holds the layers
        ("overlay2", [ROOT, NO_QUOTAS], False),
        ("overlay2", [ROOT, QUOTAS, NO_QUOTAS], False),  # the later mount hides the earlier
        ("overlay2", [ROOT, BESIDE], False),
        ("overlay2", [ROOT, QUOTAS, EXT4], False),
        ("overlay2", [], False),
        ("btrfs", [ROOT], True),
        ("overlayfs", [ROOT, QUOTAS], False),
        (None, [ROOT, QUOTAS], False),
    ],
)
def test_recognises_layer_quotas(driver: str | None, mounts: list[str], expected: bool) -> None:
    info = {"Driver": driver, "DockerRootDir": "/var/lib/docker"}
    assert has_layer_quota(info, "\n".join(mounts)) is expected
