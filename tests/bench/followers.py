"""`python -m tests.bench.followers URL TOKEN SESSION COUNT SECONDS`: many followers of one log.

Prints JSON: for each line written while all followed, the seconds from its timestamp until the
last follower had it.
"""

import asyncio
import json
import re
import sys
import time
from collections import defaultdict
from datetime import datetime

import aiohttp
import click

_LINE = re.compile(rb"(\d{6,}) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) tick\n")
_LATE_SECONDS = 20.0  # Extra time for the last lines to arrive


class _Follower:
    """A reader that notes when it received each line."""

    def __init__(self) -> None:
        self.had: dict[tuple[bytes, bytes], float] = {}
        """Unix time of arrival, by a line's number and timestamp."""
        self.began = asyncio.Event()

    async def follow(self, client: aiohttp.ClientSession, session: str) -> None:
        """Read until cancelled; ConnectionError if the stream ends earlier."""
        query = {"id": session, "follow": "true"}
        async with client.get("/logs", params=query, raise_for_status=True) as answer:
            rest = b""
            async for data in answer.content.iter_any():
                now = time.time()
                rest += data
                for found in _LINE.finditer(rest):
                    self.had[found[1], found[2]] = now
                rest = rest[rest.rfind(b"\n") + 1 :]
                self.began.set()
        raise ConnectionError("the stream has ended")


async def _lags(url: str, token: str, session: str, count: int, seconds: float) -> list[float]:
    """Follow a session with `count` readers for `seconds`; return the lags of its lines."""
    followers = [_Follower() for _ in range(count)]
    headers = {"Authorization": f"Bearer {token}"}
    unlimited, forever = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(
            url, headers=headers, connector=unlimited, timeout=forever
        ) as client,
        asyncio.TaskGroup() as group,
    ):
        tasks = [group.create_task(each.follow(client, session)) for each in followers]
        for each in followers:
            await each.began.wait()
        begin = time.time()
        await asyncio.sleep(seconds)
        end = time.time()
        lines = await _all_have(followers, begin, end)
        for task in tasks:
            task.cancel()
    return lines


async def _all_have(followers: list[_Follower], begin: float, end: float) -> list[float]:
    """Wait until all have the lines written in this time; return their lags."""
    for _ in range(int(_LATE_SECONDS)):
        arrivals: dict[tuple[bytes, bytes], list[float]] = defaultdict(list)
        for each in followers:
            for line, time_had in each.had.items():
                if begin <= _written(line) <= end:
                    arrivals[line].append(time_had)
        if arrivals and all(len(had) == len(followers) for had in arrivals.values()):
            return [max(had) - _written(line) for line, had in arrivals.items()]
        await asyncio.sleep(1)
    raise TimeoutError(f"not all had every line {_LATE_SECONDS:g} s after the last was written")


def _written(line: tuple[bytes, bytes]) -> float:
    return datetime.fromisoformat(line[1].decode()).timestamp()


if __name__ == "__main__":
    url, token, session, count, seconds = sys.argv[1:]
    found = asyncio.run(_lags(url, token, session, int(count), float(seconds)))
    click.echo(json.dumps(found))
