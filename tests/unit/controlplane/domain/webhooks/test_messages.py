"""Messages have the form of Standard Webhooks, and a bound."""

import json

from controlplane.domain.webhooks.messages import MAX_BODY, event_message, own_message

TIME = 1_800_000_000.25


def event(size: int = 0) -> str:
    data = {"labels": {"mode": "duel"}, "filler": "é" * size}
    return json.dumps({"id": "3-17", "type": "session.ready", "object": "m", "data": data})


def test_message_of_an_event() -> None:
    message = event_message("w", "3-17", kind="session.ready", time=TIME, event=event())
    assert message.id == "msg_w_3-17"
    assert message.kind == "session.ready"
    assert json.loads(message.body) == {
        "type": "session.ready",
        "timestamp": "2027-01-15T08:00:00.250Z",
        "data": json.loads(event()),
    }


def test_event_that_is_too_large_is_sent_without_its_data() -> None:
    large = event(size=MAX_BODY // 6)
    message = event_message("w", "3-17", kind="session.ready", time=TIME, event=large)
    assert len(message.body) < MAX_BODY
    sent = json.loads(message.body)["data"]
    assert sent["object"] == "m"
    assert sent["data"] is None
    assert sent["dataOmitted"] is True


def test_event_just_below_the_bound_is_sent_whole() -> None:
    large = event(size=(MAX_BODY - 300) // 6)
    message = event_message("w", "3-17", kind="session.ready", time=TIME, event=large)
    assert MAX_BODY - 300 < len(message.body) < MAX_BODY
    assert "dataOmitted" not in json.loads(message.body)["data"]


def test_message_of_its_own() -> None:
    message = own_message("w", "test-1", kind="webhook.test", time=TIME, data={"webhook": "w"})
    assert message.id == "msg_w_test-1"
    assert json.loads(message.body)["data"] == {"webhook": "w"}
