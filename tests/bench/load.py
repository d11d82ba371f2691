"""HTTP load from a separate process, and the statistics of its results."""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.bench import load_process

_ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT = 600
_PROCESS = [sys.executable, "-m", load_process.__name__]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request; `expect` is the expected status."""

    method: str
    path: str
    expect: int
    body: str = ""

    def encoded(self, token: str) -> str:
        """Return the request as sent; ASCII."""
        body = f"Content-Type: application/json\r\nContent-Length: {len(self.body)}\r\n"
        return (
            f"{self.method} {self.path} HTTP/1.1\r\nHost: bench\r\n"
            f"Authorization: Bearer {token}\r\n{body if self.body else ''}\r\n{self.body}"
        )


@dataclass(frozen=True, slots=True)
class Load:
    """Result: total seconds, milliseconds per request, and the bodies of 201 responses."""

    seconds: float
    times: list[float]
    bodies: list[str]

    @property
    def rate(self) -> float:
        """Responses per second."""
        return len(self.times) / self.seconds


def run_load(url: str, asks: Sequence[Ask], *, callers: int, token: str = "") -> Load:
    """Send all requests; each caller sends its next once the last is answered.

    RuntimeError if a response is not the expected one.
    """
    done = subprocess.run(
        _PROCESS,
        cwd=_ROOT,
        input=json.dumps(_input(url, asks, callers, token)),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the load ended with {done.returncode}: {done.stderr.strip()}")
    return Load(**json.loads(done.stdout))


@contextmanager
def a_flood(url: str, asks: Sequence[Ask], *, callers: int, token: str = "") -> Iterator[None]:
    """Send the requests repeatedly until the context ends. RuntimeError if they stop earlier."""
    with subprocess.Popen(
        [*_PROCESS, load_process.ENDLESS],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as flood:
        assert flood.stdin is not None
        assert flood.stdout is not None
        try:
            flood.stdin.write(json.dumps(_input(url, asks, callers, token)))
            flood.stdin.close()
            began = flood.stdout.readline()
            yield
            if began.strip() != load_process.BEGUN or flood.poll() is not None:
                raise RuntimeError("the flood ended before its time")
        finally:
            flood.terminate()


def _input(url: str, asks: Sequence[Ask], callers: int, token: str) -> dict[str, object]:
    """Return the input of the load process."""
    address = urlsplit(url)
    sent = [(ask.encoded(token), ask.expect) for ask in asks]
    return {"host": address.hostname, "port": address.port, "callers": callers, "asks": sent}


def rate(loads: Iterable[Load]) -> float:
    """Return the median of the responses per second."""
    return statistics.median(load.rate for load in loads)


def percentile(values: Sequence[float], per_cent: int) -> float:
    """Return the smallest value that this percentage of values does not exceed."""
    ranked = sorted(values)
    return ranked[-(-len(ranked) * per_cent // 100) - 1]
