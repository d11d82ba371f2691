"""Parses authentication challenges and token responses of registries, which may be hostile."""

import json
import math
import re
from collections.abc import Sequence

from yarl import URL

from controlplane.registries.endpoint import Endpoint, UnusableError, base_url

MAX_CHALLENGE_CHARACTERS = 4096  # Of all challenges in a response; real ones have a few hundred

TOKEN_LIFETIME = 60.0
MAX_TOKEN_LIFETIME = 3600.0
"""Default and maximum lifetime of a token, in seconds."""

# RFC 9110, section 11.6.1: a scheme, or a parameter. Possessive: no backtracking.
_PART = re.compile(
    r"([!#$%&'*+.^_`|~0-9A-Za-z-]++)"
    r'(?:[ \t]*+=[ \t]*+(?:"((?:[^"\\]|\\.)*+)"|([^ \t",]++)))?'
)
_ESCAPED = re.compile(r"\\(.)")
_TOKEN = re.compile(r"[!-~]+\Z", re.ASCII)


def read_challenges(headers: Sequence[str]) -> dict[str, dict[str, str]]:
    """Parse `WWW-Authenticate` headers into the parameters of each scheme, names in lower case.

    A header may contain several challenges: a name without `=` starts the next one. The first of
    duplicate schemes or parameters wins.

    Raises:
        UnusableError: The headers are too long.
    """
    if sum(map(len, headers)) > MAX_CHALLENGE_CHARACTERS:
        raise UnusableError("its challenges are too long")
    found: dict[str, dict[str, str]] = {}
    for header in headers:
        parameters: dict[str, str] = {}
        for match in _PART.finditer(header):
            name, quoted, plain = match.groups()
            if quoted is None and plain is None:
                parameters = {}
                found.setdefault(name.lower(), parameters)
            else:
                value = plain if quoted is None else _ESCAPED.sub(r"\1", quoted)
                parameters.setdefault(name.lower(), value)
    return found


def checked_realm(endpoint: Endpoint, realm: str) -> URL:
    """Return a realm as a URL if it is on the registry's host or in `auth_hosts`.

    Raises:
        UnusableError: Another host, or not a URL.
    """
    try:
        url = URL(realm)
        named = (url.scheme, url.host, url.port)
    except ValueError:
        raise UnusableError("its realm is not a URL") from None
    allowed = [base_url(host) for host in (endpoint.address, *endpoint.auth_hosts)]
    if named not in [(base.scheme, base.host, base.port) for base in allowed]:
        why = f"its realm {url.host!r} is neither its own host nor in auth_hosts"
        raise UnusableError("it names another host for the log-in", why)
    return url.with_user(None).with_fragment(None)


def read_token(body: bytes) -> tuple[str, float]:
    """Parse a token response: the token and its lifetime in seconds.

    Raises:
        UnusableError: Not a token response.
    """
    try:
        answer = json.loads(body)
        token = answer.get("token") or answer["access_token"]
        lifetime = float(answer.get("expires_in") or TOKEN_LIFETIME)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, OverflowError):
        raise UnusableError("its token service returned no token") from None
    if not isinstance(token, str) or not _TOKEN.match(token) or not math.isfinite(lifetime):
        raise UnusableError("its token service returned no token")
    return token, min(lifetime, MAX_TOKEN_LIFETIME)
