from typing import Any

import pytest

from agent.docker.image_program import image_program, why_refused
from agent.domain.errors import ImageCannotRunError

SHELL = ["/bin/sh", "-c", "exec /game --fast"]
"""The shell form of `exec /game --fast`, as the engine stores it."""


def program(settings: dict[str, Any], *args: str) -> tuple[str, ...]:
    return image_program(settings).with_args(args)


@pytest.mark.parametrize(
    ("entry_point", "command", "args", "expected"),
    [
        (["/game"], None, (), ("/game",)),
        (["/game"], ["--default"], (), ("/game", "--default")),
        (["/game"], ["--default"], ("--map", "1"), ("/game", "--map", "1")),
        (
            ["/game", "--server"],
            None,
            ("$HOME; rm -rf /",),
            ("/game", "--server", "$HOME; rm -rf /"),
        ),
        (None, ["/game", "--default"], (), ("/game", "--default")),
        (None, ["/game", "--default"], ("/other",), ("/other",)),
        ([], ["/game"], ("",), ("",)),
        ([""], ["/game"], (), ("/game",)),
        (SHELL, ["ignored by the shell"], (), (*SHELL, "ignored by the shell")),
        (None, SHELL, (), tuple(SHELL)),
    ],
)
def test_arguments_take_the_place_of_the_command(
    entry_point: list[str] | None,
    command: list[str] | None,
    args: tuple[str, ...],
    expected: tuple[str, ...],
) -> None:
    assert program({"Entrypoint": entry_point, "Cmd": command}, *args) == expected


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"Entrypoint": None, "Cmd": None},
        {"Entrypoint": [""]},
    ],
)
def test_image_without_a_command_needs_arguments(settings: dict[str, Any]) -> None:
    with pytest.raises(ImageCannotRunError, match="names no command and none is given"):
        program(settings)
    assert program(settings, "/game") == ("/game",)


TYPICAL: dict[str, Any] = {
    "Env": ["PATH=/usr/bin", "JAVA_VERSION=21"],
    "ExposedPorts": {"25565/tcp": {}, "25575/tcp": {}},
    "Labels": {"org.opencontainers.image.title": "a game"},
    "Volumes": {"/data": {}, "/var/lib/game": {}, "/devices": {}, "/run": {}},
    "OnBuild": None,
}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"Volumes": None},
        TYPICAL,
    ],
)
def test_accepts_settings_of_common_images(settings: dict[str, Any]) -> None:
    assert why_refused(settings) is None
    assert program(settings, "/game") == ("/game",)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"ExposedPorts": {f"{port}/udp": {} for port in range(65536)}}, "ports"),
        ({"Labels": {"a": "x" * 2**16}}, "labels"),
        ({"Volumes": {f"/{number}": {} for number in range(33)}}, "33 volumes"),
        ({"Volumes": {"/proc/1": {}}}, '"/proc/1"'),
        ({"Volumes": {"//sys": {}}}, '"//sys"'),
        ({"Volumes": {"/x/../dev": {}}}, '"/x/../dev"'),
        ({"Volumes": {"/run/tiltyard": {}}}, '"/run/tiltyard"'),
        ({"Volumes": {"run/tiltyard/\n": {}}}, r'"run/tiltyard/\n"'),
        ({"Volumes": {"/run/tiltyard-init": {}}}, '"/run/tiltyard-init"'),
        ({"Volumes": {"/": {}}}, '"/"'),
        ({"Volumes": {"": {}}}, '""'),
    ],
)
def test_refuses_image_with_excessive_settings(settings: dict[str, Any], named: str) -> None:
    cause = why_refused(settings)
    assert cause is not None
    assert named in cause


def test_refused_image_has_no_program() -> None:
    with pytest.raises(ImageCannotRunError, match='volume at "/"'):
        program({"Cmd": ["/game"], "Volumes": {"/": {}}})
