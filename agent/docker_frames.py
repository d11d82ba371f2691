"""The forms of Docker's streams: frames of a log, lines of JSON, steps of a pull. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agent.engine import PullProgress

_HEADER_BYTES = 8
PIECE_BYTES = 16 * 1024
"""The engine records a longer line in pieces of this size, a frame each."""
_SYSTEM = 3
"""Frames of this kind carry the engine's own words about the log."""
_MAX_LINE = 2**20
"""Bytes of one line of JSON; the engine's are a few hundred."""
_MAX_WORDS = 4096
"""Bytes kept of the engine's own words."""


class Demultiplexer:
    """Takes the frames of stdout and stderr apart, whatever the pieces they arrive in.

    A frame is a kind, three zero bytes, a length in big-endian order and so many bytes. Payload
    is handed on as it comes: a frame may be larger than memory.

    The driver `local` of older engines leaves out the newline after the last piece of a long line:
    a short frame without one, behind a whole piece, gets it back. A line whose length is a
    multiple of PIECE_BYTES has no short last piece and stays without.
    """

    def __init__(self) -> None:
        self._header = bytearray()
        self._left = 0
        self._kind = 0
        self._size = 0
        self._within_line: dict[int, bool] = {}
        self._words = bytearray()

    @property
    def between_frames(self) -> bool:
        """True when a stream may end here."""
        return not self._left and not self._header

    @property
    def complaint(self) -> str:
        """What the engine said about the log itself, as when it cannot be read to its end."""
        return self._words.decode(errors="replace").strip()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what of `data` the container wrote; ValueError when these are no frames."""
        view = memoryview(data)
        while view:
            if not self._left:
                view = self._feed_header(view)
                continue
            payload, view = view[: self._left], view[self._left :]
            self._left -= len(payload)
            if self._kind == _SYSTEM:
                self._words += payload[: _MAX_WORDS - len(self._words)]
            else:
                written = bytes(payload)
                yield written
                if not self._left and self._ends_long_line(newline=written.endswith(b"\n")):
                    yield b"\n"

    def _ends_long_line(self, *, newline: bool) -> bool:
        """Take note of a frame that is complete; True when the newline of its line is missing."""
        behind_piece = self._within_line.get(self._kind, False)
        self._within_line[self._kind] = self._size == PIECE_BYTES and not newline
        return behind_piece and self._size < PIECE_BYTES and not newline

    def _feed_header(self, view: memoryview) -> memoryview:
        wanted = _HEADER_BYTES - len(self._header)
        self._header += view[:wanted]
        if len(self._header) == _HEADER_BYTES:
            self._kind = self._header[0]
            if self._kind > _SYSTEM or any(self._header[1:4]):
                raise ValueError(f"no frame begins with {self._header.hex()}")
            self._left = self._size = int.from_bytes(self._header[4:], "big")
            self._header.clear()
        return view[wanted:]


class JsonLines:
    """Takes a stream of JSON objects, one a line, apart."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the objects that `data` completes; ValueError when one is none."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MAX_LINE:
            raise ValueError("a line does not end")
        for line in lines:
            if line.strip():
                found = json.loads(line)
                if not isinstance(found, dict):
                    raise ValueError("a line is no object")
                yield found


class PullSteps:
    """Adds up what a pull tells of its layers."""

    def __init__(self) -> None:
        self._received: dict[str, int] = {}
        self._done: set[str] = set()

    def add(self, step: Mapping[str, Any]) -> PullProgress:
        """Take one step into account and tell how far the pull has come."""
        layer, status = step.get("id"), str(step.get("status", ""))
        if layer and not status.startswith("Pulling from"):
            received = self._received.setdefault(layer, 0)
            if status == "Downloading":
                now = int((step.get("progressDetail") or {}).get("current") or 0)
                self._received[layer] = max(received, now)
            elif status in {"Pull complete", "Already exists"}:
                self._done.add(layer)
        return PullProgress(
            layers=len(self._received),
            layers_done=len(self._done),
            received_bytes=sum(self._received.values()),
        )


def error_in(step: Mapping[str, Any]) -> str:
    """The error that a step of a pull reports, if any."""
    return str((step.get("errorDetail") or {}).get("message") or step.get("error") or "")
