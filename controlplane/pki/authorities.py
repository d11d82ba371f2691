"""The authorities that a deployment trusts: one that signs, and the former one while hosts move.

Both are one file, replaced whole, so that a rotation has begun or not, and is over or not. Pure
but for the randomness of keys.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from controlplane.pki.authority import Authority

_BEGIN_OF_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")


@dataclass(frozen=True, slots=True)
class Authorities:
    """`current` signs; `former` is None but during a rotation."""

    current: Authority
    former: Authority | None = None

    @classmethod
    def from_pem(cls, text: bytes) -> Self:
        """Read what `to_pem` wrote, and a file of one authority.

        Raises:
            ValueError: It is something else.
        """
        begins = [found.start() for found in _BEGIN_OF_KEY.finditer(text)]
        if len(begins) > 2:
            raise ValueError("it has more keys than two")
        if len(begins) < 2:
            return cls(Authority.from_pem(text))
        return cls(Authority.from_pem(text[: begins[1]]), Authority.from_pem(text[begins[1] :]))

    def to_pem(self) -> bytes:
        """Write the keys and the certificates, those of the current one first."""
        return b"".join(authority.to_pem() for authority in self)

    def __iter__(self) -> Iterator[Authority]:
        """Give those that are trusted, the current one first."""
        yield self.current
        if self.former is not None:
            yield self.former

    @property
    def trusted(self) -> bytes:
        """The certificates as PEM text, for everybody."""
        return b"".join(authority.certificate for authority in self)

    def of(self, fingerprint: str | None) -> Authority:
        """Give the one of a fingerprint; the current one where it is none of these."""
        return next((one for one in self if one.fingerprint == fingerprint), self.current)

    def rotated(self, now: float) -> Self:
        """Have a new one sign from now on; hosts are still to move to it."""
        return type(self)(Authority.create(now, self.current.life), self.current)

    def finished(self) -> Self:
        """Trust the current one alone."""
        return type(self)(self.current)
