"""Image registries in the database, and their logins."""

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from controlplane.domain.access.audit import Actor
from controlplane.domain.applications.registries import Registry
from controlplane.domain.errors import ConflictError, InvalidRequestError, StoreError, Violation
from controlplane.domain.events.fleet import RegistrySet
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.statements import write_row

_NOT_KEPT = "must be given: none is stored for this username, address, authHosts, private and ca"
_COLUMNS = "name, address, aliases, username, sealed_password, auth_hosts, private, ca"
_ALL = f"SELECT {_COLUMNS} FROM registry"  # noqa: S608  # a constant


def find(db: Database) -> dict[str, Registry]:
    """Read all registries by name."""
    return {row[0]: _registry(row) for row in db.execute(_ALL)}


def get(db: Database, name: str) -> Registry | None:
    """Read one registry."""
    row = db.execute(f"{_ALL} WHERE name = :name", {"name": name}).fetchone()
    return _registry(row) if row else None


def at(db: Database, address: str) -> Registry | None:
    """Read the registry of an address; host names are case-insensitive."""
    sql = f"{_ALL} WHERE lower(address) = lower(:address)"
    row = db.execute(sql, {"address": address}).fetchone()
    return _registry(row) if row else None


def counted(db: Database) -> list[tuple[Registry, int]]:
    """Read all registries by name, with their numbers of applications."""
    count = "(SELECT count(*) FROM application WHERE application.registry = registry.name)"
    sql = f"SELECT {_COLUMNS}, {count} FROM registry ORDER BY name"  # noqa: S608  # constants
    return [(_registry(row[:-1]), row[-1]) for row in db.execute(sql)]


def put(db: Database, wanted: Registry, actor: Actor, now: float) -> None:
    """Create or replace a registry.

    With a user name and no password it keeps its password, if that is allowed. Enabled tags keep
    the address that they were enabled with.

    Raises:
        ConflictError: Another registry claims its address or one of its aliases.
        InvalidRequestError: There is no password for this user at this address.
    """
    found = find(db)
    current = found.pop(wanted.name, None)
    taken = wanted.taken_prefix(found.values())
    if taken is not None:
        raise ConflictError(f"registry {taken.owner!r} has {taken.prefix} already")
    given = bool(wanted.sealed)
    if wanted.username and not given:
        if current is None or not current.may_pass_on_password(wanted):
            raise InvalidRequestError((Violation("password", _NOT_KEPT),))
        wanted = replace(wanted, sealed=current.sealed)
    if wanted == current:
        return
    _write(db, wanted)
    db.append(
        RegistrySet(
            "",
            wanted.name,
            actor,
            now,
            address=wanted.address,
            aliases=wanted.aliases,
            username=wanted.username or None,
            password_given=given,
            auth_hosts=wanted.auth_hosts,
            private=wanted.private,
            ca=bool(wanted.ca),
        )
    )


def _registry(row: tuple[Any, ...]) -> Registry:
    name, address, aliases, username, sealed, auth_hosts, private, ca = row
    names = tuple(json.loads(aliases))
    hosts = tuple(json.loads(auth_hosts))
    return Registry(name, address, names, username, sealed or b"", hosts, bool(private), ca)


def _write(db: Database, registry: Registry) -> None:
    row = asdict(registry)
    row["sealed_password"] = row.pop("sealed") or None
    row |= {name: json.dumps(row[name]) for name in ("aliases", "auth_hosts")}
    if write_row(db, "registry", row, "name"):
        db.changed(Topic.REGISTRY, registry.name)


def declare_registries(db: Database, declared: Iterable[Registry]) -> None:
    """Write the registries of the settings file.

    Raises:
        StoreError: One has the address of a registry that was created through the API.
    """
    by_name = {registry.name: registry for registry in declared}
    created = [registry for name, registry in find(db).items() if name not in by_name]
    for registry in by_name.values():
        _write(db, registry)
        taken = registry.taken_prefix(created)
        if taken is not None:
            raise StoreError(
                f"cannot declare registry {registry.name!r}: {taken.owner!r}, created through the"
                f" API, has {taken.prefix}: remove the one from the settings file, or start"
                " without it and change or remove the other"
            )
