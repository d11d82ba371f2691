"""The state of tags on hosts and in regions as the log describes it: a change is one event."""

import json
from collections.abc import Collection, Iterable

from controlplane.domain.access.audit import ITSELF, Actor
from controlplane.domain.applications.pulls import PullState
from controlplane.domain.applications.tag_places import (
    Available,
    Failed,
    Pulled,
    TagKey,
    TagNews,
    TagPlace,
    WrittenState,
)
from controlplane.domain.events.applications import TagAvailable, TagFailed, TagPulled
from controlplane.storage.engine.database import Database

_TAGS = (
    "SELECT tag.account, tag.application, tag.name, tag.digest, tag.image, region, node_pool"
    " FROM tag JOIN application ON application.account = tag.account"
    " AND application.name = tag.application JOIN application_region"
    " ON application_region.account = tag.account"
    " AND application_region.application = tag.application"
)
_KEY = "account=:account AND application=:application AND tag=:name"
_CURRENT = (
    "FROM tag WHERE account=:account AND application=:application AND name=:name"
    " AND digest=:digest AND EXISTS (SELECT 1 FROM account WHERE account.name=:account"
    " AND removed_ms IS NULL)"
)
"""Selects a tag that was neither withdrawn nor enabled for another image since it was read."""


def tags_in_places(
    db: Database,
    images: Collection[str],
    applications: Iterable[tuple[str, str]],
    agents: Collection[str],
) -> list[TagPlace]:
    """Read the tags of images, those of applications, and those that the log has on agents."""
    found = db.execute(
        f"{_TAGS} WHERE tag.image {db.dialect.in_list('images')}",
        {"images": db.dialect.list_value(sorted(images))},
    ).fetchall()
    found += db.execute(
        f"{_TAGS} WHERE (tag.account, tag.application, tag.name) IN"  # noqa: S608
        " (SELECT account, application, tag FROM tag_on_host"
        f" WHERE agent {db.dialect.in_list('agents')})",
        {"agents": db.dialect.list_value(sorted(agents))},
    )
    for account, application in applications:
        found += db.execute(
            f"{_TAGS} WHERE tag.account=:account AND tag.application=:application",
            {"account": account, "application": application},
        )
    return [*dict.fromkeys(TagPlace(*row) for row in found)]


def written_on_hosts(
    db: Database, images: Collection[str], agents: Collection[str]
) -> dict[tuple[TagKey, str], str]:
    """Read which tags of these images are on agents as the log says, with their digests.

    CROSS JOIN, since SQLite would read all tags of each agent otherwise.
    """
    rows = db.execute(
        "SELECT tag.account, tag.application, name, agent, tag_on_host.digest"  # noqa: S608
        " FROM tag CROSS JOIN tag_on_host WHERE tag_on_host.account = tag.account"
        " AND tag_on_host.application = tag.application AND tag_on_host.tag = tag.name"
        f" AND tag.image {db.dialect.in_list('images')}"
        f" AND agent {db.dialect.in_list('agents')}",
        {
            "images": db.dialect.list_value(sorted(images)),
            "agents": db.dialect.list_value(sorted(agents)),
        },
    )
    return {((account, name, tag), agent): digest for account, name, tag, agent, digest in rows}


def written_in_regions(
    db: Database, images: Collection[str]
) -> dict[tuple[TagKey, str], WrittenState]:
    """Read what the log has of the tags of these images, by tag and region."""
    rows = db.execute(
        "SELECT tag.account, tag.application, name, region, there.digest, node_pool, available,"  # noqa: S608
        " reasons FROM tag JOIN tag_in_region AS there ON there.account = tag.account"
        " AND there.application = tag.application AND there.tag = tag.name"
        f" WHERE tag.image {db.dialect.in_list('images')}",
        {"images": db.dialect.list_value(sorted(images))},
    )
    return {
        ((account, application, tag), region): WrittenState(
            digest, node_pool, bool(available), frozenset(json.loads(reasons))
        )
        for account, application, tag, region, digest, node_pool, available, reasons in rows
    }


def note_news(db: Database, news: Iterable[TagNews], now: float) -> None:
    """Write news of tags; those that the log has already, or of withdrawn tags, are no events."""
    for each in news:
        match each:
            case Pulled():
                _note_pulled(db, each, now)
            case Available():
                _note_available(db, each.tag, now)
            case Failed():
                _note_failed(db, each, now)


def _note_pulled(db: Database, news: Pulled, now: float) -> None:
    tag = news.tag
    values = {**tag._asdict(), "agent": news.agent}
    if not news.is_present:
        db.execute(f"DELETE FROM tag_on_host WHERE {_KEY} AND agent=:agent", values)  # noqa: S608
        return
    written = db.execute(
        "INSERT INTO tag_on_host(account, application, tag, agent, digest)"  # noqa: S608
        f" SELECT account, application, name, :agent, digest {_CURRENT}"
        " AND EXISTS (SELECT 1 FROM agent WHERE agent.name=:agent AND removed_ms IS NULL)"
        " ON CONFLICT(account, application, tag, agent) DO UPDATE SET digest=excluded.digest"
        " WHERE tag_on_host.digest <> excluded.digest",
        values,
    )
    if written.rowcount:
        place = {"agent": news.agent, "region": tag.region, "digest": tag.digest}
        db.append(TagPulled(tag.account, _name(tag), Actor(news.agent), now, **place))


def _note_available(db: Database, tag: TagPlace, now: float) -> None:
    if _write_state(db, tag, is_available=True, reasons=()):
        place = {"region": tag.region, "digest": tag.digest}
        db.append(TagAvailable(tag.account, _name(tag), ITSELF, now, **place))


def _note_failed(db: Database, news: Failed, now: float) -> None:
    tag = news.tag
    row = db.execute(
        f"SELECT reasons FROM tag_in_region WHERE {_KEY} AND region=:region"  # noqa: S608
        " AND digest=:digest AND node_pool=:node_pool AND available=FALSE",
        tag._asdict(),
    ).fetchone()
    known = set() if row is None else set(json.loads(row[0]))
    if not _write_state(db, tag, is_available=False, reasons=known | {news.reason}):
        return
    pull = PullState.FAILED if news.reason else PullState.NO_ROOM
    place = {"region": tag.region, "digest": tag.digest, "pull": pull.value}
    reason = news.reason or None
    db.append(TagFailed(tag.account, _name(tag), Actor(news.agent), now, **place, reason=reason))


def _write_state(
    db: Database, tag: TagPlace, *, is_available: bool, reasons: Collection[str]
) -> bool:
    """Return whether the state of a tag in a region is another one now."""
    values = {
        **tag._asdict(),
        "available": is_available,
        "reasons": json.dumps(sorted(reasons)),
    }
    written = db.execute(
        "INSERT INTO tag_in_region(account, application, tag, region, digest, node_pool,"  # noqa: S608
        " available, reasons) SELECT account, application, name, :region, digest, :node_pool,"
        f" :available, :reasons {_CURRENT}"
        " ON CONFLICT(account, application, tag, region) DO UPDATE SET digest=excluded.digest,"
        " node_pool=excluded.node_pool, available=excluded.available, reasons=excluded.reasons"
        " WHERE (tag_in_region.digest, tag_in_region.node_pool, tag_in_region.available,"
        " tag_in_region.reasons) IS DISTINCT FROM (excluded.digest, excluded.node_pool,"
        " excluded.available, excluded.reasons)",
        values,
    )
    return bool(written.rowcount)


def _name(tag: TagPlace) -> str:
    return f"{tag.application}:{tag.name}"
