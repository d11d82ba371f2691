"""A client of the QEMU guest agent, which runs commands inside a virtual machine."""

import base64
import json
import secrets
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_DELIMITER = b"\xff"
_SYNC_TIMEOUT = 5.0  # Seconds until a greeting without an answer is repeated
_SHORTEST_POLL = 0.05
_LONGEST_POLL = 0.5


class GuestGoneError(Exception):
    """The machine ended, or its agent restarted, during a call."""


class GuestAgent:
    """One connection to the agent; it stays usable over reboots of the machine."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._buffer = b""

    def close(self) -> None:
        self._socket.close()

    def greet(self) -> bool:
        """Return whether the agent answers; what it was asked before is dropped."""
        number = secrets.randbelow(2**31)
        self._socket.settimeout(_SYNC_TIMEOUT)
        request = {"execute": "guest-sync-delimited", "arguments": {"id": number}}
        try:
            self._socket.sendall(_DELIMITER + json.dumps(request).encode() + b"\n")
            while True:
                line = self._line().rpartition(_DELIMITER)[2]
                if f'"return": {number}'.encode() in line:
                    return True
        except TimeoutError:
            return False

    def run(
        self, command: Sequence[str], given: bytes, timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end; raises subprocess.TimeoutExpired."""
        deadline = time.monotonic() + timeout
        program, *arguments = command
        asked = {"path": program, "arg": arguments, "capture-output": True}
        if given:
            asked["input-data"] = base64.b64encode(given).decode()
        pid = self._call("guest-exec", asked, timeout)["pid"]
        pause = _SHORTEST_POLL
        while True:
            status = self._call("guest-exec-status", {"pid": pid}, timeout)
            if status["exited"]:
                break
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(command, timeout)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_POLL)
        code = status["exitcode"] if "exitcode" in status else -status["signal"]
        out, err = (base64.b64decode(status.get(key, "")) for key in ("out-data", "err-data"))
        return subprocess.CompletedProcess(command, code, out, err)

    def _call(self, name: str, arguments: dict[str, Any], timeout: float) -> dict[str, Any]:
        self._socket.settimeout(timeout)
        request = {"execute": name, "arguments": arguments}
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(self._line())
        except TimeoutError:
            raise subprocess.TimeoutExpired(name, timeout) from None
        if "error" in answer:
            raise GuestGoneError(f"{name}: {answer['error']['desc']}")
        return dict(answer["return"])

    def _line(self) -> bytes:
        while b"\n" not in self._buffer:
            part = self._socket.recv(2**20)
            if not part:
                raise GuestGoneError("the machine has ended")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
