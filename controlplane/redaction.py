"""The last hand on every line of the log: tokens are cut out, and one event looks like one.

What a caller sent or a host answered is quoted in the log, also by tracebacks. Callers put tokens
where they do not belong, such as into a path or a query: only the public id of a token is left, so
that it can be revoked. Nobody forges a line: a message is one, and what a traceback adds to it is
indented.
"""

import copy
import logging
import re

REDACTED = "[redacted]"
_INDENT = "    "

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
