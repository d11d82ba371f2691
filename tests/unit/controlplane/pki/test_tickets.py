from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.errors import StoreError
from controlplane.pki.tickets import TicketKey, is_valid, make_ticket
from tests.support.fake_clock import FakeClock
from tests.unit.controlplane.fleet.host.test_state import SESSION
from tiltyard.contract import Identity

KEY = bytes(range(32))
IDENTITY = SESSION.identity
ISSUED = 1_767_225_600
ISSUED_MS = ISSUED * 1000

texts = st.text(max_size=4).filter(lambda text: text.isprintable())
placed = st.tuples(texts, texts, texts, texts, texts, st.integers(0, 2))
Placed = tuple[str, str, str, str, str, int]


def ticket_of(fields: Placed, key: bytes = KEY) -> str:
    agent, internal_id, account, session_id, application, issued_ms = fields
    identity = replace(IDENTITY, account=account, session_id=session_id, application=application)
    return make_ticket(key, agent, internal_id, identity=identity, issued_ms=issued_ms)


@given(placed, placed)
def test_tickets_differ_by_session_host_and_time(one: Placed, other: Placed) -> None:
    assert (ticket_of(one) == ticket_of(other)) == (one == other)


def test_ticket_is_valid_only_for_its_key_and_session() -> None:
    def holds(key: bytes, agent: str, identity: Identity, create_time: float = ISSUED) -> bool:
        return is_valid(key, agent, replace(SESSION, identity=identity, create_time=create_time))

    good = replace(
        IDENTITY, ticket=make_ticket(KEY, "h", "i", identity=IDENTITY, issued_ms=ISSUED_MS)
    )
    assert holds(KEY, "h", good)
    assert not holds(KEY, "other", good)
    assert not holds(bytes(32), "h", good)
    assert not holds(KEY, "h", IDENTITY)
    assert not holds(KEY, "h", replace(good, account="b"))
    assert not holds(KEY, "h", replace(good, session_id="t"))
    assert not holds(KEY, "h", replace(good, application="g"))
    assert holds(KEY, "h", replace(good, tag="v2", labels={"a": "b"}, external_id="x"))
    later = (ISSUED_MS + 1).to_bytes(8, "big").hex() + good.ticket[16:]
    assert not holds(KEY, "h", replace(good, ticket=later))


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
    ticket = make_ticket(KEY, "h", "i", identity=IDENTITY, issued_ms=ISSUED_MS)
    session = replace(SESSION, identity=replace(IDENTITY, ticket=ticket))
    assert is_valid(KEY, "h", replace(session, create_time=ISSUED + hours * 3600)) is valid


async def opened(path: Path) -> TicketKey:
    key = TicketKey(path, FakeClock(1.0))
    await key.open()
    return key


async def test_key_is_created_once_in_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "state" / "ticket.key"
    first = await opened(path)
    again = await opened(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert first.ticket("h", "i", IDENTITY) == again.ticket("h", "i", IDENTITY)
    other = await opened(tmp_path / "other.key")
    assert first.ticket("h", "i", IDENTITY) != other.ticket("h", "i", IDENTITY)


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
