"""What images are for, and what they execute."""

import pytest

from controlplane.domain.applications.images import Command, can_run, command_of, platform_name


@pytest.mark.parametrize(
    ("host", "images", "expected"),
    [
        ("linux/amd64", ["linux/amd64"], True),
        ("linux/amd64", ["linux/arm64", "linux/amd64"], True),
        ("linux/amd64", ["linux/amd64/v2"], True),
        ("linux/amd64", ["linux/386"], True),
        ("linux/amd64", ["linux/x86_64"], True),
        ("linux/amd64", ["linux/arm64"], False),
        ("linux/amd64", ["windows/amd64"], False),
        ("linux/arm64", ["linux/arm64/v8"], True),
        ("linux/arm64", ["linux/aarch64"], True),
        ("linux/arm64", ["linux/arm/v7"], True),
        ("linux/arm64", ["linux/386"], False),
        ("linux/arm", ["linux/arm64"], False),
        ("linux/386", ["linux/amd64"], False),
        ("linux/riscv64", ["linux/riscv64"], True),
        ("", ["linux/arm64"], True),
        ("linux/amd64", [], True),
        ("linux/amd64", ["linux/arm64", ""], True),
    ],
)
def test_engine_runs_its_own_and_older_architectures(
    host: str, images: list[str], *, expected: bool
) -> None:
    assert can_run(host, images) is expected


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("linux", "arm64"), "linux/arm64"),
        (("linux", "arm", "v7"), "linux/arm/v7"),
        (("linux", ""), ""),
        (("", "arm64"), ""),
        (("linux", "a,b"), ""),
        (("linux", "x" * 33), ""),
        (("Linux", "amd64"), ""),
    ],
)
def test_platform_has_a_name_if_each_part_has(parts: tuple[str, ...], name: str) -> None:
    assert platform_name(*parts) == name


@pytest.mark.parametrize(
    ("entry_point", "command", "expected"),
    [
        (["/game"], [], Command.PROGRAM),
        (["/game", "--map", "dust"], ["x"], Command.PROGRAM),
        ([], ["/game"], Command.PROGRAM),
        ([], ["/bin/sh", "-c", "/game"], Command.PROGRAM),  # args take the place of all of it
        ([""], ["/game"], Command.PROGRAM),
        ([], [], Command.NONE),
        ([""], [], Command.NONE),
        (["/bin/sh", "-c", "/game"], [], Command.SHELL),
        (["/bin/sh", "-c", "exec /game --port 7777"], ["--map"], Command.SHELL),
        (["/bin/bash", "-o", "pipefail", "-c", "/game"], [], Command.SHELL),
        (["bash", "-lc", "/game"], [], Command.SHELL),
        (["/sbin/tini", "--", "/bin/sh", "-c", "/game"], [], Command.SHELL),
        (["/own-shell", "-c", "/game --port 7777"], [], Command.SHELL),
        (["/bin/sh", "-c", '/game "$@"', "--"], [], Command.PROGRAM),
        (["/bin/sh", "-c", '/game "$0" "$@"'], [], Command.PROGRAM),
        (["/bin/sh", "-c", "/game ${1}"], [], Command.PROGRAM),
        (["/bin/sh", "-c", "/game $HOME"], [], Command.SHELL),
        (["/game", "-c", "server.cfg"], [], Command.PROGRAM),
        (["/bin/sh", "/start.sh"], [], Command.PROGRAM),
        (["-c"], [], Command.PROGRAM),
    ],
)
def test_shell_form_ignores_arguments(
    entry_point: list[str], command: list[str], expected: Command
) -> None:
    assert command_of(entry_point, command) is expected
