"""Image registries."""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TakenPrefix:
    """A prefix of repository names that already means the registry `owner`."""

    prefix: str
    owner: str


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

    def taken_prefix(self, others: Iterable["Registry"]) -> TakenPrefix | None:
        """Return the first of these prefixes that another registry has, regardless of case."""
        owners = {prefix.lower(): other.name for other in others for prefix in other.prefixes}
        for prefix in self.prefixes:
            if prefix.lower() in owners:
                return TakenPrefix(prefix, owners[prefix.lower()])
        return None

    def may_pass_on_password(self, wanted: "Registry") -> bool:
        """Return whether this version's password may be kept for the version `wanted`.

        It may not if the password could reach another host (by address, resolution or certificate
        authority) or serve another user name.
        """
        return (
            bool(self.sealed)
            and wanted.address.lower() == self.address.lower()
            and (wanted.username, wanted.ca) == (self.username, self.ca)
            and set(wanted.auth_hosts) <= set(self.auth_hosts)
            and wanted.private <= self.private
        )
