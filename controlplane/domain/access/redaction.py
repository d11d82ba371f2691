"""Redaction of a secret in the output of programs that it was sent to. Pure."""

import re
from itertools import takewhile
from urllib.parse import quote

from tiltyard.runtime.logging.line import REDACTED

_PREFIX = 8  # Characters of a secret's beginning that are redacted wherever they occur


def cut_out(secret: str, text: str) -> str:
    """Redact a secret in a text in which another program may quote it.

    It may be truncated, in another case, as bytes or in a URL: from its beginning, everything goes
    that matches or has no space.
    """
    for form in (secret, repr(secret.encode())[2:-1], quote(secret, safe="")):
        text = _cut_form(form, text)
    return text


def _cut_form(form: str, text: str) -> str:
    begin = form[:_PREFIX]
    rest = form[_PREFIX:]
    if not begin:
        return text
    before, *parts = re.split(re.escape(begin), text, flags=re.IGNORECASE)
    return before + "".join(REDACTED + _after(rest, part) for part in parts)


def _after(rest: str, text: str) -> str:
    pairs = zip(rest.lower(), text.lower(), strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return re.sub(r"\A[!-~]*", "", text[same:])
