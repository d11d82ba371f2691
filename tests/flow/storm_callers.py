"""Callers who all ask at once, in a process of their own: they share no event loop with the API.

Called with the API's address and how many they are; the tokens come as JSON on standard input, and
what came of each start goes as JSON to standard output.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import NamedTuple

import aiohttp

AT_ONCE = 250
"""Connections that are opened at the same time, so that the listener's backlog holds them."""


class Outcome(NamedTuple):
    """What came of one start."""

    account: str
    status: int
    details: str
    retry_after: int


async def outcomes(url: str, count: int, tokens: dict[str, str]) -> list[Outcome]:
    """Start sessions over connections that are all open before the first of them asks."""
    accounts = sorted(tokens)
    opened, everybody_is = asyncio.Semaphore(AT_ONCE), asyncio.Barrier(count)

    async def call(number: int) -> Outcome:
        account = accounts[number % len(accounts)]
        connector = aiohttp.TCPConnector(limit=1)
        headers = {"Authorization": f"Bearer {tokens[account]}"}
        async with aiohttp.ClientSession(
            url, connector=connector, headers=headers, timeout=aiohttp.ClientTimeout()
        ) as http:
            async with opened, http.get("/healthz") as alive:
                await alive.read()
            await everybody_is.wait()
            body = {"location": "local", "image": "game", "id": str(number)}
            async with http.post("/session", json=body) as answer:
                told = await answer.json()
                retry_after = int(answer.headers.get("Retry-After", 0))
                return Outcome(account, answer.status, told.get("details", ""), retry_after)

    return await asyncio.gather(*map(call, range(count)))


def main(arguments: Sequence[str]) -> None:
    url, count = arguments
    made = asyncio.run(outcomes(url, int(count), json.load(sys.stdin)))
    sys.stdout.write(json.dumps(made))


if __name__ == "__main__":
    main(sys.argv[1:])
