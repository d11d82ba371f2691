"""The disk image of a whole Debian 13, its kernel, and the QEMU that runs it, made once."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.systemd.root import PACKAGES, made_once, made_root

_RELEASE = "trixie"
_GUEST_PACKAGES = (
    *PACKAGES,
    "apparmor",
    "ca-certificates",
    "docker-cli",
    "jq",
    "kmod",
    "linux-image-cloud-amd64",
    "qemu-guest-agent",
    "systemd-timesyncd",
    "udev",
)
_QEMU_PACKAGES = ("qemu-system-x86",)
_DISK_BYTES = 8 * 2**30
_MAKE_TIMEOUT = 300.0
_FILES = {
    "etc/fstab": "/dev/vda / ext4 defaults 0 1\n",
    "etc/hostname": "host-1\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    # Known, and as new as the rest: no boot is the first one.
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "etc/.updated": "",
    "var/.updated": "",
    # A journal that survives power cuts.
    "etc/systemd/journald.conf.d/test.conf": "[Journal]\nStorage=persistent\n",
    # Usually set by DHCP or by the operator.
    "etc/systemd/timesyncd.conf.d/test.conf": "[Time]\nNTP=time.example\n",
    # It would log each question whether a command has ended.
    "etc/systemd/system/qemu-guest-agent.service.d/test.conf": (
        "[Service]\nLogLevelMax=warning\n"
    ),
}
_ENABLED = (
    ("sysinit.target.wants", "systemd-network-generator.service"),  # `ip=` of the kernel's line
    ("multi-user.target.wants", "systemd-networkd.service"),
    ("network-online.target.wants", "systemd-networkd-wait-online.service"),
)


@dataclass(frozen=True)
class MachineImage:
    """What a machine boots from: nothing writes to it."""

    disk: Path
    kernel: Path
    initrd: Path
    qemu: Path  # The root in which QEMU is installed

    @property
    def qemu_command(self) -> list[str]:
        """QEMU, which runs with the libraries of its own root."""
        loader = self.qemu / "lib64/ld-linux-x86-64.so.2"
        libraries = [self.qemu / "usr/lib/x86_64-linux-gnu"]
        program = self.qemu / "usr/bin/qemu-system-x86_64"
        path = ":".join(map(str, libraries))
        return [str(loader), "--library-path", path, str(program)]


def made_image() -> MachineImage:
    """Return the image; it is made when this very recipe made none yet."""
    qemu = made_root(_RELEASE, _QEMU_PACKAGES)
    root = made_root(_RELEASE, _GUEST_PACKAGES)
    recipe = root.name.encode() + Path(__file__).read_bytes()
    folder = made_once("machine", recipe, lambda folder: _make(folder, root))
    return MachineImage(folder / "disk", folder / "kernel", folder / "initrd", qemu)


def _make(folder: Path, root: Path) -> None:
    folder.mkdir()
    for name in ("kernel", "initrd"):
        [path] = (root / "boot").glob("vmlinuz-*" if name == "kernel" else "initrd.img-*")
        shutil.copy(path, folder / name)
    tree = folder / "tree"
    _run("cp", "--archive", str(root), str(tree))
    for name, text in _FILES.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text)
    for wants, unit in _ENABLED:
        link = tree / "etc/systemd/system" / wants / unit
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(f"/usr/lib/systemd/system/{unit}")
    disk = folder / "disk"
    with disk.open("wb") as file:
        file.truncate(_DISK_BYTES)
    extended = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"  # nothing left to do at boot
    _run("mke2fs", "-q", "-F", "-t", "ext4", "-E", extended, "-d", str(tree), str(disk))
    shutil.rmtree(tree)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_MAKE_TIMEOUT)
