from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.errors import StoreError
from controlplane.domain.hosts.contract import HostSession, TicketContents
from controlplane.pki.tickets import TicketKey, make_ticket, read_ticket
from tests.support.fake_clock import FakeClock
from tests.unit.controlplane.fleet.host.test_state import SESSION
from tiltyard.contract import Identity, Resources

KEY = bytes(range(32))
IDENTITY = SESSION.identity
ISSUED = 1_767_225_600
ISSUED_MS = ISSUED * 1000
PLACED = TicketContents(ISSUED_MS, 2 * 10**9, 2**30)

texts = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), max_size=4)
numbers = st.integers(0, 2)
labels = st.dictionaries(texts, texts, max_size=2)
orders = st.tuples(texts, texts, st.lists(texts, min_size=6, max_size=6), labels, numbers, numbers)
Order = tuple[str, str, list[str], dict[str, str], int, int]


def ticket_of(order: Order) -> str:
    agent, internal_id, names, labelled, issued_ms, nano_cpus = order
    account, session_id, application, tag, location, external_id = names
    identity = Identity(
        account, session_id, application, tag, location, labels=labelled, external_id=external_id
    )
    placed = TicketContents(issued_ms, nano_cpus, 1)
    return make_ticket(KEY, agent, internal_id, identity=identity, placed=placed)


@given(orders, orders)
def test_tickets_differ_by_all_that_was_placed(one: Order, other: Order) -> None:
    assert (ticket_of(one) == ticket_of(other)) == (one == other)


TICKET = make_ticket(KEY, "h", "i", identity=IDENTITY, placed=PLACED)
GOOD = replace(SESSION, identity=replace(IDENTITY, ticket=TICKET), create_time=ISSUED)


def changed(**changes: Any) -> HostSession:
    return replace(GOOD, identity=replace(GOOD.identity, **changes))


def test_ticket_says_what_was_placed() -> None:
    assert read_ticket(KEY, "h", GOOD) == PLACED


def test_ticket_is_valid_whatever_resources_its_host_reports() -> None:
    """The session is adopted with those of the ticket."""
    assert read_ticket(KEY, "h", replace(GOOD, reservation=Resources(7, 7))) == PLACED


@pytest.mark.parametrize(
    "session",
    [
        replace(GOOD, internal_id="other"),
        changed(account="b"),
        changed(session_id="t"),
        changed(application="g"),
        changed(tag="v2"),
        changed(location="elsewhere"),
        changed(external_id="x"),
        changed(labels={"a": "b"}),
        changed(ticket=""),
        changed(ticket=TICKET[:40]),
        changed(ticket=TICKET + "00"),
        changed(ticket=(ISSUED_MS + 1).to_bytes(8, "big").hex() + TICKET[16:]),
        changed(ticket=TICKET[:16] + (1).to_bytes(8, "big").hex() + TICKET[32:]),
        changed(ticket=TICKET[:32] + (1).to_bytes(8, "big").hex() + TICKET[48:]),
    ],
)
def test_ticket_of_something_else_is_invalid(session: HostSession) -> None:
    assert read_ticket(KEY, "h", session) is None


def test_ticket_is_valid_only_for_its_key_and_host() -> None:
    assert read_ticket(KEY, "other", GOOD) is None
    assert read_ticket(bytes(32), "h", GOOD) is None


@pytest.mark.parametrize(
    ("hours", "valid"),
    [
        (-10_000, True),
        (0, True),
        (24, True),
        (25, False),
        (10_000, False),
    ],
)
def test_ticket_covers_sessions_that_began_at_most_a_day_later(hours: int, valid: bool) -> None:
    """A claimed standby began earlier, and a host's clock may be ahead."""
    session = replace(GOOD, create_time=ISSUED + hours * 3600)
    assert (read_ticket(KEY, "h", session) is not None) is valid


async def opened(path: Path) -> TicketKey:
    key = TicketKey(path, FakeClock(1.0))
    await key.open()
    return key


async def test_key_is_created_once_in_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "state" / "ticket.key"
    first = await opened(path)
    again = await opened(path)
    assert path.stat().st_mode & 0o777 == 0o600
    order = ("h", "i", IDENTITY, Resources(1, 1))
    assert first.ticket(*order) == again.ticket(*order)
    other = await opened(tmp_path / "other.key")
    assert first.ticket(*order) != other.ticket(*order)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"short",
        bytes(33),
    ],
)
async def test_damaged_key_is_reported_and_not_replaced(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "ticket.key"
    path.write_bytes(damaged)
    with pytest.raises(StoreError, match="is damaged"):
        await opened(path)
    assert path.read_bytes() == damaged
