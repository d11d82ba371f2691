"""From (seed, number) a request, whatever was made before."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from controlplane.api.routes import ROUTES
from controlplane.domain.tokens import OPERATOR_SCOPES
from tests.fuzz import bodies, parts
from tests.fuzz.draft import Draft, Route, allowed
from tests.fuzz.templates import PARAMETERS, TEMPLATES

Mutator = Callable[[Draft, Random], None]

OF_BODIES: dict[Mutator, int] = {
    bodies.change_values: 30,
    bodies.break_text: 10,
    bodies.replace_text: 12,
    bodies.encode: 4,
    bodies.chunk: 4,
    bodies.tear: 1,
}
OF_ALL: dict[Mutator, int] = {
    parts.change_method: 4,
    parts.change_segment: 10,
    parts.change_path: 4,
    parts.change_query: 8,
    parts.flood_query: 1,
    parts.change_bearer: 10,
    parts.add_header: 4,
    parts.break_head: 2,
    parts.use_http_1_0: 1,
}
OF_QUERIES: dict[Mutator, int] = {parts.change_query: 60}
RAW_SHARE = 0.06
VALID_SHARE = 0.05
SECOND_SHARE = 0.2

_PARAMETER = re.compile(r"\{(\w+)\}")
_RAW = (b"\r\n", b"\n", b"\r", b"\0", b":", b" ", b"\xff", b"%", b"\t", b"{", b'"', b"\r\n\r\n")


@dataclass(frozen=True)
class Sent:
    """A request as it is sent, and what may come back."""

    number: int
    data: bytes
    """`{{alice}}` stands for a token."""
    method: str
    target: bytes | None
    """None where the bytes were changed, so that there may be none."""
    allowed: frozenset[int]
    alone: bool
    route: str
    done: tuple[str, ...]

    @property
    def raw(self) -> bool:
        """Return whether the bytes were changed."""
        return self.target is None


def make(seed: int, number: int) -> Sent:
    """Make the request of this number."""
    chance = Random(f"{seed}:{number}")
    draft = valid(chance.choice(ROUTES), chance)
    template = TEMPLATES[draft.route.method, draft.route.path]
    weights = dict(OF_ALL)
    if template.body is not None:
        weights |= OF_BODIES
    if template.query:
        weights |= OF_QUERIES
    if chance.random() >= VALID_SHARE:
        times = 2 if chance.random() < SECOND_SHARE else 1
        for mutate in _choose(weights, chance, times):
            mutate(draft, chance)
            draft.done.append(mutate.__name__)
    if chance.random() < RAW_SHARE:
        draft.raw = _change_bytes(draft.render(), chance)
        draft.done.append("bytes")
    return _sent(number, draft)


def valid(route: Route, chance: Random) -> Draft:
    """Make a request of this route with which nothing is wrong."""
    template = TEMPLATES[route.method, route.path]

    def value(match: re.Match[str]) -> str:
        name = match[1]
        return chance.choice(template.parameters.get(name) or PARAMETERS.get(name, ("x",)))

    headers = [(b"Host", b"a")]
    if route.scope is not None:
        holder = b"operator" if route.scope in OPERATOR_SCOPES else b"alice"
        headers.append((b"Authorization", b"Bearer {{%s}}" % holder))
    draft = Draft(
        route,
        route.method,
        _PARAMETER.sub(value, route.path).encode(),
        template.query.encode(),
        headers,
    )
    if template.body is not None:
        draft.body = bodies.dump(bodies.example(draft, chance))
    return draft


def _choose(weights: dict[Mutator, int], chance: Random, times: int) -> list[Mutator]:
    """Choose different ones; the framing comes last, since it frames what the others made."""
    chosen = set(chance.choices(list(weights), list(weights.values()), k=times))
    order = list(OF_BODIES)[:-2] + list(OF_ALL) + list(OF_BODIES)[-2:]
    return sorted(chosen, key=order.index)


def _change_bytes(data: bytes, chance: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(min(len(changed), 2000) or 1)
        match chance.randrange(5):
            case 0 if changed:
                changed[at] = chance.randrange(256)
            case 1:
                del changed[at : at + chance.choice((1, 1, 5, 50))]
            case 2:
                changed[at:at] = changed[at : at + chance.randrange(60)]
            case 3 if chance.random() < 0.2:  # the server waits for the rest, and so do we
                del changed[at:]
            case _:
                changed[at:at] = chance.choice(_RAW)
    return bytes(changed)


def _sent(number: int, draft: Draft) -> Sent:
    raw = draft.raw is not None
    return Sent(
        number=number,
        data=draft.render(),
        method=draft.method,
        target=None if raw else draft.target(),
        allowed=allowed(draft),
        alone=raw or draft.alone or draft.is_malformed(),
        route=f"{draft.route.method} {draft.route.path}",
        done=tuple(draft.done),
    )
