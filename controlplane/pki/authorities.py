"""The certificate authorities of a deployment: the signing one and, during a rotation, the former.

Both are stored in one file that is replaced atomically.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from controlplane.pki.authority import Authority

_BEGIN_OF_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")


@dataclass(frozen=True, slots=True)
class Authorities:
    """`current` signs; `former` is None except during a rotation."""

    current: Authority
    former: Authority | None = None

    @classmethod
    def from_pem(cls, text: bytes) -> Self:
        """Parse the output of `to_pem`.

        Raises:
            ValueError: Not one or two authorities.
        """
        begins = [found.start() for found in _BEGIN_OF_KEY.finditer(text)]
        if len(begins) > 2:
            raise ValueError("it has more than two keys")
        if len(begins) < 2:
            return cls(Authority.from_pem(text))
        return cls(Authority.from_pem(text[: begins[1]]), Authority.from_pem(text[begins[1] :]))

    def to_pem(self) -> bytes:
        """Return keys and certificates, the current authority first."""
        return b"".join(authority.to_pem() for authority in self)

    def __iter__(self) -> Iterator[Authority]:
        """Iterate over the trusted authorities, the current one first."""
        yield self.current
        if self.former is not None:
            yield self.former

    @property
    def trusted(self) -> bytes:
        """The trusted certificates as PEM text, without keys."""
        return b"".join(authority.certificate for authority in self)

    def of(self, fingerprint: str | None) -> Authority:
        """Return the authority with this fingerprint, else the current one."""
        return next((one for one in self if one.fingerprint == fingerprint), self.current)

    def rotated(self, now: float) -> Self:
        """Begin a rotation: create a new current authority and keep the old one as `former`."""
        return type(self)(Authority.create(now), self.current)

    def finished(self) -> Self:
        """Finish a rotation: drop `former`."""
        return type(self)(self.current)
