"""Tags of applications and their images in the database."""

from collections.abc import Collection
from dataclasses import asdict

from controlplane.domain.access.audit import Actor
from controlplane.domain.applications.tags import Tag
from controlplane.domain.errors import ConflictError
from controlplane.domain.events.applications import TagEnabled, TagWithdrawn
from controlplane.domain.hosts.host_orders import HostImages
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.tables.applications.application_regions import IN_REGION

MAX_ENABLED_TAGS = 1000  # Per account: a host may have to keep as many images
MAX_IMAGES = 10_000  # Per account: images of withdrawn tags that hosts are asked to remove

_WANTED = (
    "SELECT tag.image, tag.account, tag.size_bytes, tag.platforms FROM tag"  # noqa: S608
    " JOIN application ON application.account = tag.account"
    " AND application.name = tag.application WHERE node_pool = :node_pool"
    f" AND {IN_REGION}"
)


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
        "INSERT INTO tag(account, application, name, digest, image, size_bytes, platforms,"
        " command, priority) VALUES (:account, :application, :name, :digest, :image, :size_bytes,"
        " :platforms, :command,"
        " (SELECT coalesce(max(priority), 0) + 1 FROM tag"
        " WHERE account=:account AND application=:application))"
        " ON CONFLICT(account, application, name) DO UPDATE SET"
        " digest=excluded.digest, image=excluded.image, size_bytes=excluded.size_bytes,"
        " platforms=excluded.platforms, command=excluded.command,"
        " priority=excluded.priority",
        values,
    )
    _note_image(db, tag.image, key[0])
    name = f"{key[1]}:{tag.name}"
    db.changed(Topic.TAG, *key)
    db.append(TagEnabled(key[0], name, actor, now, digest=tag.digest))
    withdraw_old_tags(db, key, application[0], actor=actor, now=now)
    sql = "SELECT count(*) FROM tag WHERE account=:account"
    if db.execute(sql, {"account": key[0]}).fetchone()[0] > MAX_ENABLED_TAGS:
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
    platforms: dict[str, tuple[str, ...]] = {}
    for image, account, size, names in db.execute(_WANTED, place):
        wanted.setdefault(image, set()).add(account)
        platforms[image] = tuple(names.split(","))
        sizes[image] = max(size, sizes.get(image, 0))
    known = db.execute(
        f"SELECT reference, account FROM image WHERE reference {db.dialect.in_list('present')}",  # noqa: S608
        {"present": db.dialect.list_value(sorted(present))},
    )
    surplus: dict[str, set[str]] = {}
    for image, account in known:
        if image not in wanted:
            surplus.setdefault(image, set()).add(account)
    return HostImages(wanted, surplus, sizes, platforms)


def enabled_tags(db: Database, account: str, application: str) -> tuple[Tag, ...]:
    """Read the enabled tags of an application, highest priority first."""
    sql = (
        "SELECT name, digest, image, size_bytes, platforms, command FROM tag"
        " WHERE account=:account AND application=:application"
        " ORDER BY priority DESC"
    )
    values = {"account": account, "application": application}
    return tuple(Tag(*row) for row in db.execute(sql, values))


def tags_with_warnings(
    db: Database, account: str, applications: Collection[str]
) -> dict[str, tuple[Tag, ...]]:
    """Read the enabled tags that have warnings, by application, highest priority first."""
    found: dict[str, tuple[Tag, ...]] = {}
    rows = db.execute(
        "SELECT application, name, digest, image, size_bytes, platforms, command FROM tag"  # noqa: S608
        " WHERE account=:account AND command NOT IN ('', 'program')"
        f" AND application {db.dialect.in_list('applications')} ORDER BY priority DESC",
        {"account": account, "applications": db.dialect.list_value(sorted(applications))},
    )
    for application, *row in rows:
        found[application] = (*found.get(application, ()), Tag(*row))
    return found


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
    if withdrawn:
        db.changed(Topic.TAG, *key)
    for (name,) in withdrawn:
        db.append(TagWithdrawn(key[0], f"{key[1]}:{name}", actor, now, tag_keep=keep))


def _note_image(db: Database, image: str, account: str) -> None:
    """Remember that hosts may have an image; forget the oldest ones beyond MAX_IMAGES."""
    db.execute(
        "INSERT INTO image(reference, account) VALUES (:image, :account) ON CONFLICT DO NOTHING",
        {"image": image, "account": account},
    )
    db.execute(
        "DELETE FROM image WHERE account=:account AND number <= (SELECT number FROM image"
        " WHERE account=:account ORDER BY number DESC LIMIT 1 OFFSET :most)"
        " AND reference NOT IN (SELECT image FROM tag WHERE account=:account)",
        {"account": account, "most": MAX_IMAGES},
    )
