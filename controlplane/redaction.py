"""The last hand on every line of the log: tokens are cut out, and one message stays one line.

What a caller sent is quoted in the log, and callers put tokens where they do not belong, such as
into a path or a query. Only the public id of a token is left, so that it can be revoked.
"""

import logging
import re

REDACTED = "[redacted]"

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
        """Format and redact."""
        return redact(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        """Write control characters as escapes: nobody can forge a line of the log."""
        return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], super().formatMessage(record))
