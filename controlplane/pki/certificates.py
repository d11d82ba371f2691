"""Certificates of authorities that operators hand over: PEM text, checked before it is kept."""

import ssl

MAX_CHARACTERS = 64 * 1024
"""Some forty authorities; a registry has one or two."""


def check_authorities(pem: str) -> None:
    """Check that a TLS client can be made to trust this text. Parses: some milliseconds.

    Raises:
        ValueError: It is no PEM text of certificates, or holds more than that; says what.
    """
    if len(pem) > MAX_CHARACTERS:
        raise ValueError(f"must be at most {MAX_CHARACTERS} characters")
    if "PRIVATE KEY-----" in pem:  # OpenSSL would take no notice, and the text is shown again
        raise ValueError("holds a private key: certificates are all that is needed")
    if not pem.isascii() or not pem.strip():  # of an empty text OpenSSL makes the system's trust
        raise ValueError(_NONE)
    try:
        ssl.create_default_context(cadata=pem)
    except ssl.SSLError as error:
        raise ValueError(_NONE) from error


_NONE = "must be certificates as PEM text"
