"""The JSON of events, as accounts and operators get it."""

import json

import pytest

from controlplane.domain.events.positions import Position
from controlplane.domain.events.stored import EventRow, StoredEvent

ROW = EventRow(17, 1500, "session.ready", 2, "a", "id-1", "account", "192.0.2.1", 's"', '{"x": 1}')
SAME = {"id": "3-17", "type": "session.ready", "version": 2, "time": 1500, "account": "a"}


def test_account_gets_no_address() -> None:
    shown = json.loads(StoredEvent(3, ROW).for_account)
    assert shown == SAME | {"object": 's"', "actor": "id-1", "data": {"x": 1}}


def test_operators_get_the_address() -> None:
    shown = json.loads(StoredEvent(3, ROW).for_operators)
    by = {"actor": "id-1", "address": "192.0.2.1"}
    assert shown == SAME | by | {"object": 's"', "data": {"x": 1}}


@pytest.mark.parametrize("kind", ["operator", "controlplane"])
def test_account_gets_no_names_of_operators_tokens_and_agents(kind: str) -> None:
    event = StoredEvent(3, ROW._replace(actor="secret", actor_kind=kind))
    assert json.loads(event.for_account)["actor"] == kind
    assert "secret" not in event.for_account
    assert json.loads(event.for_operators)["actor"] == "secret"


def test_empty_account_and_address_are_null() -> None:
    shown = json.loads(StoredEvent(3, ROW._replace(account="", address="")).for_operators)
    assert shown["account"] is None
    assert shown["address"] is None


def test_json_is_one_line() -> None:
    event = StoredEvent(3, ROW._replace(object="a\nb\u2028\r"))
    assert event.for_account.isprintable()


OTHER_TEXTS = ["", "3", "3-", "-3", "3-17 ", "+3-17", "3-17-1", "\u0663-\u0661", "3-" + "9" * 19]


@pytest.mark.parametrize("text", OTHER_TEXTS)
def test_other_texts_are_no_position(text: str) -> None:
    assert Position.parse(text) is None


def test_position_is_read_as_it_is_written() -> None:
    assert Position.parse(str(Position(3, 17))) == (3, 17)
