"""Images of the games, from a Debian that debootstrap made: no public registry is asked."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tests.games.catalogue import GAMES, Game
from tests.systemd.root import made_root

_TIMEOUT = 240.0  # Seconds for one command, the download of packages included
_APT_OPTIONS = (
    "Acquire::Check-Date",
    "Acquire::Check-Valid-Until",
    "Acquire::http",
    "Acquire::https",
)
_NO_TRANSLATIONS = 'Acquire::Languages "none";\n'
"""Published images of Debian have this setting, and their dpkg does not wait for the disk."""
_NOT_IN_BASE = (
    "./usr/share/doc",
    "./usr/share/locale",
    "./usr/share/man",
    "./var/cache/apt",
    "./dev/*",
)


def base_root() -> Path:
    """The folder of the Debian on which all images are built; made once.

    It has the packages of the gate already, so that building their images takes a moment.
    """
    return made_root("bookworm", [game.package for game in GAMES if game.in_gate])


class Images:
    """Builds images on an engine and pushes them to a registry."""

    def __init__(self, docker_socket: Path, registry: str, folder: Path) -> None:
        """Import the base image; `registry` is the address of the registry.

        The base has the name of this registry, so that `remove_traces` removes it, too.
        """
        self._environment = {**os.environ, "DOCKER_HOST": f"unix://{docker_socket}"}
        self._registry = registry
        self.base = f"{registry}/debian:bookworm-slim"
        root = base_root()
        without = [f"--exclude={path}" for path in _NOT_IN_BASE]
        packed = ["tar", "--create", *without, f"--directory={root}", "."]
        with subprocess.Popen(packed, stdout=subprocess.PIPE) as tar:
            imported = _run(["docker", "import", "-"], self._environment, tar.stdout)
        assert tar.returncode == 0
        options = _run(["apt-config", "dump", *_APT_OPTIONS], self._environment)
        (folder / "apt.conf").write_text(f"{options}\n{_NO_TRANSLATIONS}")
        (folder / "dpkg.cfg").write_text("force-unsafe-io\n")
        (folder / "Dockerfile").write_text(
            f"FROM {imported}\n"
            "COPY apt.conf /etc/apt/apt.conf.d/99tests\n"
            "COPY dpkg.cfg /etc/dpkg/dpkg.cfg.d/tests\n"
        )
        self._docker(["build", f"--tag={self.base}", str(folder)])

    def push(self, game: Game) -> None:
        """Build a game as its Dockerfile says, on this base, and push it."""
        name = f"{self._registry}/{game.name}:v1"
        # The packages come from this machine's mirror, which may be on its own network.
        options = ["--network=host", f"--build-arg=BASE={self.base}", f"--tag={name}"]
        self._docker(["build", *options, str(game.folder)])
        self._docker(["push", name])

    def version(self, game: Game) -> str:
        """The version of the game's package in its image."""
        query = ["-W", "--showformat=${Version}", game.package]
        options = ["--rm", "--network=none", "--entrypoint=dpkg-query"]
        return self._docker(["run", *options, f"{self._registry}/{game.name}:v1", *query])

    def _docker(self, arguments: Sequence[str]) -> str:
        return _run(["docker", *arguments], self._environment)


def _run(
    command: Sequence[str], environment: dict[str, str], given: IO[bytes] | None = None
) -> str:
    """Run a program that must succeed; return its output."""
    done = subprocess.run(
        command,
        check=False,
        stdin=given or subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        timeout=_TIMEOUT,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout.strip()


if __name__ == "__main__":
    base_root()
