"""A whole Debian 13 in QEMU, without hardware virtualisation: a kernel, a disk, a power switch."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import click

from tests.docker.stack import eventually
from tests.host.guest_agent import GuestAgent, GuestGoneError
from tests.host.image import made_image
from tests.support.harness import Process
from tests.support.private_network import TapNetwork
from tests.support.real_engine import UnavailableError
from tests.systemd.system import System

_BOOT_TIMEOUT = 900.0  # Seconds; it takes 60 on an idle machine
_MEMORY = 2048  # MiB
_ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")
_KERNEL = (
    "root=/dev/vda rw console=ttyS0 net.ifnames=0 mitigations=off audit=0 panic=-1"
    " ip={address}::{host_address}:255.255.255.252::eth0:off"
)


class Machine(System):
    """A machine that is on within the context, with a disk of its own.

    Its processes end with the context, and its files are removed.
    """

    slowness = 20.0

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        if os.geteuid() != 0:
            raise UnavailableError("a machine needs a network interface, which needs root")
        super().__init__(environment)
        self.folder = Path(tempfile.mkdtemp(prefix="tiltyard-machine-", dir="/var/tmp"))
        self.network: TapNetwork = TapNetwork()
        self._disk = Process("disk", self.folder / "disk.log")
        self._qemu = Process("qemu", self.folder / "console.log")
        self._agent: GuestAgent | None = None
        self.cuts = 0  # How often its power was cut

    def _start(self) -> None:
        self._image = made_image()
        self.network.make()
        disk = self.folder / "disk"
        copy = ["cp", "--sparse=always", "--reflink=auto", str(self._image.disk), str(disk)]
        subprocess.run(copy, check=True, timeout=300)
        server = [sys.executable, "-m", "tests.host.disk", str(self._nbd), str(disk)]
        self._disk.launch([*_ENDS_WITH_US, *server], self._nbd.exists)
        self.power_on()

    def power_on(self, clock: datetime | None = None) -> None:
        """Boot until everything was started. `clock`: what its hardware clock shows, in UTC."""
        self._guest.unlink(missing_ok=True)
        shown = "utc" if clock is None else clock.strftime("%Y-%m-%dT%H:%M:%S")
        self._qemu.launch(self._command(shown), self._guest.exists)
        self._agent = GuestAgent(self._guest)
        self._until_up()

    def cut_power(self) -> None:
        """Kill QEMU: what the system did not flush to its disk is lost."""
        assert self._agent is not None
        self._qemu.kill()
        self._agent.close()
        self._agent = None
        self.cuts += 1

    def reboot(self) -> None:
        """Have systemd reboot until everything was started again."""
        before = self._boot_id()
        with contextlib.suppress(GuestGoneError):  # Its agent may end first
            self.run("systemctl", "--no-block", "reboot")

        def is_another() -> bool:
            with contextlib.suppress(subprocess.TimeoutExpired, GuestGoneError):
                return self._greet() and self._boot_id() != before
            return False

        eventually(is_another, "it boots again", patience=_BOOT_TIMEOUT)
        self._until_up()

    def _run(
        self, command: Sequence[str], given: bytes, timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        assert self._agent is not None, "the machine is off"
        return self._agent.run(command, given, timeout)

    def unpack(self, folder: str, tar: bytes) -> None:
        """Unpack an archive inside, which comes by the network: the guest agent is slow."""
        with socket.create_server((self.network.host_address, 0)) as listener:
            port = listener.getsockname()[1]
            untar = 'mkdir -p "$0" && exec tar --extract --no-same-owner --directory="$0"'
            fetch = f"{untar} </dev/tcp/{self.network.host_address}/{port}"
            unit = ("systemd-run", "--quiet", "--unit=unpack")
            self.run(*unit, "bash", "-c", fetch, folder)
            listener.settimeout(60 * self.slowness)
            client, _ = listener.accept()
            with client:
                client.sendall(tar)
                client.shutdown(socket.SHUT_WR)
                client.recv(1)  # until it has closed its end

    @property
    def _nbd(self) -> Path:
        return self.folder / "disk.sock"

    @property
    def _guest(self) -> Path:
        return self.folder / "guest.sock"

    def _command(self, clock: str) -> list[str]:
        kernel = _KERNEL.format(**vars(self.network))
        modules = self._image.qemu / "usr/lib/x86_64-linux-gnu/qemu"
        return [
            "env",
            f"QEMU_MODULE_DIR={modules}",
            *_ENDS_WITH_US,
            "nice",
            "--adjustment=19",
            *self._image.qemu_command,
            "-L",
            str(self._image.qemu / "usr/share/qemu"),
            "-L",
            str(self._image.qemu / "usr/share/seabios"),
            "-accel",
            "tcg",
            "-machine",
            "q35",
            "-cpu",
            "max,la57=off",
            "-smp",
            "2",
            "-m",
            str(_MEMORY),
            "-rtc",
            f"base={clock}",
            "-nodefaults",
            "-display",
            "none",
            "-serial",
            "stdio",
            "-kernel",
            str(self._image.kernel),
            "-initrd",
            str(self._image.initrd),
            "-append",
            kernel,
            "-blockdev",
            f"driver=nbd,node-name=disk,server.type=unix,server.path={self._nbd}",
            "-device",
            "virtio-blk-pci,drive=disk",
            "-netdev",
            f"tap,id=net,ifname={self.network.name},script=no,downscript=no",
            "-device",
            "virtio-net-pci,netdev=net,romfile=",
            "-object",
            "rng-builtin,id=rng",
            "-device",
            "virtio-rng-pci,rng=rng",
            "-chardev",
            f"socket,id=guest,path={self._guest},server=on,wait=off",
            "-device",
            "virtio-serial-pci",
            "-device",
            "virtserialport,chardev=guest,name=org.qemu.guest_agent.0",
        ]

    def _greet(self) -> bool:
        assert self._agent is not None
        if not self._qemu.is_running:
            raise RuntimeError(f"QEMU ended:\n{self._qemu.tail()}")
        return self._agent.greet()

    def _until_up(self) -> None:
        eventually(self._greet, "its guest agent answers", patience=_BOOT_TIMEOUT)
        self.attempt("systemctl", "is-system-running", "--wait", timeout=60)
        assert self.is_up()

    def _boot_id(self) -> str:
        return self.run("cat", "/proc/sys/kernel/random/boot_id", timeout=1)

    def _report(self) -> None:
        if self._agent is not None and self._qemu.is_running and self._agent.greet():
            self.report()
        for process in (self._qemu, self._disk):
            if process.log.exists():
                click.echo(process.tail(), err=True)

    def _remove(self) -> None:
        try:
            self._qemu.kill()
            if self._agent is not None:
                self._agent.close()
            self._disk.kill()
        finally:
            self.network.remove()
            shutil.rmtree(self.folder)
