"""The last hand on every line of the log: tokens are cut out, and one event looks like one.

What a caller sent or a host answered is quoted in the log, also by tracebacks. Callers put tokens
where they do not belong, such as into a path or a query: only the public id of a token is left, so
that it can be revoked. Nobody forges a line: a message is one, and what a traceback adds to it is
indented.
"""

import copy
import logging
import re
from itertools import takewhile
from urllib.parse import quote

REDACTED = "[redacted]"
_INDENT = "    "
_TELLTALE = 8
"""Characters of a secret that are taken for its begin wherever they stand."""

# Also of a token that was cut off, or whose checksum is wrong: what is there of its secret is
# the secret's. An underscore may have been percent-encoded.
_SECRET = re.compile(r"(ty(?:_|%5f)[0-9a-f]{16}(?:_|%5f))[0-9a-f]+", re.IGNORECASE | re.ASCII)
_CREDENTIALS = re.compile(
    r"""(authorization\W+(?:b['"])?(?:bearer|basic)\s+)[^\s'",;]+""", re.IGNORECASE | re.ASCII
)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def redact(text: str) -> str:
    """Cut out the secrets of tokens, and whatever follows the name of the header for them."""
    return _CREDENTIALS.sub(rf"\1{REDACTED}", _SECRET.sub(rf"\1{REDACTED}", text))


def cut_out(secret: str, text: str) -> str:
    """Cut a secret out of a text in which another program may quote it. Pure.

    Quoted it may be in part, in another case (in the name of a host), as bytes or in a URL. So
    whatever follows its begin goes, too, as far as it goes on or there is no space.
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


class RedactingFormatter(logging.Formatter):
    """A formatter whose text, with arguments and tracebacks, was redacted."""

    def format(self, record: logging.LogRecord) -> str:
        """Format and redact; whatever follows the first line is indented."""
        own = copy.copy(record)
        if own.exc_info:
            own.exc_text = None  # what another formatter left there, or would find of ours
        first, *more = redact(super().format(own)).split("\n")
        return "\n".join([first, *(_INDENT + _escaped(line) for line in more)])

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        """Write the message as one line; escapes could part what makes a secret: redact first."""
        return _escaped(redact(super().formatMessage(record)))


def _escaped(text: str) -> str:
    """Write control characters, also the ends of lines, as escapes."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)
