"""An overlay of this machine's files, in which installations run."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDERS = ("etc", "opt", "usr/local", "var/lib")  # Folders that an installation writes to
SETTINGS = {
    "net/ipv4/ping_group_range": "1\t0",
    "net/core/netdev_max_backlog": "1000",
    "fs/inotify/max_user_instances": "128",
    "kernel/keys/maxkeys": "5000",
    "kernel/keys/maxbytes": "20000",
}
"""Settings of the kernel before an installation."""
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
for each in $SETTINGS; do
  mount --bind "$folder/sys/$each" "/proc/sys/$each"
done
exec "$@"
"""


class Overlaid:
    """An overlay of this machine's files that keeps writes between commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for each in FOLDERS:
            (folder / each / "upper").mkdir(parents=True)
            (folder / each / "work").mkdir()
        (folder / "names").mkdir()
        for name, value in SETTINGS.items():
            file = self.setting(name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{value}\n")

    def setting(self, name: str) -> Path:
        """Return the file in the place of a setting of the kernel."""
        return self.folder / "sys" / name

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
            env={
                **os.environ,
                "FOLDERS": " ".join(FOLDERS),
                "SETTINGS": " ".join(SETTINGS),
                **(environment or {}),
            },
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
