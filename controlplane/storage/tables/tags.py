"""Tags of applications and their images in the database."""

import json
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field

from controlplane.domain.errors import ConflictError
from controlplane.storage.engine.store import Actor, Database, record_event

MAX_ENABLED_TAGS = 1000  # Per account: a host may have to keep as many images
MAX_IMAGES = 10_000  # Per account: images of withdrawn tags that hosts are asked to remove

_WANTED = (
    "SELECT tag.image, tag.account, tag.size_bytes FROM tag"
    " JOIN application ON application.account = tag.account"
    " AND application.name = tag.application WHERE node_pool = :node_pool"
    " AND EXISTS (SELECT 1 FROM json_each(regions) WHERE json_each.value = :region)"
)


@dataclass(frozen=True, slots=True)
class Tag:
    """An enabled tag; `image` is the reference by digest that agents are given.

    `size_bytes`: of its compressed layers, as the registry declares them; 0 if unknown.
    """

    name: str
    digest: str
    image: str
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class HostImages:
    """Images that a host must have, and those of withdrawn tags that it may remove."""

    wanted: Mapping[str, AbstractSet[str]]
    """By image the accounts that have it enabled."""
    surplus: Mapping[str, AbstractSet[str]]
    """By image the accounts that had it enabled; "" for removed accounts."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Compressed bytes of wanted images; 0 if unknown."""


def enable_tag(db: Database, key: tuple[str, str], tag: Tag, *, actor: Actor, now: float) -> bool:
    """Make a tag of an account's application the newest; older ones may be withdrawn.

    False if the application is gone, or has another registry or repository than `tag`.

    Raises:
        ConflictError: The account would have more than MAX_ENABLED_TAGS enabled tags.
    """
    sql = (
        "SELECT tag_keep FROM application JOIN registry ON registry.name = application.registry"
        " WHERE account=:account AND application.name=:application"
        " AND address || '/' || repository || '@' || :digest = :image"
    )
    values = {"account": key[0], "application": key[1], **asdict(tag)}
    application = db.execute(sql, values).fetchone()
    if application is None:
        return False
    db.execute(
        "INSERT INTO tag(account, application, name, digest, image, size_bytes, priority)"
        " VALUES (:account, :application, :name, :digest, :image, :size_bytes,"
        " (SELECT coalesce(max(priority), 0) + 1 FROM tag"
        " WHERE account=:account AND application=:application)) ON CONFLICT DO UPDATE SET"
        " digest=excluded.digest, image=excluded.image, size_bytes=excluded.size_bytes,"
        " priority=excluded.priority",
        values,
    )
    _note_image(db, tag.image, key[0])
    name = f"{key[1]}:{tag.name}"
    record_event(db, "tag.enabled", key[0], name, actor=actor, now=now, digest=tag.digest)
    withdraw_old_tags(db, key, application[0], actor=actor, now=now)
    sql = "SELECT count(*) FROM tag WHERE account=?"
    if db.execute(sql, (key[0],)).fetchone()[0] > MAX_ENABLED_TAGS:
        text = f"the account has {MAX_ENABLED_TAGS} enabled tags, the maximum"
        raise ConflictError(text)
    return True


def images_of(db: Database, region: str, node_pool: str, present: Collection[str]) -> HostImages:
    """Compare the images on a host of a region and node pool with the enabled tags.

    Only images that once had a tag are surplus.
    """
    place = {"node_pool": node_pool, "region": region}
    wanted: dict[str, set[str]] = {}
    sizes: dict[str, int] = {}
    for image, account, size in db.execute(_WANTED, place):
        wanted.setdefault(image, set()).add(account)
        sizes[image] = max(size, sizes.get(image, 0))
    known = db.execute(
        "SELECT reference, account FROM image WHERE reference IN (SELECT value FROM json_each(?))",
        (json.dumps(sorted(present)),),
    )
    surplus: dict[str, set[str]] = {}
    for image, account in known:
        if image not in wanted:
            surplus.setdefault(image, set()).add(account)
    return HostImages(wanted, surplus, sizes)


def enabled_tags(db: Database, account: str, application: str) -> tuple[Tag, ...]:
    """Read the enabled tags of an application, highest priority first."""
    sql = (
        "SELECT name, digest, image FROM tag WHERE account=:account AND application=:application"
        " ORDER BY priority DESC"
    )
    values = {"account": account, "application": application}
    return tuple(Tag(*row) for row in db.execute(sql, values))


def withdraw_old_tags(
    db: Database, key: tuple[str, str], keep: int, *, actor: Actor, now: float
) -> None:
    """Withdraw all but the newest tags of an application."""
    withdrawn = db.execute(
        "DELETE FROM tag WHERE account=:account AND application=:application AND name NOT IN"
        " (SELECT name FROM tag WHERE account=:account AND application=:application"
        " ORDER BY priority DESC LIMIT :keep) RETURNING name",
        {"account": key[0], "application": key[1], "keep": keep},
    ).fetchall()
    for (name,) in withdrawn:
        record_event(
            db, "tag.withdrawn", key[0], f"{key[1]}:{name}", actor=actor, now=now, tagKeep=keep
        )


def _note_image(db: Database, image: str, account: str) -> None:
    """Remember that hosts may have an image; forget the oldest ones beyond MAX_IMAGES."""
    db.execute("INSERT OR IGNORE INTO image(reference, account) VALUES (?, ?)", (image, account))
    db.execute(
        "DELETE FROM image WHERE account=:account AND rowid <= (SELECT rowid FROM image"
        " WHERE account=:account ORDER BY rowid DESC LIMIT 1 OFFSET :most)"
        " AND reference NOT IN (SELECT image FROM tag WHERE account=:account)",
        {"account": account, "most": MAX_IMAGES},
    )
