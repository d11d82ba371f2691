"""What is cut out of what other programs answer: a secret that they were sent. Pure."""

import re
from itertools import takewhile
from urllib.parse import quote

from tiltyard.runtime.logging.line import REDACTED

_TELLTALE = 8
"""Characters of a secret that are taken for its begin wherever they stand."""


def cut_out(secret: str, text: str) -> str:
    """Cut a secret out of a text in which another program may quote it.

    It may be quoted in part, in another case, as bytes or in a URL: from its beginning, all goes
    that matches or has no space.
    """
    for form in (secret, repr(secret.encode())[2:-1], quote(secret, safe="")):
        text = _cut_form(form, text)
    return text


def _cut_form(form: str, text: str) -> str:
    begin, rest = form[:_TELLTALE], form[_TELLTALE:]
    if not begin:
        return text
    before, *parts = re.split(re.escape(begin), text, flags=re.IGNORECASE)
    return before + "".join(REDACTED + _after(rest, part) for part in parts)


def _after(rest: str, text: str) -> str:
    pairs = zip(rest.lower(), text.lower(), strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return re.sub(r"\A[!-~]*", "", text[same:])
