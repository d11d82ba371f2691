"""What is cut out of every line of the log: the secrets of tokens and of credentials. Pure.

What a caller sent or a host answered is quoted in the log, also by tracebacks. Callers put tokens
where they do not belong, such as into a path or a query: only the public id of a token is left, so
that it can be revoked.
"""

import re

REDACTED = "[redacted]"

# Also of a token that was cut off, or whose checksum is wrong: what is there of its secret is
# the secret's. An underscore may have been percent-encoded.
_SECRET = re.compile(r"(ty(?:_|%5f)[0-9a-f]{16}(?:_|%5f))[0-9a-f]+", re.IGNORECASE | re.ASCII)
_CREDENTIALS = re.compile(
    r"""(x-registry-auth\W+(?:b['"])?|authorization\W+(?:b['"])?(?:bearer|basic)\s+)[^\s'",;]+""",
    re.IGNORECASE | re.ASCII,
)


def redact(text: str) -> str:
    """Redact secrets of tokens, and everything after the names of credential headers."""
    return _CREDENTIALS.sub(rf"\1{REDACTED}", _SECRET.sub(rf"\1{REDACTED}", text))
