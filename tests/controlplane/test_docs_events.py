"""docs/events.md lists the kinds of events as their types are, each with an example."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

from controlplane.api.event_examples import example_of
from controlplane.domain.events.event import Audience, Event, data_keys
from controlplane.domain.events.kinds import KINDS
from controlplane.domain.events.sessions import SessionEvent
from tests.support.doc_examples import ROOT

READERS = {
    Audience.ACCOUNT: "account",
    Audience.OPERATOR: "operators",
    Audience.BOTH: "account, operators",
}
OF_ALL_SESSIONS = tuple(key for _, key in data_keys(SessionEvent))
"""The page names these fields once."""
WIDTH = 120


def line(event: type[Event]) -> str:
    known = OF_ALL_SESSIONS if issubclass(event, SessionEvent) else ()
    keys = ", ".join(f"`{key}`" for _, key in data_keys(event) if key not in known)
    text = " ".join((event.__doc__ or "").split())
    cells = (f"`{event.kind}`", event.object_type, READERS[event.audience], keys or "-", text)
    return f"| {' | '.join(cells)} |"


def lines() -> Iterator[str]:
    yield "| kind | object | concerns | `data` | meaning |"
    yield "|---|---|---|---|---|"
    yield from map(line, KINDS.values())


def wrapped(example: dict[str, Any]) -> Iterator[str]:
    """An example as JSON, in lines of WIDTH."""
    data = example["data"]
    head = json.dumps({key: value for key, value in example.items() if key != "data"})
    parts = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in data.items()]
    first, second = head.split(', "account"')
    yield f"{first},"
    yield f'  "account"{second[:-1]}, "data": {{' + ("" if parts else "}}")
    current = ""
    for number, part in enumerate(parts, start=1):
        piece = part + ("," if number < len(parts) else "}}")
        if current and len(current) + len(piece) + 3 > WIDTH:
            yield f"  {current}"
            current = ""
        current = f"{current} {piece}" if current else piece
    if current:
        yield f"  {current}"


def examples() -> Iterator[str]:
    """A block of each topic, with an example of each of its kinds."""
    for topic, kinds in itertools.groupby(KINDS, lambda kind: kind.split(".")[0]):
        yield f"### {topic}"
        yield ""
        yield "```json"
        for kind in kinds:
            yield from wrapped(example_of(KINDS[kind]))
        yield "```"
        yield ""


def page() -> str:
    return (ROOT / "docs" / "events.md").read_text("utf-8")


def test_page_lists_all_kinds_as_their_types_are() -> None:
    table = page().split("## Kinds\n\n")[1].split("\n\n")[0]
    assert table.splitlines() == [*lines()]


def test_page_names_the_fields_of_all_sessions() -> None:
    text = page().split("## Kinds")[0]
    assert all(f"`{key}`" in text for key in OF_ALL_SESSIONS)


def test_page_has_an_example_of_each_kind() -> None:
    section = page().split("## Examples\n\n")[1].split("\n## ")[0]
    assert (
        section.split("\n\n", 1)[1].rstrip().splitlines()
        == "\n".join(examples()).rstrip().splitlines()
    )


def test_examples_of_the_page_are_the_json_of_events() -> None:
    blocks = page().split("## Examples\n\n")[1].split("\n## ")[0].split("```json\n")[1:]
    decoder = json.JSONDecoder()
    found = []
    for block in blocks:
        text = block.split("\n```")[0].strip()
        while text:
            event, end = decoder.raw_decode(text)
            found.append(event)
            text = text[end:].lstrip()
    assert found == [example_of(kind) for kind in KINDS.values()]
