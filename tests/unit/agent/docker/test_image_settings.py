"""Which images bring along too much."""

from typing import Any, cast

import pytest

from agent.docker import sdk
from agent.docker.image_settings import MAX_VOLUMES, why_refused
from agent.domain.errors import ImageCannotRunError

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


class Engine:
    """What the SDK's client is asked at a creation."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.looks = 0

    def inspect_image(self, image: str) -> dict[str, Any]:
        self.looks += 1
        return {"Config": self.settings}

    def create_container_from_config(self, config: dict[str, Any], name: str) -> dict[str, Any]:
        return {"Id": name}


@pytest.mark.parametrize(("image", "looks"), [("game@sha256:1", 1), ("game:v1", 2)])
def test_an_image_that_may_run_is_looked_into_once(image: str, looks: int) -> None:
    engine, fit = Engine(TYPICAL), set[str]()
    for name in ("first", "second"):
        assert sdk.create(cast("Any", engine), {"Image": image}, name, fit) == name
    assert engine.looks == looks


def test_an_image_that_is_refused_stays_so() -> None:
    engine, fit = Engine({"Volumes": {"/": {}}}), set[str]()
    for _ in range(2):
        with pytest.raises(ImageCannotRunError):
            sdk.create(cast("Any", engine), {"Image": "game@sha256:1"}, "name", fit)
