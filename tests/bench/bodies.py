"""Cost of the largest and the worst request bodies for the control plane's event loop.

Measured in this process: CPU time to parse, validate and reject a body, which blocks all clients.
"""

import json
import time
from collections.abc import Iterator

from controlplane.api.operations.bodies import Body, parse_body
from controlplane.domain.errors import InvalidRequestError
from controlplane.http.errors import error_body
from tests.bench.report import Result
from tests.controlplane.body_models import EXAMPLES, MODELS
from tests.controlplane.worst_bodies import worst_bodies
from tests.support.deployment import Steps

ROUNDS = 5
MOST_MS = 50
_IDS = [f"{number:x<256}" for number in range(1000)]
_ENTRIES = {f"{number:03}": "x" * 50 for number in range(1000)}
_LARGEST = {
    "players": _IDS,
    "env": _ENTRIES,
    "labels": _ENTRIES,
    "args": ["x" * 60] * 1000,
    "regions": [f"{number:x<128}" for number in range(256)],
    "scopes": ["session:read"] * 100,
}
"""The longest values of lists and objects that models accept."""


def measure(effort: int, steps: Steps) -> list[Result]:
    """Measure every model; a figure is the costliest body's minimum over the rounds."""
    rounds = max(1, ROUNDS * effort // 100)
    with steps.step("read the largest and the worst bodies"):
        legal = max(_least_ms(model, body, rounds) for model, body in _legal())
        worst = max(
            _least_ms(model, body, rounds) for model in MODELS for body in worst_bodies(model)
        )
    return [
        Result("bodies.largest_ms", legal, "ms", most=MOST_MS),
        Result("bodies.worst_ms", worst, "ms", most=MOST_MS),
    ]


def _legal() -> Iterator[tuple[type[Body], bytes]]:
    for model in MODELS:
        larger = {name: value for name, value in _LARGEST.items() if name in EXAMPLES[model]}
        yield model, json.dumps(EXAMPLES[model] | larger).encode()


def _least_ms(model: type[Body], body: bytes, rounds: int) -> float:
    return min(_ms(model, body) for _ in range(rounds))


def _ms(model: type[Body], body: bytes) -> float:
    begin = time.thread_time()
    try:
        parse_body(body, model)
    except InvalidRequestError as error:
        listed = [{"field": one.field, "description": one.description} for one in error.listed]
        refusal = error_body(
            "/", "", status=422, message=error.message, details=error.details, violations=listed
        )
        json.dumps(refusal).encode()
    return (time.thread_time() - begin) * 1000
