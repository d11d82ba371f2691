"""The schemas of events in /openapi.json, and their examples."""

import json
from typing import Any

import jsonschema_rs
import pytest

from controlplane.api.event_examples import example_of
from controlplane.api.event_schemas import (
    ACCOUNT_EVENT,
    OPERATOR_EVENT,
    component_of,
    event_components,
)
from controlplane.domain.events.event import Audience, Event
from controlplane.domain.events.kinds import KINDS
from controlplane.domain.events.stored import EventRow, StoredEvent
from tests.controlplane.test_openapi import DOCUMENT
from tests.support.controlplane.system import System, eventually_equals


def validator(component: str) -> Any:
    schema = {"$ref": f"#/components/schemas/{component}", "components": DOCUMENT["components"]}
    return jsonschema_rs.Draft202012Validator(schema)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.kind)
def test_example_of_each_kind_is_valid(kind: type[Event]) -> None:
    example = example_of(kind)
    validator(component_of(kind)).validate(example)
    validator(OPERATOR_EVENT).validate(example)
    assert validator(ACCOUNT_EVENT).is_valid(example) == (kind.audience is not Audience.OPERATOR)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.kind)
def test_schema_rejects_other_data(kind: type[Event]) -> None:
    example = example_of(kind)
    check = validator(component_of(kind))
    assert not check.is_valid(example | {"type": "other.kind"})
    for key in example["data"]:
        without = {name: value for name, value in example["data"].items() if name != key}
        assert not check.is_valid(example | {"data": without})
        assert not check.is_valid(example | {"data": example["data"] | {key: object_no_field_is}})


object_no_field_is = {"no": {"field": ["is", "this"]}}


def test_names_of_components_are_those_of_no_model() -> None:
    names = event_components().keys()
    models = DOCUMENT["components"]["schemas"].keys() - names
    assert not names & models
    assert len(names) >= len(KINDS) + 2


def test_accounts_get_webhooks_of_their_kinds_alone() -> None:
    shown = {kind.kind for kind in KINDS.values() if kind.audience is not Audience.OPERATOR}
    assert DOCUMENT["webhooks"].keys() == shown
    [content] = DOCUMENT["webhooks"]["session.ready"]["post"]["requestBody"]["content"].values()
    delivered = {
        "type": "session.ready",
        "timestamp": "2026-01-01T00:00:00Z",
        "data": example_of(KINDS["session.ready"]),
    }
    schema = content["schema"] | {"components": DOCUMENT["components"]}
    jsonschema_rs.Draft202012Validator(schema).validate(delivered)


@pytest.mark.system(application={})
async def test_events_that_were_written_are_valid(system: System) -> None:
    (await system.start(id="x", labels={"mode": "duel"})).expect(201)
    (await system.call("DELETE", "/session/x")).expect(204)
    system.agent.change_host(disk_full=True)
    await eventually_equals(lambda: system.events("agent.disk_full", "object"), [("a0",)])
    columns = ", ".join(EventRow._fields).replace("sequence", "sequence")
    rows = await system.rows(f"SELECT {columns} FROM event")
    assert len(rows) > 10
    for row in rows:
        event = StoredEvent(3, EventRow(*row))
        component = component_of(KINDS[event.kind])
        validator(component).validate(json.loads(event.for_operators))
        validator(component).validate(json.loads(event.for_account))
