"""Roots of small systems, each made once by debootstrap.

What runs in one sees it through an overlay, so that it stays as it was made.
"""

import fcntl
import hashlib
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.harness import ROOT
from tests.support.real_engine import UnavailableError

PACKAGES = (
    "containerd",
    "dbus",
    "docker.io",
    "gcc",
    "iproute2",
    "iptables",
    "make",
    "procps",
    "python3",
    "python3-venv",
    "systemd",
    "systemd-sysv",
)
_DEBIAN = "http://deb.debian.org/debian"  # The mirror of releases other than this machine's own
_MAKE_TIMEOUT = 900.0  # It took 60 s on a quiet machine of two cores with the mirror near


def made_root(release: str = "", packages: Sequence[str] = PACKAGES) -> Path:
    """Return the folder of a root; it is made when this very recipe made none yet.

    Without a `release` it is of this machine's own.
    """
    if shutil.which("debootstrap") is None:
        raise UnavailableError("there is no debootstrap: install the package debootstrap")
    own = platform.freedesktop_os_release()["VERSION_CODENAME"]
    release = release or own
    is_own = release == own
    recipe = " ".join([release, *packages]).encode() + Path(__file__).read_bytes()
    return made_once(
        "systemd-root", recipe, lambda root: _make(root, release, packages, is_own=is_own)
    )


def made_once(name: str, recipe: bytes, make: Callable[[Path], None]) -> Path:
    """Return a folder that `make` makes, unless it was made by this very recipe before."""
    cache = ROOT / "build"
    cache.mkdir(exist_ok=True)
    made = cache / f"{name}-{hashlib.sha256(recipe).hexdigest()[:16]}"
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            partial = made.with_suffix(".part")
            shutil.rmtree(partial, ignore_errors=True)
            make(partial)
            partial.rename(made)
    return made


def _make(root: Path, release: str, packages: Sequence[str], *, is_own: bool) -> None:
    mirror, components = _source(release) if is_own else (_DEBIAN, ["main"])
    made = subprocess.run(
        [
            "debootstrap",
            "--variant=minbase",
            f"--components={','.join(components)}",
            f"--include={','.join(packages)}",
            release,
            str(root),
            mirror,
        ],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_MAKE_TIMEOUT,
    )
    if made.returncode != 0:
        raise RuntimeError("debootstrap failed:\n" + "\n".join(made.stdout.splitlines()[-20:]))
    for package in (root / "var/cache/apt/archives").glob("*.deb"):
        package.unlink()
    # Nobody there answers for names, and that is to be known at once.
    (root / "etc/resolv.conf").unlink(missing_ok=True)


def _source(release: str) -> tuple[str, list[str]]:
    """Return the mirror that this machine has its release from, and the release's components."""
    listed = subprocess.run(
        [
            "apt-get",
            "indextargets",
            "--format",
            "$(REPO_URI) $(CODENAME) $(COMPONENT)",
            "Created-By: Packages",
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    targets = [line.split() for line in listed.splitlines()]
    found = [(uri, component) for uri, codename, component in targets if codename == release]
    if not found:
        why = f"apt has no source of {release}: it is needed to make a system of it"
        raise UnavailableError(why)
    mirror = found[0][0]
    return mirror, sorted({component for uri, component in found if uri == mirror})
