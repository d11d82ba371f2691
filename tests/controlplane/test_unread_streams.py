"""Streams between the programs whose reader does not read."""

from collections.abc import Iterator

from tests.support.controlplane.system import System

MESSAGE = b"x" * 1024
MOST_AHEAD = 1000  # Messages of 1 KiB that may be on their way; gRPC's defaults allow thousands
ROUND_TRIPS = 20  # Other calls of the connection without a message that show a standstill


class Counted:
    """An endless log that counts what was taken from it."""

    def __init__(self) -> None:
        self.count = 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self.count += 1
            yield MESSAGE


async def test_a_stream_runs_little_ahead_of_its_reader(system: System) -> None:
    endless = Counted()
    system.agent.logs = endless  # type: ignore[assignment]  # it is only iterated over
    client = system.link().state.client
    chunks = client.stream_logs("any", follow=False)
    for _ in range(1000):  # the connection learns how fast its reader is
        await anext(chunks)
    before = -1
    while before != endless.count:
        before = endless.count
        for _ in range(ROUND_TRIPS):
            await client.set_shapes(())
    assert endless.count - 1000 <= MOST_AHEAD
    await chunks.aclose()
