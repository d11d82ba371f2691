"""EventSource in Chromium and in Node follow events, through a proxy that adds the token."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from controlplane.http import event_source
from controlplane.storage.engine.event_log import begin_epoch
from tests.support.controlplane.event_reader import reserve
from tests.support.controlplane.event_sources import NODE, TokenProxy, chromium, running
from tests.support.controlplane.system import System
from tests.support.controlplane.transactions import opened
from tests.support.node_programs import FOLDER, need_node, node_command

CLOSED = 2  # `readyState` of an EventSource that does not connect again

pytestmark = [
    pytest.mark.slow,
    # Of npm's package, the newest release, and an earlier one, which ignores an id without data.
    pytest.mark.parametrize("client", ["chromium", "eventsource", "eventsource-4"]),
]


@pytest.fixture
async def proxy(
    system: System, client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TokenProxy]:
    """A proxy with a client that follows the sessions of alice."""
    monkeypatch.setattr(event_source, "_SOONEST", 0.05)
    monkeypatch.setattr(event_source, "_LATEST", 0.1)
    token = await system.make_token(name="browser", scopes=["event:read"])
    async with TokenProxy(system, token) as made, following(made, client, tmp_path):
        await made.until(lambda: made.count("stream.open") == 1)
        yield made


def following(proxy: TokenProxy, client: str, folder: Path) -> AbstractAsyncContextManager[None]:
    """Run a client until the end of the block; skip the test if it is not installed."""
    if client != "chromium":
        need_node()
        return running(node_command(NODE, client, proxy.url), FOLDER)
    command = chromium(proxy, folder)
    if not command:
        pytest.skip("there is no Chromium")
    return running(command, folder)


async def test_goes_on_by_itself_after_a_restart(system: System, proxy: TokenProxy) -> None:
    await reserve(system, "a")
    await proxy.until(lambda: proxy.sessions() == ["a"])
    await system.restart()
    await reserve(system, "b")
    await proxy.until(lambda: len(proxy.sessions()) == 2)
    await reserve(system, "c")
    await proxy.until(lambda: len(proxy.sessions()) == 3)
    assert proxy.sessions() == ["a", "b", "c"]
    assert proxy.count("stream.end") == 1
    assert proxy.last_ids[0] is None
    assert None not in proxy.last_ids[1:]


async def test_goes_on_from_the_beginning_if_it_has_received_no_event(
    system: System, proxy: TokenProxy
) -> None:
    """The stream's first event has an id, so that nothing is lost in between."""
    await system.stop_serving()
    await system.serve()
    await reserve(system, "a")
    await proxy.until(lambda: proxy.sessions() == ["a"])


async def test_goes_on_after_a_gap(system: System, proxy: TokenProxy) -> None:
    await reserve(system, "a")
    await proxy.until(lambda: proxy.sessions() == ["a"])
    await system.stop_serving()
    async with opened(system.config.database) as store:
        await store.run(begin_epoch, system.clock.time())
    await system.serve()
    await proxy.until(lambda: proxy.count("stream.gap") == 1)
    await reserve(system, "b")
    await proxy.until(lambda: proxy.sessions()[-1] == "b")
    assert proxy.sessions() == ["a", "a", "b"]


async def test_ends_for_good_with_its_token(system: System, proxy: TokenProxy) -> None:
    [token] = await system.rows("SELECT id FROM token WHERE name='browser'")
    await system.call("DELETE", f"/operator/token/{token[0]}")
    await proxy.until(lambda: proxy.count("error", state=CLOSED) == 1)
    [end] = [each for each in proxy.seen if each["name"] == "stream.end"]
    assert end["data"]["why"] == "token"
