"""Image registries in the database, and their logins."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from controlplane.domain.errors import ConflictError, InvalidRequestError, StoreError, Violation
from controlplane.settings.registries import RegistryConfig
from controlplane.storage.engine.statements import write_row
from controlplane.storage.engine.store import Actor, Database, record_event

_NOT_KEPT = "must be given: none is stored for this username, address, authHosts, private and ca"
_COLUMNS = "name, address, aliases, username, sealed_password, auth_hosts, private, ca"
_ALL = f"SELECT {_COLUMNS} FROM registry"  # noqa: S608  # a constant


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry that the operator configured; `address` is `host[:port]`.

    `registries/endpoint.py` describes the login fields; `sealed` is the password as sealed by
    `registries/vault.py`, empty without a `username`.
    """

    name: str
    address: str
    aliases: tuple[str, ...]
    username: str = ""
    sealed: bytes = field(default=b"", repr=False)
    auth_hosts: tuple[str, ...] = ()
    private: bool = False
    ca: str = field(default="", repr=False)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Prefixes of repository names that mean this registry."""
        return (self.address, *self.aliases)

    def may_pass_on_password(self, wanted: "Registry") -> bool:
        """Return whether this version's password may be kept for another version.

        Not if it could reach another host (by address, resolution or certificate authority) or
        serve another user name. Pure.
        """
        return (
            bool(self.sealed)
            and wanted.address.lower() == self.address.lower()
            and (wanted.username, wanted.ca) == (self.username, self.ca)
            and set(wanted.auth_hosts) <= set(self.auth_hosts)
            and wanted.private <= self.private
        )


def find(db: Database) -> dict[str, Registry]:
    """Read all registries by name."""
    return {row[0]: _registry(row) for row in db.execute(_ALL)}


def get(db: Database, name: str) -> Registry | None:
    """Read one registry."""
    row = db.execute(f"{_ALL} WHERE name = ?", (name,)).fetchone()
    return _registry(row) if row else None


def at(db: Database, address: str) -> Registry | None:
    """Read the registry of an address; host names are case-insensitive."""
    row = db.execute(f"{_ALL} WHERE address = ? COLLATE NOCASE", (address,)).fetchone()
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
    claimed = _find_claim(wanted, found.values())
    if claimed is not None:
        raise ConflictError(f"registry {claimed[1]!r} has {claimed[0]} already")
    given = bool(wanted.sealed)
    if wanted.username and not given:
        if current is None or not current.may_pass_on_password(wanted):
            raise InvalidRequestError((Violation("password", _NOT_KEPT),))
        wanted = replace(wanted, sealed=current.sealed)
    if wanted == current:
        return
    _write(db, wanted)
    record_event(
        db,
        "registry.set",
        "",
        wanted.name,
        actor=actor,
        now=now,
        address=wanted.address,
        aliases=wanted.aliases,
        username=wanted.username or None,
        passwordGiven=given,
        authHosts=wanted.auth_hosts,
        private=wanted.private,
        ca=bool(wanted.ca),
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
    write_row(db, "registry", row, "name")


def _find_claim(wanted: Registry, others: Iterable[Registry]) -> tuple[str, str] | None:
    """Find an address or alias that another registry has, and the other's name."""
    taken = {prefix.lower(): other.name for other in others for prefix in other.prefixes}
    found = (prefix for prefix in wanted.prefixes if prefix.lower() in taken)
    return next(((prefix, taken[prefix.lower()]) for prefix in found), None)


def declare(db: Database, entries: Iterable[RegistryConfig], sealed: Mapping[str, bytes]) -> None:
    """Write the registries of the settings file.

    Raises:
        StoreError: One has the address of a registry created through the API.
    """
    declared = {
        entry.name: Registry(**entry.model_dump(), ca=entry.ca, sealed=sealed.get(entry.name, b""))
        for entry in entries
    }
    made = [each for name, each in find(db).items() if name not in declared]
    for registry in declared.values():
        _write(db, registry)
        claimed = _find_claim(registry, made)
        if claimed is not None:
            raise StoreError(
                f"cannot declare registry {registry.name!r}: {claimed[1]!r}, created through the"
                f" API, has {claimed[0]}: remove the one from the settings file, or start without"
                " it and change or remove the other"
            )
