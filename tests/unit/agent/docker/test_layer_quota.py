"""On which engines the size of a writable layer can be bounded."""

import pytest

from agent.docker.layer_quota import has_layer_quota, layer_quota

ROOT = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro"
QUOTAS = "90 22 8:2 / /var/lib/docker rw,relatime shared:2 - xfs /dev/sdb rw,attr2,prjquota"
NO_QUOTAS = "91 22 8:2 / /var/lib/docker rw,relatime shared:2 - xfs /dev/sdb rw,attr2,noquota"
BESIDE = "92 22 8:3 / /var/lib/docker2 rw,relatime shared:3 - xfs /dev/sdc rw,prjquota"
EXT4 = "93 90 8:4 / /var/lib/docker/overlay2 rw,relatime - ext4 /dev/sdd rw,prjquota"


@pytest.mark.parametrize(
    ("driver", "mounts", "expected"),
    [
        ("overlay2", [ROOT, QUOTAS], True),
        ("overlay2", [QUOTAS, ROOT], True),
        ("overlay2", [ROOT, NO_QUOTAS], False),
        ("overlay2", [ROOT, QUOTAS, NO_QUOTAS], False),  # the later mount hides the earlier
        ("overlay2", [ROOT, BESIDE], False),
        ("overlay2", [ROOT, QUOTAS, EXT4], False),
        ("overlay2", [], False),
        ("btrfs", [ROOT], True),
        ("vfs", [ROOT, QUOTAS], False),
        ("overlayfs", [ROOT, QUOTAS], False),
        (None, [ROOT, QUOTAS], False),
    ],
)
def test_follows_the_driver_and_the_mount(
    driver: str | None, mounts: list[str], expected: bool
) -> None:
    info = {"Driver": driver, "DockerRootDir": "/var/lib/docker"}
    assert has_layer_quota(info, "\n".join(mounts)) is expected


def test_leaves_room_for_the_watch_to_end_the_session() -> None:
    assert layer_quota(2**20) == 2**20 + 2**26
    assert layer_quota(2**33) == 2**33 + 2**30
