"""docs/events.md lists the kinds of events as their types are."""

from collections.abc import Iterator

from controlplane.domain.events.event import Audience, Event, data_keys
from controlplane.domain.events.kinds import KINDS
from tests.support.doc_examples import ROOT

READERS = {
    Audience.ACCOUNT: "account",
    Audience.OPERATOR: "operators",
    Audience.BOTH: "account, operators",
}


def line(event: type[Event]) -> str:
    keys = ", ".join(f"`{key}`" for _, key in data_keys(event))
    text = " ".join((event.__doc__ or "").split())
    cells = (f"`{event.kind}`", event.object_type, READERS[event.audience], keys or "-", text)
    return f"| {' | '.join(cells)} |"


def lines() -> Iterator[str]:
    yield "| kind | object | concerns | `data` | meaning |"
    yield "|---|---|---|---|---|"
    yield from map(line, KINDS.values())


def test_page_lists_all_kinds_as_their_types_are() -> None:
    page = (ROOT / "docs" / "events.md").read_text("utf-8")
    table = page.split("## Kinds\n\n")[1].split("\n\n")[0]
    assert table.splitlines() == [*lines()]
