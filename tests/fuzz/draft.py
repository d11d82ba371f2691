"""A request in parts, how it becomes bytes, and which statuses may answer it."""

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import unquote

from controlplane.api.routes import ROUTES
from controlplane.domain.tokens import OPERATOR_SCOPES, Scope, grants
from tests.fuzz.templates import TEMPLATES, Template
from tests.support.strict_json import NotJsonError, read

HOLDERS: dict[str, frozenset[Scope]] = {
    "alice": frozenset(Scope) - OPERATOR_SCOPES,
    "bob": frozenset(Scope) - OPERATOR_SCOPES,
    "operator": OPERATOR_SCOPES,
    "reader": frozenset({Scope.SESSION_READ}),
    "starter": frozenset({Scope.SESSION_START}),
    "expired": frozenset(),
    "revoked": frozenset(),
    "spare": frozenset(),
}
"""The tokens of the world by name, and what each may do; `{{name}}` in a request stands for it."""

_BEARER = re.compile(r"bearer +\{\{(\w+)\}\} *\Z", re.IGNORECASE | re.ASCII)
_TOKEN = re.compile(rb"\{\{(\w+)(?::(\d*):(\d*))?\}\}")
_NO_TARGET = re.compile(rb"[\x00-\x20\x7f]")
_PARAMETER = re.compile(r"\\\{\w+\\\}")
EDGE = frozenset({400})


class Route(Protocol):
    """What the fuzzer needs of a row of the table."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def scope(self) -> Scope | None: ...
    @property
    def errors(self) -> AbstractSet[int]: ...


@dataclass
class Draft:
    """A request that is still being changed."""

    route: Route
    method: str
    path: bytes
    query: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes | None = None
    version: bytes = b"HTTP/1.1"
    chunks: list[bytes] | None = None
    """The body as it goes over the wire when it is chunked."""
    length: bytes | None = None
    """A Content-Length that lies."""
    malformed: bool = False
    """The head is no HTTP that is accepted: 400 whatever else is wrong."""
    torn: bool = False
    """The framing of the body is broken: 400 for whom that reads it."""
    alone: bool = False
    """It cannot share its connection with requests after it."""
    raw: bytes | None = None
    """The bytes instead of all this."""
    done: list[str] = field(default_factory=list)
    """The names of what was done to it."""

    def render(self) -> bytes:
        """Give the bytes, with `{{name}}` for tokens."""
        if self.raw is not None:
            return self.raw
        lines = [b"%s %s %s" % (self.method.encode("latin-1"), self.target(), self.version)]
        lines += [b"%s: %s" % pair for pair in self.headers]
        body = self.body or b""
        if self.chunks is not None:
            lines.append(b"Transfer-Encoding: chunked")
            body = b"".join(self.chunks)
        elif self.body is not None or self.length is not None:
            lines.append(b"Content-Length: " + (self.length or b"%d" % len(body)))
        return b"\r\n".join([*lines, b"", body])

    def target(self) -> bytes:
        """Give path and query."""
        return self.path + (b"?" + self.query if self.query else b"")

    def is_malformed(self) -> bool:
        """Return whether the head is refused; a target with a space or a control character is."""
        return self.malformed or bool(_NO_TARGET.search(self.target()))

    def values(self, name: bytes) -> list[str]:
        """Give the values of a header."""
        return [v.decode("latin-1") for k, v in self.headers if k.lower() == name]


def with_tokens(data: bytes, tokens: dict[str, str]) -> bytes:
    """Put the tokens of a world in; `{{name:2:9}}` is a part of one."""

    def put(match: re.Match[bytes]) -> bytes:
        token = tokens.get(match[1].decode(), "").encode()
        if not token:
            return match[0]
        return token[int(match[2] or 0) : int(match[3] or len(token))]

    return _TOKEN.sub(put, data)


def _matcher(path: str) -> re.Pattern[str]:
    return re.compile(_PARAMETER.sub("[^/]+", re.escape(path)), re.DOTALL)


_MATCHERS: list[tuple[re.Pattern[str], Route]] = [
    (_matcher(route.path), route) for route in ROUTES
]
EVERY = frozenset().union(
    *(route.errors for route in ROUTES), *([t.status] for t in TEMPLATES.values())
)
ANYWHERE = frozenset({400, 404, 405, 413, 503})


def resolve(method: str, target: bytes) -> Route | int:
    """Find the route of a request, or 404 or 405.

    A fragment has no place in a request; one that is there is dropped, but for one before the
    query, which is taken for a part of the path.
    """
    sent, mark, _ = target.decode("utf-8", "surrogateescape").partition("?")
    sent = sent if mark else sent.partition("#")[0]
    decoded = "%2F".join(unquote(part) for part in re.split("%2[fF]", sent))
    found = [route for pattern, route in _MATCHERS if pattern.fullmatch(decoded)]
    if not found:
        return 404
    return next((route for route in found if route.method == method), 405)


def allowed(draft: Draft) -> frozenset[int]:
    """Tell which statuses may answer, by the order in which requests are checked."""
    if draft.raw is not None:
        return EVERY | ANYWHERE
    if draft.is_malformed():
        return EDGE
    route = resolve(draft.method, draft.target())
    found = frozenset({route}) if isinstance(route, int) else _of_route(draft, route)
    return found | (EDGE if draft.torn else frozenset())


def _of_route(draft: Draft, route: Route) -> frozenset[int]:
    if route.scope is not None:
        holder = _holder(draft.values(b"authorization"))
        if not holder or not HOLDERS[holder]:
            return frozenset({401})
        if not grants(HOLDERS[holder], route.scope):
            return frozenset({403})
    template = TEMPLATES[route.method, route.path]
    if template.body is not None and not draft.torn:
        refusal = _of_body(draft, template)
        if refusal:
            return frozenset({refusal})
    return frozenset({template.status, *route.errors}) - {401, 403}


def _holder(values: Iterable[str]) -> str:
    """Give whose whole token is presented as it should be."""
    found = list(values)
    match = _BEARER.match(found[0]) if len(found) == 1 else None
    return match[1] if match else ""


def _of_body(draft: Draft, template: Template) -> int | None:
    """Give the status that refuses a body; None when it may be accepted."""
    body = draft.body or b""
    if len(body) > template.max_bytes:
        return 413
    encodings = draft.values(b"content-encoding")
    if encodings and encodings[0].lower() != "identity":
        return 422
    try:
        read(body)
    except NotJsonError:
        return 422
    return None
