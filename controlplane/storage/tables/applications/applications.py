"""Applications in the database. `tags.py` has their tags."""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter

from controlplane.domain.access.audit import Actor
from controlplane.domain.applications.applications import Application
from controlplane.domain.applications.registries import Registry
from controlplane.domain.applications.tags import Tag
from controlplane.domain.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    UnauthorizedError,
    Violation,
)
from controlplane.domain.events.applications import ApplicationChanged, ApplicationCreated
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.statements import write_row
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.accounting.quota_use import bounded_pools, has_account
from controlplane.storage.tables.applications import registries
from controlplane.storage.tables.applications.application_regions import IN_REGION, set_regions
from controlplane.storage.tables.applications.tags import (
    enabled_tags,
    tags_with_warnings,
    withdraw_old_tags,
)
from controlplane.storage.tables.applications.warm_pools import remove_pools_elsewhere
from tiltyard.runtime.clock import to_ms

MAX_APPLICATIONS = 1000  # Per account
PORTION = 20  # Applications read per query of a list

_COLUMNS = (
    "account, name, registry, repository, tag_keep, network_mode, node_pool, regions, limits,"
    " reserved_nano_cpus, reserved_memory_bytes, reserved_gpus, ports, disk_bytes, pids,"
    " shm_bytes, stop_signal, stop_grace, capabilities, image_init, contiguous,"
    " player_events"
)
_VALUES = ", ".join(f":{column}" for column in _COLUMNS.split(", "))
_AS_JSON = ("regions", "limits", "ports", "capabilities")
_RESERVED = ("nano_cpus", "memory_bytes", "gpus")


_READER = TypeAdapter(Application)


def create(
    db: Database,
    application: Application,
    *,
    actor: Actor,
    now: float,
    violations: Sequence[Violation] = (),
) -> None:
    """Create an application without violations.

    Raises:
        UnauthorizedError: The account was removed meanwhile.
        InvalidRequestError: It has violations, or a reference is unknown.
        ConflictError: The account has an application of that name, or too many.
    """
    account = application.account
    name = application.name
    if not has_account(db, account):
        raise UnauthorizedError
    unknown = [Violation(field, f"unknown {kind}") for field, kind, _ in _unknown(db, application)]
    if violations or unknown:
        raise InvalidRequestError((*violations, *unknown))
    if get(db, account, name) is not None:
        raise ConflictError(f"an application named {name} exists already")
    sql = "SELECT count(*) FROM application WHERE account=:account"
    if db.execute(sql, {"account": account}).fetchone()[0] >= MAX_APPLICATIONS:
        text = f"the account has {MAX_APPLICATIONS} applications, the maximum"
        raise ConflictError(text)
    write_row(db, "application", _row(application) | {"created_ms": to_ms(now)})
    set_regions(db, account, name, application.regions)
    db.changed(Topic.APPLICATION, account, name)
    db.append(ApplicationCreated(account, name, actor, now))


def get(db: Database, account: str, name: str) -> Application | None:
    """Read one application of an account."""
    sql = f"SELECT {_COLUMNS} FROM application WHERE account=:account AND name=:name"  # noqa: S608
    row = db.execute(sql, {"account": account, "name": name}).fetchone()
    return _application(row) if row else None


def with_registry(db: Database, account: str, name: str) -> tuple[Application, Registry] | None:
    """Read an application and its registry."""
    application = get(db, account, name)
    registry = application and registries.get(db, application.registry)
    return (application, registry) if application and registry else None


def tagged(db: Database, key: tuple[str, str]) -> tuple[Application, tuple[Tag, ...]] | None:
    """Read the application of an account and name, and its enabled tags, by priority."""
    application = get(db, *key)
    return None if application is None else (application, enabled_tags(db, *key))


def edit(
    db: Database,
    key: tuple[str, str],
    change: Callable[[Application], Application],
    *,
    actor: Actor,
    now: float,
) -> None:
    """Change the application of an account and name; `change` is pure, and may raise.

    Raises:
        NotFoundError: There is no such application, or a new reference is unknown.
    """
    current = get(db, *key)
    if current is None:
        raise NotFoundError("application", key[1])
    changed = change(current)
    for _, kind, name in _unknown(db, changed):
        raise NotFoundError(kind, name)
    fields = [name for name, value in asdict(changed).items() if value != asdict(current)[name]]
    if fields:
        with bounded_pools(db, key[0]):
            db.execute(
                f"UPDATE application SET ({_COLUMNS}) = ({_VALUES})"  # noqa: S608
                " WHERE account=:account AND name=:name",
                _row(changed),
            )
            set_regions(db, *key, changed.regions)
            remove_pools_elsewhere(db, key, changed.regions, actor=actor, now=now)
        db.changed(Topic.APPLICATION, *key)
        db.append(ApplicationChanged(*key, actor, now, fields=fields))
        withdraw_old_tags(db, key, changed.tag_keep, actor=actor, now=now)


async def all_of(
    store: Store, account: str
) -> AsyncGenerator[list[tuple[Application, tuple[Tag, ...]]], None]:
    """Read all applications of an account by name, at most PORTION at a time.

    Each has those of its enabled tags that have warnings, by priority.
    """
    after = ""
    while True:
        found = await store.read(_portion, account, after)
        yield found
        if len(found) < PORTION:
            return
        after = found[-1][0].name


def _portion(db: Database, account: str, after: str) -> list[tuple[Application, tuple[Tag, ...]]]:
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM application"  # noqa: S608
        " WHERE account=:account AND name > :after ORDER BY name LIMIT :portion",
        {"account": account, "after": after, "portion": PORTION},
    )
    applications = [_application(row) for row in rows]
    tags = tags_with_warnings(db, account, [application.name for application in applications])
    return [(application, tags.get(application.name, ())) for application in applications]


def pooled_applications(db: Database) -> dict[tuple[str, str], Application]:
    """Read the applications that have warm pools, by account and name."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM application"  # noqa: S608
        " WHERE (account, name) IN (SELECT account, application FROM warm_pool)"
    )
    found = [_application(row) for row in rows]
    return {(one.account, one.name): one for one in found}


def newest_images(
    db: Database, region: str, node_pool: str, most: int
) -> list[tuple[Application, str]]:
    """Read applications of a region and node pool, each with the image of its newest tag.

    At most `most`: the first one of each account comes before the second one of any.
    """
    columns = ", ".join(f"application.{column}" for column in _COLUMNS.split(", "))
    rows = db.execute(
        f"SELECT {columns}, tag.image FROM application"  # noqa: S608
        " JOIN tag ON tag.account = application.account AND tag.application = application.name"
        " AND priority = (SELECT max(priority) FROM tag AS newest WHERE"
        " newest.account = application.account AND newest.application = application.name)"
        " WHERE node_pool = :node_pool"
        f" AND {IN_REGION}"
        " ORDER BY row_number() OVER (PARTITION BY application.account ORDER BY application.name),"
        " application.account LIMIT :most",
        {"region": region, "node_pool": node_pool, "most": most},
    )
    return [(_application(row[:-1]), row[-1]) for row in rows]


def _unknown(db: Database, application: Application) -> list[tuple[str, str, str]]:
    """Return an application's unknown references: field, kind and name."""
    named = [
        ("registry", "registry", application.registry),
        ("nodePool", "node pool", application.node_pool),
        *((f"regions[{n}]", "region", name) for n, name in enumerate(application.regions)),
    ]
    return [each for each in named if not _exists(db, *each[1:])]


def _exists(db: Database, kind: str, name: str) -> bool:
    table = kind.replace(" ", "_")
    sql = f"SELECT 1 FROM {table} WHERE name=:name"  # noqa: S608
    return db.execute(sql, {"name": name}).fetchone() is not None


def _row(application: Application) -> dict[str, Any]:
    fields = asdict(application)
    reserved = fields.pop("reservation")
    fields |= {f"reserved_{name}": reserved[name] for name in _RESERVED}
    return fields | {name: json.dumps(fields[name]) for name in _AS_JSON}


def _application(row: tuple[Any, ...]) -> Application:
    fields = dict(zip(_COLUMNS.split(", "), row, strict=True))
    fields |= {name: json.loads(fields[name]) for name in _AS_JSON}
    fields["reservation"] = {name: fields.pop(f"reserved_{name}") for name in _RESERVED}
    return _READER.validate_python(fields)
