"""Reading queries: known parameters are strict and come once, unknown ones are ignored."""

import re

from aiohttp import web

from controlplane.errors import InvalidRequestError, Violation
from controlplane.session_store import SessionFilter

_TRUE, _FALSE = frozenset({"true", "1"}), frozenset({"false", "0"})
_INTEGER = re.compile(r"[+-]?[0-9]{1,4000}\Z", re.ASCII)
MAX_FILTERS = 32


class Query:
    """The query of one request; collects violations until `finish`."""

    def __init__(self, request: web.Request) -> None:
        """Take the decoded pairs of the request."""
        self._query = request.query
        self._violations: list[Violation] = []

    def text(self, name: str) -> str | None:
        """Read an optional parameter."""
        values = self._query.getall(name, [])
        if len(values) > 1:
            self._refuse(name, "is repeated")
        if values and not values[0]:
            self._refuse(name, "must not be empty")
        return values[0] if values else None

    def required(self, name: str) -> str:
        """Read a parameter that must be there."""
        value = self.text(name)
        if value is None:
            self._refuse(name, "is required")
        return value or ""

    def flag(self, name: str) -> bool:
        """Read an optional boolean, false when absent."""
        value = (self.text(name) or "false").lower()
        if value not in _TRUE | _FALSE:
            self._refuse(name, "must be true or false")
        return value in _TRUE

    def integer(self, name: str) -> int | None:
        """Read an optional integer of any size."""
        value = self.text(name)
        if value is None:
            return None
        if not _INTEGER.match(value):
            self._refuse(name, "must be an integer")
            return None
        return int(value)

    def record(self, name: str) -> dict[str, str]:
        """Read `name[key]=value` pairs."""
        prefix = f"{name}["
        keys = [key for key in dict.fromkeys(self._query) if key.startswith(prefix)]
        if len(keys) > MAX_FILTERS:
            self._refuse(name, f"has more than {MAX_FILTERS} keys")
            return {}
        found: dict[str, str] = {}
        for key in keys:
            inner, values = key[len(prefix) : -1], self._query.getall(key)
            if not key.endswith("]") or not inner or "[" in inner or "]" in inner:
                self._refuse(key, "must have the form filter[key]=value")
            elif len(values) > 1:
                self._refuse(key, "is repeated")
            found[inner] = values[0]
        return found

    def refuse_all(self, name: str, description: str) -> None:
        """Refuse a parameter and every `name[…]`."""
        for key in dict.fromkeys(self._query):
            if key == name or key.startswith(f"{name}["):
                self._refuse(key, description)

    def allow_keys(self, name: str, allowed: frozenset[str]) -> None:
        """Refuse `name` itself and every `name[…]` but the allowed ones."""
        for key in dict.fromkeys(self._query):
            if key == name or (key.startswith(f"{name}[") and key not in allowed):
                self._refuse(key, "is not known")

    def absolute_path(self, name: str, value: str, max_bytes: int) -> None:
        """Refuse a value that is not an absolute Unix path."""
        if value and (not value.startswith("/") or "\0" in value):
            self._refuse(name, "must be an absolute path")
        if len(value.encode(errors="replace")) > max_bytes:
            self._refuse(name, f"must have at most {max_bytes} bytes")

    def finish(self) -> None:
        """End the reading.

        Raises:
            InvalidRequestError: Something did not fit.
        """
        if self._violations:
            raise InvalidRequestError(tuple(self._violations))

    def _refuse(self, field: str, description: str) -> None:
        self._violations.append(Violation(field, description))


def read_session_filter(request: web.Request, account: str) -> SessionFilter:
    """Read the query of GET /session."""
    query = Query(request)
    query.refuse_all("filterNot", "is not supported")
    query.allow_keys("playerCount", frozenset({"playerCount[lt]", "playerCount[gt]"}))
    query.allow_keys("filter", frozenset(k for k in request.query if k.startswith("filter[")))
    wanted = SessionFilter(
        account=account,
        ended_too=query.flag("all"),
        location=query.text("location"),
        application=query.text("image"),
        tag=query.text("tag"),
        host=query.text("host"),
        labels=query.record("filter"),
        more_players_than=query.integer("playerCount[gt]"),
        fewer_players_than=query.integer("playerCount[lt]"),
    )
    query.finish()
    return wanted
