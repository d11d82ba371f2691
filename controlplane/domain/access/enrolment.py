"""Enrolment of hosts: the request, the place that a token is for, and the certificate."""

from dataclasses import dataclass

from controlplane.domain.errors import UnauthorizedError


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a token's host; `agent` is set if it enrols again."""

    region: str
    node_pool: str
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class EnrolmentRequest:
    """The request of a host to be enrolled.

    `signing_request` is PEM text. The host will be dialled at `address`, and expects to belong to
    `region` and `node_pool` if it names them.
    """

    token: str
    signing_request: str
    name: str
    address: str
    region: str | None = None
    node_pool: str | None = None


class BadEnrolmentTokenError(UnauthorizedError):
    """The token is invalid; `why` is for the log alone."""

    why: str

    def __str__(self) -> str:
        return self.why


@dataclass(frozen=True, slots=True)
class Issued:
    """An agent's certificate as PEM text; `authority` is the fingerprint of its issuer."""

    certificate: bytes
    serial: str
    expire: float
    authority: str
