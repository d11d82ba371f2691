"""What must hold for every answer."""

import json
import re
from typing import Any

from controlplane.api.routes import ROUTES
from tests.fuzz.draft import with_tokens
from tests.fuzz.generator import Sent
from tests.support.controlplane.raw_http import CODES, FIELDS, RawAnswer, assert_documented

OPEN = tuple(route.path.encode() for route in ROUTES if route.scope is None)
MAX_PATH = 2048
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\Z", re.ASCII)
_REFUSED_FIELDS = {400, 422}


class WrongAnswerError(AssertionError):
    """An answer breaks a rule."""


def check(sent: Sent, data: bytes, answer: RawAnswer | None, tokens: dict[str, str]) -> None:
    """Check the first answer to a request whose bytes, with its tokens, were `data`.

    Raises:
        WrongAnswerError: It breaks a rule.
    """
    if answer is None:
        _require(_may_be_silent(sent, data), "the connection was closed without an answer")
        return
    head = data.lstrip(b"\r\n").startswith(b"HEAD ")
    try:
        assert_documented(answer, body=not head)
    except (AssertionError, KeyError, ValueError) as error:
        raise WrongAnswerError(f"out of shape: {error!r}") from error
    wanted = f"{answer.status}, allowed are {sorted(sent.allowed)}"
    _require(answer.status in sent.allowed, wanted)
    if answer.status < 400:
        _check_success(answer, data, tokens)
    elif not head:
        _check_error(answer, sent, tokens)


def _may_be_silent(sent: Sent, data: bytes) -> bool:
    """Return whether HTTP gives no request: bytes that end before the headers do."""
    return sent.raw and b"\r\n\r\n" not in data.lstrip(b"\r\n")


def _check_success(answer: RawAnswer, data: bytes, tokens: dict[str, str]) -> None:
    known = any(token.encode() in data for token in tokens.values())
    _require(known or any(path in data for path in OPEN), "a success without any token")
    if answer.status == 204:
        _require(not answer.body, "a 204 with a body")
    elif answer.headers["content-type"].startswith("application/json"):
        _require(isinstance(answer.json, dict), "a success whose body is no object")


def _check_error(answer: RawAnswer, sent: Sent, tokens: dict[str, str]) -> None:
    error: dict[str, Any] = json.loads(answer.body)
    texts = FIELDS - {"statusCode"}
    _require(all(isinstance(error[name], str) for name in texts), "a field is no string")
    _require(type(error["statusCode"]) is int, "statusCode is no integer")
    _require(answer.status in CODES[error["code"]], "the code is of another status")
    _require(bool(_TIME.match(error["timestamp"])), "the timestamp is no time")
    violations = error.get("violations")
    if violations is not None:
        _require(answer.status in _REFUSED_FIELDS, "violations of what is no bad field")
        _require(bool(violations) and isinstance(violations, list), "violations are no list")
        for violation in violations:
            _require(set(violation) == {"field", "description"}, "a violation out of shape")
            _require(all(v and isinstance(v, str) for v in violation.values()), "an empty one")
    if answer.status == 401:
        _require(answer.headers.get("www-authenticate") == "Bearer", "no WWW-Authenticate")
    if sent.target is not None and sent.target.isascii() and answer.status != 400:
        path = with_tokens(sent.target, tokens).decode().partition("?")[0][:MAX_PATH]
        _require(error["path"] == path, f"the path is {error['path']!r}")


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise WrongAnswerError(reason)
