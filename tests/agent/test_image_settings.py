"""Which images bring along too much."""

from __future__ import annotations

from typing import Any

import pytest

from agent.docker.image_settings import MAX_VOLUMES, why_refused

TYPICAL: dict[str, Any] = {
    "Env": ["PATH=/usr/bin", "JAVA_VERSION=21"],
    "ExposedPorts": {"25565/tcp": {}, "25575/tcp": {}},
    "Labels": {"org.opencontainers.image.title": "a game"},
    "Volumes": {"/data": {}, "/var/lib/game": {}, "/devices": {}, "/run": {}},
    "OnBuild": None,
}


@pytest.mark.parametrize("settings", [{}, {"Volumes": None}, TYPICAL])
def test_images_in_use_may_run(settings: dict[str, Any]) -> None:
    assert why_refused(settings) is None


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"ExposedPorts": {f"{port}/udp": {} for port in range(65536)}}, "ports"),
        ({"Labels": {"a": "x" * 2**16}}, "labels"),
        ({"Volumes": {f"/{number}": {} for number in range(MAX_VOLUMES + 1)}}, "33 volumes"),
        ({"Volumes": {"/proc/1": {}}}, '"/proc/1"'),
        ({"Volumes": {"//sys": {}}}, '"//sys"'),
        ({"Volumes": {"/x/../dev": {}}}, '"/x/../dev"'),
        ({"Volumes": {"/run/tiltyard": {}}}, '"/run/tiltyard"'),
        ({"Volumes": {"run/tiltyard/\n": {}}}, r'"run/tiltyard/\n"'),
        ({"Volumes": {"/": {}}}, '"/"'),
        ({"Volumes": {"": {}}}, '""'),
    ],
)
def test_an_image_that_brings_too_much_is_refused(settings: dict[str, Any], named: str) -> None:
    cause = why_refused(settings)
    assert cause is not None
    assert named in cause
