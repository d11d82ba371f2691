"""Attempts reach nothing but allowed addresses, and hosts with a certificate of their name."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from controlplane.domain.webhooks.retries import Outcome
from controlplane.webhooks import resolver
from tests.support.certificates import SERVES, Signer, self_signed, trusting
from tests.unit.controlplane.webhooks.raw_endpoint import OK, Endpoint, address_of, send, serving


@pytest.mark.parametrize("host", ["127.0.0.1", "[::ffff:127.0.0.1]", "[::1]", "0x7f.1"])
async def test_private_address_is_refused_without_a_connection(
    endpoint: Endpoint, stack: AsyncExitStack, host: str
) -> None:
    await endpoint.answer(OK)
    answer = await send(stack, f"http://{host}:{endpoint.port}/", networks=())
    assert answer.outcome is Outcome.FORBIDDEN
    assert answer.error == "its host has an address that is not public"
    assert endpoint.connections == 0


async def test_name_that_cannot_be_encoded_cannot_be_looked_up(stack: AsyncExitStack) -> None:
    answer = await send(stack, "https://xn--a/")
    assert answer.outcome is Outcome.UNREACHABLE
    assert answer.error == "its name cannot be looked up"


def names(monkeypatch: pytest.MonkeyPatch, *looks: list[str]) -> list[str]:
    """Let each look at any name find the next of these addresses; return what is looked at."""
    left = list(looks)
    asked: list[str] = []

    def look_up(host: str) -> list[tuple[int, int, str]]:
        asked.append(host)
        if not left:
            raise OSError("no such name")
        return [(2, 6, address) for address in left.pop(0)]

    monkeypatch.setattr(resolver, "look_up", look_up)
    return asked


async def test_name_with_a_private_address_is_refused(
    endpoint: Endpoint, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    await endpoint.answer(OK)
    names(monkeypatch, ["127.0.0.1"])
    answer = await send(stack, f"http://hooks.example:{endpoint.port}/", networks=())
    assert answer.outcome is Outcome.FORBIDDEN
    assert endpoint.connections == 0


async def test_name_with_one_private_address_among_others_is_refused(
    endpoint: Endpoint, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    await endpoint.answer(OK)
    names(monkeypatch, ["127.0.0.1", "10.0.0.1"])
    answer = await send(stack, f"http://hooks.example:{endpoint.port}/")
    assert answer.outcome is Outcome.FORBIDDEN
    assert endpoint.connections == 0


async def test_connection_is_made_to_the_address_that_was_checked(
    endpoint: Endpoint, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that has another address at the second look is looked up once per attempt."""
    await endpoint.answer(OK)
    asked = names(monkeypatch, ["127.0.0.1"], ["10.0.0.1"])
    url = f"http://hooks.example:{endpoint.port}/"
    assert (await send(stack, url)).outcome is Outcome.DELIVERED
    assert asked == ["hooks.example"]
    assert (await send(stack, url)).outcome is Outcome.FORBIDDEN
    assert asked == ["hooks.example"] * 2
    assert endpoint.connections == 1


async def test_unknown_name_is_a_failure(
    stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    names(monkeypatch)
    answer = await send(stack, "http://hooks.example/")
    assert answer.outcome is Outcome.UNREACHABLE
    assert answer.error == "its name cannot be looked up"


async def test_proxy_of_the_environment_is_not_used(
    endpoint: Endpoint, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Endpoint(stack)
    await proxy.answer(OK)
    monkeypatch.setenv("http_proxy", address_of(proxy, ""))
    await endpoint.answer(OK)
    await send(stack, address_of(endpoint))
    assert endpoint.connections == 1
    assert proxy.connections == 0


@pytest.mark.parametrize(
    ("hosts", "outcome"),
    [
        (["hooks.example"], Outcome.DELIVERED),
        (["other.example"], Outcome.UNTRUSTED),
        (["127.0.0.1"], Outcome.UNTRUSTED),
    ],
)
async def test_certificate_is_checked_against_the_host_of_the_url(
    endpoint: Endpoint,
    stack: AsyncExitStack,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    hosts: list[str],
    outcome: Outcome,
) -> None:
    authority = Signer.new()
    await endpoint.answer(OK, tls=serving(authority.sign(SERVES, hosts=hosts), tmp_path))
    names(monkeypatch, ["127.0.0.1"])
    url = f"https://hooks.example:{endpoint.port}/"
    answer = await send(stack, url, tls=trusting(authority.certificate))
    assert answer.outcome is outcome


async def test_certificate_of_an_unknown_authority_is_refused(
    endpoint: Endpoint,
    stack: AsyncExitStack,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    party = self_signed(SERVES, hosts=["hooks.example"])
    await endpoint.answer(OK, tls=serving(party, tmp_path))
    names(monkeypatch, ["127.0.0.1"])
    answer = await send(stack, f"https://hooks.example:{endpoint.port}/")
    assert answer.outcome is Outcome.UNTRUSTED
    assert endpoint.requests == []
