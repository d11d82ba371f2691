from dataclasses import replace
from pathlib import Path

import pytest

from agent.domain.errors import NotAllowedError
from agent.settings.policy import Policy, load_policy
from tests.support.agent.hosts import Host, assert_nothing_is_left
from tests.support.agent.samples import MEBIBYTE, a_spec, an_id
from tiltyard.contract import Capability, NetworkMode, Resources, SessionSpec
from tiltyard.runtime.settings import SettingsError

CHOWN = Capability.CHOWN
SETUID = Capability.SETUID
LIMITS = Resources(nano_cpus=2 * 10**9, memory_bytes=512 * MEBIBYTE, gpus=1)
SPEC = a_spec(limits=LIMITS, reservation=Resources())


@pytest.mark.parametrize(
    "policy",
    [
        Policy(),
        Policy(
            allowed_registries=("ghcr.io", "127.0.0.1:5000", "Registry.Example"),
            max_cpu=2,
            max_ram=512,
            max_gpus=1,
            max_disk=1,
            max_pids=100,
        ),
    ],
)
def test_request_within_the_policy_passes(policy: Policy) -> None:
    policy.check_spec(SPEC)
    policy.check_image("registry.EXAMPLE/game@sha256:" + "a" * 64)
    host_network = policy.model_copy(update={"host_network": True})
    host_network.check_spec(replace(SPEC, network_mode=NetworkMode.HOST))
    capable = policy.model_copy(update={"capabilities": frozenset({CHOWN, SETUID})})
    capable.check_spec(replace(SPEC, capabilities=(CHOWN,)))


@pytest.mark.parametrize(
    ("policy", "spec"),
    [
        (Policy(allowed_registries=()), SPEC),
        (Policy(allowed_registries=("127.0.0.1",)), SPEC),
        (Policy(allowed_registries=("127.0.0.1:500",)), SPEC),
        (Policy(max_cpu=1.99), SPEC),
        (Policy(max_ram=511), SPEC),
        (Policy(max_disk=99), replace(SPEC, disk_bytes=100 * 2**20)),
        (Policy(max_pids=99), replace(SPEC, pids=100)),
        (load_policy(None), replace(SPEC, pids=4097)),
        (Policy(max_gpus=0), SPEC),
        (Policy(max_gpus=1), replace(SPEC, reservation=Resources(gpus=2))),
        (load_policy(None), replace(SPEC, network_mode=NetworkMode.HOST)),
        (load_policy(None), replace(SPEC, capabilities=(CHOWN,))),
        (Policy(capabilities=frozenset({SETUID})), replace(SPEC, capabilities=(CHOWN, SETUID))),
    ],
)
def test_request_beyond_the_policy_is_refused(policy: Policy, spec: SessionSpec) -> None:
    with pytest.raises(NotAllowedError, match="this host's policy"):
        policy.check_spec(spec)


async def test_start_beyond_the_policy_leaves_nothing(host: Host) -> None:
    async with host(policy=Policy(allowed_registries=("ghcr.io",))) as agent:
        with pytest.raises(NotAllowedError):
            await agent.sessions.start(an_id(), SPEC)
        await assert_nothing_is_left(agent)
        assert agent.engine.count("create") == 0


def _written(folder: Path, text: str, mode: int = 0o644) -> Path:
    path = folder / "policy.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_policy_file_is_read(tmp_path: Path) -> None:
    path = _written(tmp_path, 'allowed_registries = ["ghcr.io"]\nmax_cpu = 4\nmax_ram = 2048\n')
    assert load_policy(path) == Policy(allowed_registries=("ghcr.io",), max_cpu=4, max_ram=2048)
    assert load_policy(None) == Policy()
    path = _written(tmp_path, 'capabilities = ["CHOWN", "SETUID"]\n')
    assert load_policy(path) == Policy(capabilities=frozenset({CHOWN, SETUID}))


def test_missing_policy_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read"):
        load_policy(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        ("max_cpus = 4", 0o644, "max_cpus"),
        ("max_cpu = 0", 0o644, "max_cpu"),
        ("max_cpu = nan", 0o644, "max_cpu"),
        ("max_gpus = -1", 0o644, "max_gpus"),
        ('capabilities = ["SYS_ADMIN"]', 0o644, "capabilities"),
        ("capabilities = true", 0o644, "capabilities"),
        ('allowed_registries = "ghcr.io"', 0o644, "allowed_registries"),
        ("max_cpu =", 0o644, "cannot read"),
        ("", 0o664, "chmod go-w"),
        ("", 0o646, "chmod go-w"),
        (
            'allowed_registries = ["ghcr.io", "https://ghcr.io"]',
            0o644,
            r"allowed_registries\[1\]: 'https://ghcr.io': .*without scheme, user and path",
        ),
        ('allowed_registries = ["docker.io"]', 0o644, "write registry-1.docker.io"),
    ],
)
def test_rejects_invalid_policy_file(tmp_path: Path, text: str, mode: int, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load_policy(_written(tmp_path, text, mode))
