"""An overlay over this machine, without systemd, for installations that are discarded."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

FOLDERS = ("etc", "opt", "usr/local", "var/lib")  # Folders that an installation writes to
_COMMAND_TIMEOUT = 300.0
_ENTER = """
set -e
folder=$1
shift
# In a container, these are separate mounts.
cp --dereference /etc/resolv.conf /etc/hosts "$folder/names" 2>/dev/null || true
for each in $FOLDERS; do
  mount -t overlay overlay "/$each" \\
    -o "lowerdir=/$each,upperdir=$folder/$each/upper,workdir=$folder/$each/work"
done
cp --remove-destination "$folder"/names/* /etc
[ ! -d /run/systemd ] || mount -t tmpfs tmpfs /run/systemd
mount --bind "$folder/ping_group_range" /proc/sys/net/ipv4/ping_group_range
exec "$@"
"""


class Overlaid:
    """An overlay of this machine's files that keeps writes between commands."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tiltyard-install-", dir="/var/tmp"))

    def __enter__(self) -> Self:
        for each in FOLDERS:
            (self.folder / each / "upper").mkdir(parents=True)
            (self.folder / each / "work").mkdir()
        (self.folder / "names").mkdir()
        (self.folder / "ping_group_range").write_text("1\t0\n")
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder)

    def attempt(
        self,
        *command: str | Path,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        """Run a command; return its exit code and output, including stderr."""
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", _ENTER, "sh", self.folder, *command],
            cwd=cwd,
            env={**os.environ, "FOLDERS": " ".join(FOLDERS), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_COMMAND_TIMEOUT,
        )
        return done.returncode, done.stdout

    def run(self, *command: str | Path, **options: Any) -> str:
        """Attempt a command that must succeed and return its output."""
        code, output = self.attempt(*command, **options)
        assert code == 0, output
        return output

    def written(self, path: str) -> Path:
        """Return where the overlay stores a path."""
        [each] = [each for each in FOLDERS if path.startswith(f"/{each}/")]
        return self.folder / each / "upper" / path.removeprefix(f"/{each}/")
