"""Parse Docker's streams: frames of a log, steps of a pull. Pure."""

import struct
from collections.abc import Mapping
from typing import Any

from agent.domain.containers.engine import LONGEST_PIECE_BYTES, LogPiece
from tiltyard.images import PullProgress

_HEADER = struct.Struct(">II")
_KINDS = {kind << 24: kind for kind in range(4)}  # Kinds of frames by the first half of the header
_TIME_BYTES = 30  # Length of a UTC time with nanoseconds; a space follows
_LONGEST_FRAME = 2**20  # The engine's frames are slightly longer than LONGEST_PIECE_BYTES
_SPACE, _NEWLINE = b" \n"
_SYSTEM = 3  # Kind of frames with the engine's own messages, which have no time
_MAX_MESSAGES = 4096  # Bytes kept of the engine's own messages


class Demultiplexer:
    """Splits the frames of stdout and stderr, which may arrive in arbitrary pieces.

    A frame is a kind, three zero bytes, a big-endian length and that many bytes: a time, a
    space, and a line or a piece of one. The newline that the `local` driver of older engines
    omits after a long line is restored.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._within_line: set[int] = set()  # Streams whose line continues in the next piece
        self._messages = bytearray()

    @property
    def between_frames(self) -> bool:
        """True if a stream may end here."""
        return not self._rest

    @property
    def complaint(self) -> str:
        """The engine's error about the log itself; empty if there is none."""
        return self._messages.decode(errors="replace").strip()

    def feed(self, data: bytes) -> list[LogPiece]:
        """Add bytes and return the completed pieces; ValueError for malformed frames."""
        # Hot path: one frame per line, 100,000 per second.
        data = self._rest + data
        size = len(data)
        begin = 0
        within_line = self._within_line
        pieces: list[LogPiece] = []
        while size - begin >= _HEADER.size:
            head, length = _HEADER.unpack_from(data, begin)
            payload = begin + _HEADER.size
            kind = _KINDS.get(head)
            end = payload + length
            if kind is None or end - begin > _LONGEST_FRAME:
                raise ValueError(f"no frame begins with {data[begin:payload].hex()}")
            if end > size:
                break
            if kind == _SYSTEM:
                self._messages += data[payload:end][: _MAX_MESSAGES - len(self._messages)]
            else:
                text = payload + _TIME_BYTES + 1
                if text > end or data[text - 1] != _SPACE:
                    raise ValueError("a frame has no time")
                piece = LogPiece(kind, data[payload : text - 1], data[text:end])
                if data[end - 1] != _NEWLINE or kind in within_line:
                    piece = self._of_long_line(piece)
                pieces.append(piece)
            begin = end
        self._rest = data[begin:]
        return pieces

    def _of_long_line(self, piece: LogPiece) -> LogPiece:
        """Set which part of its line a piece is, and restore a missing newline."""
        stream, time, data, *_ = piece
        begins_line = stream not in self._within_line
        ends_line = data.endswith(b"\n") or len(data) < LONGEST_PIECE_BYTES
        if not ends_line:
            self._within_line.add(stream)
        else:
            self._within_line.discard(stream)
            if not begins_line and not data.endswith(b"\n"):
                data += b"\n"
        return LogPiece(stream, time, data, begins_line, ends_line)


class PullSteps:
    """Adds up the progress of a pull's layers."""

    def __init__(self) -> None:
        self._received: dict[str, int] = {}
        self._done: set[str] = set()
        self._downloading: set[str] = set()

    def add(self, step: Mapping[str, Any]) -> PullProgress:
        """Add one event and return the progress of the pull."""
        layer = step.get("id")
        status = str(step.get("status", ""))
        if layer and not status.startswith("Pulling from"):
            received = self._received.setdefault(layer, 0)
            if status == "Downloading":
                now = int((step.get("progressDetail") or {}).get("current") or 0)
                self._received[layer] = max(received, now)
                self._downloading.add(layer)
            elif not status.startswith("Retrying"):
                self._downloading.discard(layer)
            if status in {"Pull complete", "Already exists"}:
                self._done.add(layer)
        return PullProgress(
            layers=len(self._received),
            layers_done=len(self._done),
            received_bytes=sum(self._received.values()),
            downloading=len(self._downloading),
        )


def error_in(step: Mapping[str, Any]) -> str:
    """The error that a step of a pull reports, if any."""
    return str((step.get("errorDetail") or {}).get("message") or step.get("error") or "")
