"""The translations of a host's containers, on a table in memory."""

import errno
import logging
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent.domain.sessions.session import Port, Session
from agent.network.conntrack import Flows, translated_flows
from agent.network.sources import source_translation
from agent.network.sources.nat_rules import ContainerEndpoint, Guard, PublicEndpoint, Translations
from agent.network.sources.source_translation import KnownAddresses, SourceTranslation
from tests.support.agent.samples import a_session
from tests.support.fake_clock import FakeClock
from tiltyard.contract import Protocol

PUBLIC = bytes([192, 0, 2, 1])
BIND = bytes([192, 0, 2, 2])
LOOPBACK = bytes([127, 0, 0, 1])
PUBLIC6 = bytes.fromhex("20010db8000000000000000000000001")
LOOPBACK6 = bytes(15) + b"\1"
ONE6 = bytes.fromhex("20010db8002000000000000000000002")
ONE = bytes([172, 17, 0, 2])
TWO = bytes([172, 17, 0, 3])
UDP = 17
TCP = 6
KNOWN = KnownAddresses("192.0.2.1", "192.0.2.2")
GUARD = Guard(("docker0",), (20000, 20999))
REFUSED = PermissionError(errno.EPERM, "Operation not permitted")


@dataclass
class FakeTable:
    """The kernel's table. `flushed`: flows; `failures`: the errors of the next calls."""

    content: dict[ContainerEndpoint, PublicEndpoint] | None = None
    failures: list[OSError] = field(default_factory=list)
    made: int = 0
    guards: list[Guard] = field(default_factory=list)
    flushed: list[Flows] = field(default_factory=list)

    def read(self) -> dict[ContainerEndpoint, PublicEndpoint] | None:
        self._fail()
        return None if self.content is None else dict(self.content)

    def make(self, guard: Guard) -> None:
        self._fail()
        self.content = {}
        self.made += 1
        self.guards.append(guard)

    def set_rules(self, guard: Guard) -> None:
        self._fail()
        self.guards.append(guard)

    def change(self, remove: Translations, add: Translations) -> None:
        self._fail()
        if self.content is None or not remove.keys() <= self.content.keys():
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        for private in remove:
            del self.content[private]
        if add.keys() & self.content.keys():
            raise FileExistsError(errno.EEXIST, "File exists")
        self.content |= add

    def forget(self, flows: Iterable[Flows]) -> None:
        self.flushed.extend(flows)

    def close(self) -> None:
        pass

    def vanish(self) -> None:
        self.content = None

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)


@dataclass
class Site:
    """A host with its table and its translation."""

    table: FakeTable
    own: set[bytes]
    reconciled: bool = True
    known: KnownAddresses = KNOWN
    translation: SourceTranslation = field(init=False)
    begun: list[SourceTranslation] = field(default_factory=list)

    def begin(self) -> SourceTranslation:
        """Begin with an agent that knows nothing of the table."""
        table: Any = self.table
        self.translation = SourceTranslation(
            self.known,
            GUARD,
            FakeClock(),
            is_reconciled=lambda: self.reconciled,
            notify=lambda: None,
            table=table,
        )
        self.begun.append(self.translation)
        return self.translation


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    site = Site(FakeTable(), {LOOPBACK, PUBLIC, BIND})
    # Threads may wait for a busy machine.
    monkeypatch.setattr(source_translation, "WAIT_SECONDS", 60.0)
    monkeypatch.setattr(source_translation, "own_addresses", lambda: frozenset(site.own))
    site.begin()
    yield site
    for translation in site.begun:
        await translation.finish()


def playing(*ports: Port) -> Session:
    return a_session().with_changes(ports=ports)


def at(address: str, ipv6_address: str = "") -> Session:
    """What has these addresses of a container."""
    return a_session().with_changes(address=address, ipv6_address=ipv6_address)


def udp(host: int, container: int = 7777) -> Port:
    return Port(container, Protocol.UDP, host)


def led(*translations: tuple[bytes, int, int, int]) -> dict[ContainerEndpoint, PublicEndpoint]:
    """Translations to the public address, by container address, protocol, its port and ours."""
    return {
        ContainerEndpoint(address, protocol, port): PublicEndpoint(PUBLIC, host)
        for address, protocol, port, host in translations
    }


async def test_container_is_translated_until_its_end(site: Site) -> None:
    session = playing(udp(20000))
    await site.translation.open(session, at("172.17.0.2"))
    assert site.table.content == led((ONE, UDP, 7777, 20000))
    await site.translation.close(session.made_for)
    assert site.table.content == {}
    assert site.table.flushed == [translated_flows(20000)]
    assert site.translation.warnings == ()


async def test_container_without_an_address_leaves_the_kernel_alone(site: Site) -> None:
    await site.translation.open(playing(udp(20000)), at(""))
    await site.translation.look()
    assert site.table.content is None


async def test_address_given_to_another_container_loses_all_of_the_first(site: Site) -> None:
    first = playing(udp(20000), udp(20001, 7778))
    await site.translation.open(first, at("172.17.0.2"))
    await site.translation.open(playing(udp(20002)), at("172.17.0.2"))
    assert site.table.content == led((ONE, UDP, 7777, 20002))
    await site.translation.close(first.made_for)
    assert site.table.content == led((ONE, UDP, 7777, 20002))


async def test_container_restarted_with_another_address_loses_the_former(site: Site) -> None:
    session = playing(udp(20000))
    await site.translation.open(session, at("172.17.0.2"))
    await site.translation.open(session, at("172.17.0.3"))
    assert site.table.content == led((TWO, UDP, 7777, 20000))


async def test_session_keeps_the_translation_of_its_prepared_container(site: Site) -> None:
    template = playing(udp(20000)).with_changes(prepared="p", internal_id="p")
    await site.translation.open(template, at("172.17.0.2"))
    session = template.with_changes(internal_id="s")
    await site.translation.close(session.made_for)
    assert site.table.content == {}


async def test_removed_table_is_restored_by_the_next_look(site: Site) -> None:
    await site.translation.open(playing(udp(20000)), at("172.17.0.2"))
    await site.translation.open(playing(udp(20001)), at("172.17.0.3"))
    expected = site.table.content
    site.table.vanish()
    await site.translation.look()
    assert site.table.content == expected


async def test_start_succeeds_on_a_table_that_others_have_changed(site: Site) -> None:
    first = playing(udp(20000))
    await site.translation.open(first, at("172.17.0.2"))
    site.table.vanish()
    await site.translation.open(playing(udp(20001)), at("172.17.0.3"))
    assert site.table.content == led((TWO, UDP, 7777, 20001))
    await site.translation.close(first.made_for)
    assert site.translation.warnings == ()


async def test_what_an_earlier_agent_left_is_removed_once_it_is_surely_left(site: Site) -> None:
    of_another_agent = led((TWO, UDP, 7777, 30000))
    site.table.content = led((ONE, UDP, 7777, 20000)) | of_another_agent
    before = dict(site.table.content)
    site.reconciled = False
    await site.translation.look()
    await site.translation.look()
    assert site.table.content == before
    site.reconciled = True
    site.begin()
    await site.translation.look()
    assert site.table.content == before
    await site.translation.look()
    assert site.table.content == of_another_agent
    assert site.table.flushed == [translated_flows(20000)]


async def test_adopted_session_keeps_what_is_there(site: Site) -> None:
    session = playing(udp(20000))
    await site.translation.open(session, at("172.17.0.2"))
    site.begin()
    await site.translation.look()
    await site.translation.open(session, at("172.17.0.2"))
    await site.translation.look()
    assert site.table.content == led((ONE, UDP, 7777, 20000))
    assert site.table.flushed == []
    assert site.table.made == 1
    assert site.table.guards == [GUARD, GUARD]


async def test_rules_of_an_earlier_agent_are_replaced_once(site: Site) -> None:
    site.table.content = {}
    await site.translation.look()
    assert site.table.guards == []
    await site.translation.open(playing(udp(20000)), at("172.17.0.2"))
    await site.translation.look()
    assert site.table.guards == [GUARD]
    assert site.table.made == 0


async def test_players_of_ipv6_alone_are_known_by_the_ipv6_address_of_a_container(
    site: Site,
) -> None:
    site.own.add(PUBLIC6)
    site.known = KnownAddresses("2001:db8::1", "::")
    translation = site.begin()
    await translation.open(playing(udp(20000)), at("172.17.0.2", "2001:db8:20::2"))
    await translation.open(playing(udp(20001)), at("172.17.0.3"))
    source = ContainerEndpoint(ONE6, UDP, 7777)
    assert site.table.content == {source: PublicEndpoint(PUBLIC6, 20000)}


async def test_public_address_that_comes_later_is_used_from_then_on(site: Site) -> None:
    site.own = {LOOPBACK}
    await site.translation.open(playing(udp(20000)), at("172.17.0.2"))
    assert site.table.content == {ContainerEndpoint(ONE, UDP, 7777): PublicEndpoint(b"", 20000)}
    site.own = {LOOPBACK, PUBLIC}
    await site.translation.look()
    assert site.table.content == led((ONE, UDP, 7777, 20000))


async def test_failure_is_one_warning_until_a_success(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    site.table.failures = [REFUSED] * 4
    await site.translation.open(playing(udp(20000)), at("172.17.0.2"))
    await site.translation.look()
    [warning] = site.translation.warnings
    assert "Operation not permitted" in warning
    assert "CAP_NET_ADMIN" in warning
    assert len(caplog.messages) == 1
    site.table.failures = []
    await site.translation.look()
    assert site.translation.warnings == ()
    assert site.table.content == led((ONE, UDP, 7777, 20000))
